// What programs of one engine share: an instruction set and threads. One caller at a time.
#pragma once

#include "core/isa.h"
#include "core/pool.h"
#include "core/step_kernels.h"

#include <memory>
#include <mutex>
#include <utility>

namespace octavo {

struct Runtime {
    Runtime(const Kernels& kernels, std::shared_ptr<ThreadPool> threads)
        : isa(kernels.isa), steps(step_kernels(isa)), pool(std::move(threads)) {}

    const Isa isa;
    const StepKernels& steps;
    const std::shared_ptr<ThreadPool> pool;
    std::mutex mutex;  // held while the pool works
};

}  // namespace octavo
