// Sixteen lanes on AVX-512 (F, BW, VNNI, BF16): one register each. Included only by kernels_avx512.cpp. A machine without
// these runs the same source through an emulating header, named by OCTAVO_AVX512_HEADER (see test/avx512_emulated.h).
#pragma once

#include "core/kernels.h"

#if defined(OCTAVO_AVX512_HEADER)
#include OCTAVO_AVX512_HEADER
#else
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

namespace octavo::avx512 {
namespace {

#if defined(OCTAVO_AVX512_HEADER)
#define OCTAVO_UNROLL(n)  // emulated intrinsics are long; unrolled they take minutes to compile
#else
#define OCTAVO_PRAGMA(text) _Pragma(#text)
#define OCTAVO_UNROLL(n) OCTAVO_PRAGMA(GCC unroll n)
#endif
#define OCTAVO_INLINE inline __attribute__((always_inline))

struct VF {
    __m512 a;
};
struct VI {
    __m512i a;
};

OCTAVO_INLINE VF vf_set(float v) { return {_mm512_set1_ps(v)}; }
OCTAVO_INLINE VF vf_load(const float* p) { return {_mm512_loadu_ps(p)}; }
OCTAVO_INLINE void vf_store(float* p, VF v) { _mm512_storeu_ps(p, v.a); }
OCTAVO_INLINE VF vf_load_f16(const uint8_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
OCTAVO_INLINE VF vf_load_f32(const uint8_t* p) { return vf_load(reinterpret_cast<const float*>(p)); }
OCTAVO_INLINE VF operator+(VF x, VF y) { return {_mm512_add_ps(x.a, y.a)}; }
OCTAVO_INLINE VF operator-(VF x, VF y) { return {_mm512_sub_ps(x.a, y.a)}; }
OCTAVO_INLINE VF operator*(VF x, VF y) { return {_mm512_mul_ps(x.a, y.a)}; }
OCTAVO_INLINE VF operator/(VF x, VF y) { return {_mm512_div_ps(x.a, y.a)}; }
// x * y + z, rounded once.
OCTAVO_INLINE VF vf_fma(VF x, VF y, VF z) { return {_mm512_fmadd_ps(x.a, y.a, z.a)}; }
// Where x or y is not a number the answer is y.
OCTAVO_INLINE VF vf_min(VF x, VF y) { return {_mm512_min_ps(x.a, y.a)}; }
OCTAVO_INLINE VF vf_max(VF x, VF y) { return {_mm512_max_ps(x.a, y.a)}; }

OCTAVO_INLINE VF to_float(VI v) { return {_mm512_cvtepi32_ps(v.a)}; }
OCTAVO_INLINE VI to_int(VF v) { return {_mm512_cvtps_epi32(v.a)}; }
OCTAVO_INLINE VI vi_set(int32_t v) { return {_mm512_set1_epi32(v)}; }
OCTAVO_INLINE VI operator+(VI x, VI y) { return {_mm512_add_epi32(x.a, y.a)}; }
OCTAVO_INLINE VI vi_max(VI x, VI y) { return {_mm512_max_epi32(x.a, y.a)}; }
OCTAVO_INLINE VI vf_abs_bits(VF v) { return {_mm512_and_si512(_mm512_castps_si512(v.a), _mm512_set1_epi32(0x7fffffff))}; }
// 2^n for lanes n in [-126, 127].
OCTAVO_INLINE VF vf_pow2(VI n) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.a, _mm512_set1_epi32(127)), 23))};
}
OCTAVO_INLINE __m128i quarter_max(__m256i m) {
    __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
}
OCTAVO_INLINE __m128i quarter_sum(__m256i m) {
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1));
}
OCTAVO_INLINE int32_t vi_max_lane(VI v) {
    return _mm_cvtsi128_si32(quarter_max(_mm256_max_epi32(_mm512_castsi512_si256(v.a), _mm512_extracti64x4_epi64(v.a, 1))));
}
OCTAVO_INLINE int32_t vi_sum_lanes(VI v) {
    return _mm_cvtsi128_si32(quarter_sum(_mm256_add_epi32(_mm512_castsi512_si256(v.a), _mm512_extracti64x4_epi64(v.a, 1))));
}
OCTAVO_INLINE void vi_store_i8(uint8_t* p, VI v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(v.a));
}

// --- 8-bit dot products: 16 outputs x 4 k a step -----------------------------------------------------------------

using Bytes = __m512i;
using Quad = __m512i;  // four activation codes, repeated

OCTAVO_INLINE Quad quad(const uint8_t* p) {
    int32_t v;
    std::memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}
OCTAVO_INLINE Bytes load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
OCTAVO_INLINE void store_bytes(uint8_t* p, Bytes v) { _mm512_storeu_si512(p, v); }
OCTAVO_INLINE Bytes low_nibbles(Bytes v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
OCTAVO_INLINE Bytes high_nibbles(Bytes v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }

// Keeps the order in which accumulators are written, as on AVX2: left alone, GCC gathers and spills.
OCTAVO_INLINE void pin([[maybe_unused]] __m512i& v) {
#if !defined(OCTAVO_AVX512_HEADER)
    asm volatile("" : "+v"(v));
#endif
}
// The same value, about which the compiler knows nothing.
OCTAVO_INLINE Bytes opaque(Bytes b) {
    pin(b);
    return b;
}

// vpdpbusd: unsigned weights, signed activations, exact 32-bit sums. Signed codes are stored plus 128; like every zero
// point, that is taken back by starting from -zero * (sum of the activation codes).
struct Dot {
    static constexpr int kBurst = 8;
    using Weights = Bytes;
    static OCTAVO_INLINE Weights weights(Bytes b) { return b; }

    VI sum;
    OCTAVO_INLINE void start(int32_t correction) { sum = vi_set(correction); }
    OCTAVO_INLINE void step(Weights w, Quad x, bool) {
        sum.a = _mm512_dpbusd_epi32(sum.a, w, x);
        pin(sum.a);
    }
    OCTAVO_INLINE void settle(bool) {}
    OCTAVO_INLINE VI finish(int32_t) const { return sum; }
    OCTAVO_INLINE VI finish() const { return sum; }
};

template <Code C>
struct DotOf {
    using type = Dot;
};

// --- bf16 pairs --------------------------------------------------------------------------------------------------

inline constexpr ActKind kBf16Act = ActKind::BF16;
inline constexpr bool kBiasedBytes = true;
inline constexpr Isa kIsa = Isa::Avx512;

using PairWeights = __m512i;
using PairInput = __m512i;

OCTAVO_INLINE PairWeights pair_weights(const uint8_t* p) { return _mm512_loadu_si512(p); }
OCTAVO_INLINE PairInput pair_input(const uint8_t* row, int pair) { return quad(row + 4 * static_cast<size_t>(pair)); }
// The absent half of an odd last pair was stored as zero.
OCTAVO_INLINE PairInput pair_last(const uint8_t* row, int pair) { return pair_input(row, pair); }
OCTAVO_INLINE VF pair_dot(PairWeights w, PairInput x, VF acc) {
#if defined(OCTAVO_AVX512_HEADER)
    return {emulated_dpbf16(acc.a, w, x)};
#else
    return {_mm512_dpbf16_ps(acc.a, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x))};
#endif
}
// Nearest, ties to even; not a number stays quiet.
OCTAVO_INLINE void store_bf16_pairs(const float* x, int k, uint8_t* to) {
    for (int i = 0; i < k; ++i) {
        uint32_t bits;
        std::memcpy(&bits, x + i, 4);
        const uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1)) >> 16;
        const uint16_t half = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? (bits >> 16 | 0x40) : rounded);
        std::memcpy(to + 2 * i, &half, 2);
    }
    if (k % 2 != 0) std::memset(to + 2 * k, 0, 2);
}

inline constexpr size_t kPrefetchAhead = 2048;
OCTAVO_INLINE void prefetch(const uint8_t* p) { __builtin_prefetch(p); }

// 32 registers: 16 integer sums of an 8 x 2 tile, its weights and inputs; float sums of more than 4 x 2 stay in the
// first-level cache between groups.
#if defined(OCTAVO_AVX512_HEADER)
inline constexpr int kMaxRows = 3;  // likewise: a tile is a tile
#else
inline constexpr int kMaxRows = 8;
#endif
// A tile of 8 rows and 2 panels hides the unpacking of nibbles.
inline constexpr bool kWidenNibbles = false;
constexpr int rows_for(Code) { return kMaxRows; }
constexpr int panels_for(int rows) { return rows <= 2 ? 4 : 2; }
constexpr bool in_registers(int rows, int panels) { return rows * panels <= 8; }

}  // namespace
}  // namespace octavo::avx512
