// Sixteen lanes in plain C++, which compilers turn into whatever vectors the target has (NEON, SSE2). Included only by
// kernels_portable.cpp.
#pragma once

#include "core/blocks.h"
#include "core/kernels.h"

#include <cstdint>
#include <cstring>

namespace octavo::portable {
namespace {

#define OCTAVO_UNROLL(n)  // loops over lanes are enough for the compiler to chew on
#define OCTAVO_INLINE inline __attribute__((always_inline))
#define OCTAVO_LANES for (int i = 0; i < 16; ++i)

struct VF {
    float v[16];
};
struct VI {
    int32_t v[16];
};

OCTAVO_INLINE VF vf_set(float s) {
    VF r;
    OCTAVO_LANES r.v[i] = s;
    return r;
}
OCTAVO_INLINE VF vf_load(const float* p) {
    VF r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
}
OCTAVO_INLINE void vf_store(float* p, const VF& x) { std::memcpy(p, x.v, sizeof x.v); }
OCTAVO_INLINE VF vf_load_f32(const uint8_t* p) {
    VF r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
}
inline VF vf_load_f16(const uint8_t* p) {
    VF r;
    OCTAVO_LANES {
        uint16_t half;
        std::memcpy(&half, p + 2 * i, 2);
        r.v[i] = f16_to_f32(half);
    }
    return r;
}
OCTAVO_INLINE VF operator+(VF x, const VF& y) {
    OCTAVO_LANES x.v[i] += y.v[i];
    return x;
}
OCTAVO_INLINE VF operator-(VF x, const VF& y) {
    OCTAVO_LANES x.v[i] -= y.v[i];
    return x;
}
OCTAVO_INLINE VF operator*(VF x, const VF& y) {
    OCTAVO_LANES x.v[i] *= y.v[i];
    return x;
}
OCTAVO_INLINE VF operator/(VF x, const VF& y) {
    OCTAVO_LANES x.v[i] /= y.v[i];
    return x;
}
// Rounded twice: a fused one is a library call where the target has no such instruction. Contraction is off for this
// file, so every tile rounds alike.
OCTAVO_INLINE VF vf_fma(const VF& x, const VF& y, VF z) {
    OCTAVO_LANES z.v[i] = x.v[i] * y.v[i] + z.v[i];
    return z;
}
OCTAVO_INLINE VF vf_min(VF x, const VF& y) {
    OCTAVO_LANES x.v[i] = x.v[i] < y.v[i] ? x.v[i] : y.v[i];
    return x;
}
OCTAVO_INLINE VF vf_max(VF x, const VF& y) {
    OCTAVO_LANES x.v[i] = x.v[i] > y.v[i] ? x.v[i] : y.v[i];
    return x;
}

OCTAVO_INLINE VF to_float(const VI& x) {
    VF r;
    OCTAVO_LANES r.v[i] = static_cast<float>(x.v[i]);
    return r;
}
// Nearest, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves the integer in the low bits. Anything else (not a number)
// gives some integer, never undefined behaviour.
OCTAVO_INLINE VI to_int(const VF& x) {
    VI r;
    OCTAVO_LANES {
        const float shifted = x.v[i] + 12582912.0F;
        int32_t bits;
        std::memcpy(&bits, &shifted, 4);
        r.v[i] = static_cast<int32_t>(static_cast<uint32_t>(bits) - 0x4b400000U);
    }
    return r;
}
OCTAVO_INLINE VI vi_set(int32_t s) {
    VI r;
    OCTAVO_LANES r.v[i] = s;
    return r;
}
OCTAVO_INLINE VI operator+(VI x, const VI& y) {
    OCTAVO_LANES x.v[i] += y.v[i];
    return x;
}
OCTAVO_INLINE VI vi_max(VI x, const VI& y) {
    OCTAVO_LANES x.v[i] = x.v[i] > y.v[i] ? x.v[i] : y.v[i];
    return x;
}
OCTAVO_INLINE VI vf_abs_bits(const VF& x) {
    VI r;
    std::memcpy(r.v, x.v, sizeof r.v);
    OCTAVO_LANES r.v[i] &= 0x7fffffff;
    return r;
}
OCTAVO_INLINE VF vf_pow2(const VI& n) {
    VF r;
    OCTAVO_LANES {
        const uint32_t bits = (static_cast<uint32_t>(n.v[i]) + 127U) << 23;
        std::memcpy(&r.v[i], &bits, 4);
    }
    return r;
}
OCTAVO_INLINE int32_t vi_max_lane(const VI& x) {
    int32_t m = x.v[0];
    OCTAVO_LANES m = x.v[i] > m ? x.v[i] : m;
    return m;
}
OCTAVO_INLINE int32_t vi_sum_lanes(const VI& x) {
    int32_t s = 0;
    OCTAVO_LANES s += x.v[i];
    return s;
}
OCTAVO_INLINE void vi_store_i8(uint8_t* p, const VI& x) { OCTAVO_LANES p[i] = static_cast<uint8_t>(x.v[i]); }

// --- 8-bit dot products ------------------------------------------------------------------------------------------

struct Bytes {
    uint8_t v[64];
};
struct Quad {
    int8_t v[4];
};

OCTAVO_INLINE Quad quad(const uint8_t* p) {
    Quad q;
    std::memcpy(q.v, p, 4);
    return q;
}
OCTAVO_INLINE Bytes load_bytes(const uint8_t* p) {
    Bytes b;
    std::memcpy(b.v, p, 64);
    return b;
}
OCTAVO_INLINE void store_bytes(uint8_t* p, const Bytes& b) { std::memcpy(p, b.v, 64); }
OCTAVO_INLINE Bytes low_nibbles(Bytes b) {
    for (uint8_t& v : b.v) v &= 15;
    return b;
}
OCTAVO_INLINE Bytes high_nibbles(Bytes b) {
    for (uint8_t& v : b.v) v = static_cast<uint8_t>(v >> 4);
    return b;
}

// The same value, about which the compiler knows nothing.
OCTAVO_INLINE Bytes opaque(Bytes b) {
    asm volatile("" : "+m"(b));
    return b;
}

template <class T>
struct Dot {
    static constexpr int kBurst = 8;
    using Weights = Bytes;
    static OCTAVO_INLINE Weights weights(const Bytes& b) { return b; }

    VI sum;
    OCTAVO_INLINE void start(int32_t correction) { sum = vi_set(correction); }
    OCTAVO_INLINE void step(const Weights& w, const Quad& x, bool) {
        OCTAVO_LANES {
            for (int j = 0; j < 4; ++j) sum.v[i] += static_cast<T>(w.v[4 * i + j]) * x.v[j];
        }
    }
    OCTAVO_INLINE void settle(bool) {}
    OCTAVO_INLINE VI finish(int32_t) const { return sum; }
    OCTAVO_INLINE VI finish() const { return sum; }
};

template <Code C>
struct DotOf {
    using type = Dot<uint8_t>;
};
template <>
struct DotOf<Code::S8> {
    using type = Dot<int8_t>;
};

// --- bf16 pairs --------------------------------------------------------------------------------------------------

inline constexpr ActKind kBf16Act = ActKind::F32;
inline constexpr bool kBiasedBytes = false;
inline constexpr Isa kIsa = Isa::Portable;

struct PairWeights {
    VF even, odd;
};
struct PairInput {
    float even, odd;
};
OCTAVO_INLINE PairWeights pair_weights(const uint8_t* p) {
    PairWeights w;
    OCTAVO_LANES {
        uint32_t both;
        std::memcpy(&both, p + 4 * i, 4);
        const uint32_t even = both << 16;
        const uint32_t odd = both & 0xffff0000U;
        std::memcpy(&w.even.v[i], &even, 4);
        std::memcpy(&w.odd.v[i], &odd, 4);
    }
    return w;
}
OCTAVO_INLINE PairInput pair_input(const uint8_t* row, int pair) {
    PairInput x;
    std::memcpy(&x, row + 8 * static_cast<size_t>(pair), 8);
    return x;
}
OCTAVO_INLINE PairInput pair_last(const uint8_t* row, int pair) {
    PairInput x{};
    std::memcpy(&x.even, row + 8 * static_cast<size_t>(pair), 4);
    return x;
}
OCTAVO_INLINE VF pair_dot(const PairWeights& w, const PairInput& x, const VF& acc) {
    return vf_fma(w.odd, vf_set(x.odd), vf_fma(w.even, vf_set(x.even), acc));
}
// Rows of floats are used as they are on this instruction set.
OCTAVO_INLINE void store_bf16_pairs(const float*, int, uint8_t*) {}

inline constexpr size_t kPrefetchAhead = 0;
OCTAVO_INLINE void prefetch(const uint8_t*) {}

inline constexpr int kMaxRows = 4;
inline constexpr bool kWidenNibbles = false;
constexpr int rows_for(Code) { return 4; }
constexpr int panels_for(int) { return 1; }
constexpr bool in_registers(int rows, int) { return rows == 1; }

}  // namespace
}  // namespace octavo::portable
