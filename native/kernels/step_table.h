// Gathers this instruction set's kernels. Includer defines OCTAVO_NS.
#pragma once

namespace octavo::OCTAVO_NS {

const StepKernels& step_kernels();
const StepKernels& step_kernels() {
    static constexpr StepKernels kTable{&norm, &rope, &add, &store, &attend, &attend_split, &attend_merge, &argmax,
                                        {&scan_logits, &weigh_logits, &sum_weights}};
    return kTable;
}

}  // namespace octavo::OCTAVO_NS
