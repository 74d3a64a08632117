// What attention and norms need of sixteen portable lanes beyond simd_portable.h. Included only by step_portable.cpp.
#pragma once

#include "kernels/simd_portable.h"

namespace octavo::portable {
namespace {

OCTAVO_INLINE float widen_bf16(uint16_t h) {
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}
// Of 16 pairs of bf16 the first ones, and the second ones.
OCTAVO_INLINE VF vf_load_bf16_first(const uint16_t* p) {
    VF r;
    OCTAVO_LANES r.v[i] = widen_bf16(p[2 * i]);
    return r;
}
OCTAVO_INLINE VF vf_load_bf16_second(const uint16_t* p) { return vf_load_bf16_first(p + 1); }
// 16 values in an order of this instruction set's own, which here is theirs; and that order undone.
OCTAVO_INLINE VF vf_load_bf16_unordered(const uint16_t* p) {
    VF r;
    OCTAVO_LANES r.v[i] = widen_bf16(p[i]);
    return r;
}
OCTAVO_INLINE VF vf_in_order(const VF& v) { return v; }
// Bits of bf16, nearest even; a NaN keeps its sign and stays one.
OCTAVO_INLINE void vf_store_bf16(uint16_t* p, const VF& x) {
    OCTAVO_LANES {
        uint32_t bits;
        std::memcpy(&bits, &x.v[i], 4);
        const uint32_t rounded = (bits + ((bits >> 16) & 1U) + 0x7fffU) >> 16;
        p[i] = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? (bits >> 16) | 0x40U : rounded);
    }
}
OCTAVO_INLINE void vf_pin(VF&) {}
OCTAVO_INLINE VF vf_broadcast(const float* p) { return vf_set(*p); }
// p x 2^n, shifted: n + 1.5 x 2^23 as a float. Adds to the exponents, whatever comes of it.
OCTAVO_INLINE VF vf_times_pow2(VF p, const VF& shifted) {
    OCTAVO_LANES {
        uint32_t bits;
        uint32_t exponent;
        std::memcpy(&bits, &p.v[i], 4);
        std::memcpy(&exponent, &shifted.v[i], 4);
        bits += exponent << 23;
        std::memcpy(&p.v[i], &bits, 4);
    }
    return p;
}
// Lanes [lo, hi) of x, `other` in the rest.
OCTAVO_INLINE VF vf_keep(VF x, int lo, int hi, float other) {
    OCTAVO_LANES x.v[i] = i >= lo && i < hi ? x.v[i] : other;
    return x;
}
// first, first + 1, ...
OCTAVO_INLINE VF vf_count(int first) {
    VF r;
    OCTAVO_LANES r.v[i] = static_cast<float>(first + i);
    return r;
}
OCTAVO_INLINE float vf_sum_lanes(VF x) {
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) x.v[i] += x.v[i + half];
    return x.v[0];
}
OCTAVO_INLINE float vf_max_lane(const VF& x) {
    float m = x.v[0];
    OCTAVO_LANES m = x.v[i] > m ? x.v[i] : m;
    return m;
}

inline constexpr int kQueryRows = 2;
constexpr int rows_at_once(int left) { return left < kQueryRows ? left : kQueryRows; }
constexpr int score_panels(int) { return 1; }
constexpr int mix_vectors(int) { return 1; }

}  // namespace
}  // namespace octavo::portable
