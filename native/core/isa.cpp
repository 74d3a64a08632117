#include "core/isa.h"

#include <initializer_list>

namespace octavo {

namespace portable {
const Kernels& kernels();
}
#if defined(OCTAVO_X86)
namespace avx2 {
const Kernels& kernels();
}
namespace avx512 {
const Kernels& kernels();
}
#endif

const Kernels* kernels_for(Isa isa) {
    switch (isa) {
        case Isa::Portable: return &portable::kernels();
#if defined(OCTAVO_X86)
        case Isa::Avx2:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")
                       ? &avx2::kernels()
                       : nullptr;
        case Isa::Avx512:
#if defined(OCTAVO_EMULATE_AVX512)
            return &avx512::kernels();
#else
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
                           __builtin_cpu_supports("avx512bf16")
                       ? &avx512::kernels()
                       : nullptr;
#endif
#else
        default: return nullptr;
#endif
    }
    return nullptr;
}

const Kernels& best_kernels() {
    for (Isa isa : {Isa::Avx512, Isa::Avx2}) {
        if (const Kernels* k = kernels_for(isa)) return *k;
    }
    return *kernels_for(Isa::Portable);
}

const char* isa_name(Isa isa) {
    switch (isa) {
        case Isa::Portable: return "portable";
        case Isa::Avx2: return "avx2";
        case Isa::Avx512: return "avx512";
    }
    return "?";
}

}  // namespace octavo
