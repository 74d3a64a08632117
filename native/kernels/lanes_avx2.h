// What attention and norms need of sixteen AVX2 lanes beyond simd_avx2.h. Included only by step_avx2.cpp.
#pragma once

#include "kernels/simd_avx2.h"

namespace octavo::avx2 {
namespace {

// Of 16 pairs of bf16 the first ones, and the second ones.
OCTAVO_INLINE __m256 first_bf16(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
OCTAVO_INLINE __m256 second_bf16(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int32_t>(0xffff0000U))));
}
OCTAVO_INLINE __m256i eight_pairs(const uint16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
OCTAVO_INLINE VF vf_load_bf16_first(const uint16_t* p) { return {first_bf16(eight_pairs(p)), first_bf16(eight_pairs(p + 16))}; }
OCTAVO_INLINE VF vf_load_bf16_second(const uint16_t* p) { return {second_bf16(eight_pairs(p)), second_bf16(eight_pairs(p + 16))}; }
// 16 values in an order of this instruction set's own, cheaper than theirs: those of even places, then those of odd ones.
OCTAVO_INLINE VF vf_load_bf16_unordered(const uint16_t* p) {
    return {first_bf16(eight_pairs(p)), second_bf16(eight_pairs(p))};
}
// That order undone.
OCTAVO_INLINE VF vf_in_order(VF v) {
    const __m256 low = _mm256_unpacklo_ps(v.a, v.b);
    const __m256 high = _mm256_unpackhi_ps(v.a, v.b);
    return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}

// Bits of bf16, nearest even, in the low halves; a NaN keeps its sign and stays one.
OCTAVO_INLINE __m256i narrow_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, even), _mm256_set1_epi32(0x7fff)), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
OCTAVO_INLINE void vf_store_bf16(uint16_t* p, VF x) {
    const __m256i packed = _mm256_packus_epi32(narrow_bf16(x.a), narrow_bf16(x.b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}

// Keeps an accumulator in its registers at this point, and the order in which accumulators are written.
OCTAVO_INLINE void vf_pin(VF& v) { asm volatile("" : "+x"(v.a), "+x"(v.b)); }
OCTAVO_INLINE VF vf_broadcast(const float* p) {
    const __m256 v = _mm256_broadcast_ss(p);
    return {v, v};
}
// p x 2^n, shifted: n + 1.5 x 2^23 as a float. Adds to the exponents, whatever comes of it.
OCTAVO_INLINE __m256 add_exponent(__m256 p, __m256 shifted) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}
OCTAVO_INLINE VF vf_times_pow2(VF p, VF shifted) { return {add_exponent(p.a, shifted.a), add_exponent(p.b, shifted.b)}; }
OCTAVO_INLINE __m256i lanes_from(int first) {
    return _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
}
OCTAVO_INLINE __m256 keep_lanes(__m256 x, __m256i lane, int lo, int hi, float other) {
    const __m256i in = _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32(lo - 1)),
                                        _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane));
    return _mm256_blendv_ps(_mm256_set1_ps(other), x, _mm256_castsi256_ps(in));
}
// Lanes [lo, hi) of x, `other` in the rest.
OCTAVO_INLINE VF vf_keep(VF x, int lo, int hi, float other) {
    return {keep_lanes(x.a, lanes_from(0), lo, hi, other), keep_lanes(x.b, lanes_from(8), lo, hi, other)};
}
// first, first + 1, ...
OCTAVO_INLINE VF vf_count(int first) {
    return {_mm256_cvtepi32_ps(lanes_from(first)), _mm256_cvtepi32_ps(lanes_from(first + 8))};
}
OCTAVO_INLINE float vf_sum_lanes(VF x) {
    const __m256 s = _mm256_add_ps(x.a, x.b);
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_shuffle_ps(h, h, 1)));
}
OCTAVO_INLINE float vf_max_lane(VF x) {
    const __m256 s = _mm256_max_ps(x.a, x.b);
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_shuffle_ps(h, h, 1)));
}

// Register tiles: 16 registers hold the accumulators and what feeds them. Rows of the next tile where `left` remain; panels
// of 16 keys beside a number of query rows, and vectors of 16 values beside as many rows. Twelve accumulators in flight hide
// the latency of a product, eight just do; more rows share a load.
inline constexpr int kQueryRows = 6;
constexpr int rows_at_once(int left) { return left == 6 || left > 8 ? 6 : left == 5 ? 3 : left > 4 ? 4 : left; }
constexpr int score_panels(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
constexpr int mix_vectors(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

}  // namespace
}  // namespace octavo::avx2
