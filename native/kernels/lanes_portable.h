// What attention and norms need of sixteen portable lanes beyond simd_portable.h. Included only by step_portable.cpp.
#pragma once

#include "kernels/simd_portable.h"

namespace octavo::portable {
namespace {

struct VF2 {
    VF even, odd;
};

OCTAVO_INLINE float widen_bf16(uint16_t h) {
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}
OCTAVO_INLINE VF2 vf_load_bf16_pairs(const uint16_t* p) {
    VF2 r;
    OCTAVO_LANES {
        r.even.v[i] = widen_bf16(p[2 * i]);
        r.odd.v[i] = widen_bf16(p[2 * i + 1]);
    }
    return r;
}
OCTAVO_INLINE VF vf_load_bf16(const uint16_t* p) {
    VF r;
    OCTAVO_LANES r.v[i] = widen_bf16(p[i]);
    return r;
}
// Bits of bf16, nearest even; a NaN keeps its sign and stays one.
OCTAVO_INLINE void vf_store_bf16(uint16_t* p, const VF& x) {
    OCTAVO_LANES {
        uint32_t bits;
        std::memcpy(&bits, &x.v[i], 4);
        const uint32_t rounded = (bits + ((bits >> 16) & 1U) + 0x7fffU) >> 16;
        p[i] = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? (bits >> 16) | 0x40U : rounded);
    }
}
OCTAVO_INLINE VF vf_broadcast(const float* p) { return vf_set(*p); }
// v where x is not below limit (or not a number), else 0.
OCTAVO_INLINE VF vf_zero_below(const VF& x, float limit, VF v) {
    OCTAVO_LANES v.v[i] = x.v[i] < limit ? 0.0F : v.v[i];
    return v;
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
constexpr int score_panels(int) { return 1; }
constexpr int mix_vectors(int) { return 1; }

}  // namespace
}  // namespace octavo::portable
