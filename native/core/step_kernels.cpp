#include "core/step_kernels.h"

namespace octavo {

namespace portable {
const StepKernels& step_kernels();
}
#if defined(OCTAVO_X86)
namespace avx2 {
const StepKernels& step_kernels();
}
namespace avx512 {
const StepKernels& step_kernels();
}
#endif

const StepKernels& step_kernels(Isa isa) {
#if defined(OCTAVO_X86)
    if (isa == Isa::Avx512) return avx512::step_kernels();
    if (isa == Isa::Avx2) return avx2::step_kernels();
#endif
    static_cast<void>(isa);
    return portable::step_kernels();
}

}  // namespace octavo
