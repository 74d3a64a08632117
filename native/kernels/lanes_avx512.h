// What attention and norms need of sixteen AVX-512 lanes beyond simd_avx512.h. Included only by step_avx512.cpp.
#pragma once

#include "kernels/simd_avx512.h"

namespace octavo::avx512 {
namespace {

// Of 16 pairs of bf16 the first ones, and the second ones.
OCTAVO_INLINE VF vf_load_bf16_first(const uint16_t* p) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))}; }
OCTAVO_INLINE VF vf_load_bf16_second(const uint16_t* p) {
    const __m512i high = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000U));
    return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), high))};
}
// 16 values in an order of this instruction set's own, which here is theirs; and that order undone.
OCTAVO_INLINE VF vf_load_bf16_unordered(const uint16_t* p) {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
OCTAVO_INLINE VF vf_in_order(VF v) { return v; }
// Bits of bf16, nearest even; a NaN keeps its sign and stays one.
OCTAVO_INLINE void vf_store_bf16(uint16_t* p, VF x) {
    const __m512i bits = _mm512_castps_si512(x.a);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, even), _mm512_set1_epi32(0x7fff)), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __m512i chosen = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x.a, x.a, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(chosen));
}
// Keeps an accumulator in its register at this point, and the order in which accumulators are written.
OCTAVO_INLINE void vf_pin([[maybe_unused]] VF& v) {
#if !defined(OCTAVO_AVX512_HEADER)
    asm volatile("" : "+v"(v.a));
#endif
}
OCTAVO_INLINE VF vf_broadcast(const float* p) { return vf_set(*p); }
// p x 2^n, shifted: n + 1.5 x 2^23 as a float. Adds to the exponents, whatever comes of it.
OCTAVO_INLINE VF vf_times_pow2(VF p, VF shifted) {
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p.a), _mm512_slli_epi32(_mm512_castps_si512(shifted.a), 23)))};
}
// Lanes [lo, hi) of x, `other` in the rest.
OCTAVO_INLINE VF vf_keep(VF x, int lo, int hi, float other) {
    const unsigned above = lo <= 0 ? 0xffffU : lo >= 16 ? 0U : 0xffffU << lo;
    const unsigned below = hi >= 16 ? 0xffffU : hi <= 0 ? 0U : 0xffffU >> (16 - hi);
    return {_mm512_mask_mov_ps(_mm512_set1_ps(other), static_cast<__mmask16>(above & below), x.a)};
}
// first, first + 1, ...
OCTAVO_INLINE VF vf_count(int first) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return {_mm512_cvtepi32_ps(_mm512_add_epi32(lanes, _mm512_set1_epi32(first)))};
}
OCTAVO_INLINE __m256 upper_half(VF x) { return _mm256_castsi256_ps(_mm512_extracti64x4_epi64(_mm512_castps_si512(x.a), 1)); }
OCTAVO_INLINE float vf_sum_lanes(VF x) {
    const __m256 s = _mm256_add_ps(_mm512_castps512_ps256(x.a), upper_half(x));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_shuffle_ps(h, h, 1)));
}
OCTAVO_INLINE float vf_max_lane(VF x) {
    const __m256 s = _mm256_max_ps(_mm512_castps512_ps256(x.a), upper_half(x));
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_shuffle_ps(h, h, 1)));
}

// Register tiles, of 32 registers. Rows of the next tile where `left` remain; panels of 16 keys beside a number of query rows,
// and vectors of 16 values likewise.
inline constexpr int kQueryRows = 8;
constexpr int rows_at_once(int left) { return left < kQueryRows ? left : kQueryRows; }
constexpr int score_panels(int rows) { return rows <= 4 ? 4 : 2; }
constexpr int mix_vectors(int rows) { return rows <= 4 ? 4 : 2; }

}  // namespace
}  // namespace octavo::avx512
