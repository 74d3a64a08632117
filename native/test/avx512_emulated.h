// AVX-512 through SIMDe, so that kernels_avx512.cpp runs, slowly, on a machine without it. For tests alone. SIMDe 0.7.4
// lacks a few conversions, which are made of AVX2 halves here.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <cstdint>
#include <cstring>

inline __m512 join(__m256 low, __m256 high) {
    float v[16];
    std::memcpy(v, &low, 32);
    std::memcpy(v + 8, &high, 32);
    return simde_mm512_loadu_ps(v);
}
inline __m256 low_half(__m512 v) {
    __m256 h;
    std::memcpy(&h, &v, 32);
    return h;
}
inline __m256 high_half(__m512 v) {
    __m256 h;
    std::memcpy(&h, reinterpret_cast<const char*>(&v) + 32, 32);
    return h;
}
inline __m512 emulated_cvtph_ps(__m256i v) {
    return join(_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)));
}
inline __m512 emulated_cvtepi32_ps(__m512i v) {
    const __m512 bits = simde_mm512_castsi512_ps(v);
    return join(_mm256_cvtepi32_ps(_mm256_castps_si256(low_half(bits))), _mm256_cvtepi32_ps(_mm256_castps_si256(high_half(bits))));
}
inline __m512i emulated_cvtps_epi32(__m512 v) {
    return simde_mm512_castps_si512(
        join(_mm256_castsi256_ps(_mm256_cvtps_epi32(low_half(v))), _mm256_castsi256_ps(_mm256_cvtps_epi32(high_half(v)))));
}
inline __m512i emulated_cvtepu16_epi32(__m256i v) {
    return simde_mm512_castps_si512(join(_mm256_castsi256_ps(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v))),
                                         _mm256_castsi256_ps(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)))));
}
inline __m256i emulated_cvtepi32_epi16(__m512i v) {
    int32_t from[16];
    int16_t to[16];
    std::memcpy(from, &v, 64);
    for (int i = 0; i < 16; ++i) to[i] = static_cast<int16_t>(from[i]);
    __m256i packed;
    std::memcpy(&packed, to, 32);
    return packed;
}
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16(v) emulated_cvtepi32_epi16(v)
#undef _mm512_cvtph_ps
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(v) emulated_cvtepu16_epi32(v)
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#define _mm512_cvtph_ps(v) emulated_cvtph_ps(v)
#define _mm512_cvtepi32_ps(v) emulated_cvtepi32_ps(v)
#define _mm512_cvtps_epi32(v) emulated_cvtps_epi32(v)

// The instruction sums the pair's two products (the odd one first, neither fused nor rounded in between on hardware) and
// flushes denormals; tests allow for the difference.
inline __m512 emulated_dpbf16(__m512 acc, __m512i w, __m512i x) {
    uint32_t a[16];
    uint32_t b[16];
    float sum[16];
    std::memcpy(a, &w, 64);
    std::memcpy(b, &x, 64);
    std::memcpy(sum, &acc, 64);
    for (int i = 0; i < 16; ++i) {
        for (uint32_t shift : {0U, 16U}) {
            const uint32_t p = (a[i] << shift) & 0xffff0000U;
            const uint32_t q = (b[i] << shift) & 0xffff0000U;
            float u;
            float v;
            std::memcpy(&u, &p, 4);
            std::memcpy(&v, &q, 4);
            sum[i] += u * v;
        }
    }
    return simde_mm512_loadu_ps(sum);
}
