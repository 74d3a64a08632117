// Which instruction sets this build has and this processor runs. Reads no environment.
#pragma once

#include "core/kernels.h"

namespace octavo {

// nullptr where the build lacks the set or the processor (or the operating system's saved state) cannot run it.
const Kernels* kernels_for(Isa isa);

// The widest set that runs here.
const Kernels& best_kernels();

const char* isa_name(Isa isa);

}  // namespace octavo
