// Sixteen lanes on AVX2 + FMA + F16C: two registers each. Included only by kernels_avx2.cpp.
#pragma once

#include "core/kernels.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace octavo::avx2 {
namespace {

#define OCTAVO_PRAGMA(text) _Pragma(#text)
#define OCTAVO_UNROLL(n) OCTAVO_PRAGMA(GCC unroll n)
#define OCTAVO_INLINE inline __attribute__((always_inline))

struct VF {
    __m256 a, b;
};
struct VI {
    __m256i a, b;
};

OCTAVO_INLINE VF vf_set(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
OCTAVO_INLINE VF vf_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
OCTAVO_INLINE void vf_store(float* p, VF v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
OCTAVO_INLINE VF vf_load_f16(const uint8_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}
OCTAVO_INLINE VF vf_load_f32(const uint8_t* p) { return vf_load(reinterpret_cast<const float*>(p)); }
OCTAVO_INLINE VF operator+(VF x, VF y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
OCTAVO_INLINE VF operator-(VF x, VF y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
OCTAVO_INLINE VF operator*(VF x, VF y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
OCTAVO_INLINE VF operator/(VF x, VF y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
// x * y + z, rounded once.
OCTAVO_INLINE VF vf_fma(VF x, VF y, VF z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
// Where x is not a number the answer is y (both).
OCTAVO_INLINE VF vf_min(VF x, VF y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
OCTAVO_INLINE VF vf_max(VF x, VF y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }

OCTAVO_INLINE VF to_float(VI v) { return {_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)}; }
OCTAVO_INLINE VI to_int(VF v) { return {_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)}; }
OCTAVO_INLINE VI vi_set(int32_t v) { return {_mm256_set1_epi32(v), _mm256_set1_epi32(v)}; }
OCTAVO_INLINE VI operator+(VI x, VI y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
OCTAVO_INLINE VI vi_max(VI x, VI y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
OCTAVO_INLINE VI vf_abs_bits(VF v) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    return {_mm256_and_si256(_mm256_castps_si256(v.a), mask), _mm256_and_si256(_mm256_castps_si256(v.b), mask)};
}
// 2^n for lanes n in [-126, 127].
OCTAVO_INLINE VF vf_pow2(VI n) {
    const __m256i bias = _mm256_set1_epi32(127);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.a, bias), 23)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.b, bias), 23))};
}
OCTAVO_INLINE int32_t vi_max_lane(VI v) {
    const __m256i m = _mm256_max_epi32(v.a, v.b);
    __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
    return _mm_cvtsi128_si32(h);
}
OCTAVO_INLINE int32_t vi_sum_lanes(VI v) {
    const __m256i m = _mm256_add_epi32(v.a, v.b);
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1));
    return _mm_cvtsi128_si32(h);
}
OCTAVO_INLINE void vi_store_i8(uint8_t* p, VI v) {
    const __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.a, v.b), 0xd8);
    const __m128i b = _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), b);
}

// --- 8-bit dot products: 16 outputs x 4 k a step -----------------------------------------------------------------

struct Bytes {
    __m256i a, b;
};
using Quad = __m256i;  // four activation codes, repeated

OCTAVO_INLINE Quad quad(const uint8_t* p) {
    int32_t v;
    std::memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}
OCTAVO_INLINE Bytes load_bytes(const uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
OCTAVO_INLINE void store_bytes(uint8_t* p, Bytes v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), v.b);
}
OCTAVO_INLINE Bytes low_nibbles(Bytes v) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(v.a, mask), _mm256_and_si256(v.b, mask)};
}
OCTAVO_INLINE Bytes high_nibbles(Bytes v) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(_mm256_srli_epi16(v.a, 4), mask), _mm256_and_si256(_mm256_srli_epi16(v.b, 4), mask)};
}

// Pins an accumulator to a register at this point. Left alone, GCC gathers a group's additions at its end and spills every
// product until then (measured on the tile of 4 rows: 40 spilled registers, half the speed).
OCTAVO_INLINE void pin(__m256i& v) { asm volatile("" : "+x"(v)); }

// Unsigned codes of at most `Max`: vpmaddubsw adds two products of at most Max * 127 into 16 bits; as many steps as fit
// are added there before one vpmaddwd widens the sum.
template <int Max>
struct DotUnsigned {
    static constexpr int kBurst = 32767 / (2 * Max * 127);
    static_assert(kBurst >= 1);
    using Weights = Bytes;
    static OCTAVO_INLINE Weights weights(Bytes b) { return b; }

    VI sum16, sum32;
    OCTAVO_INLINE void start(int32_t) {}
    OCTAVO_INLINE void step(const Weights& w, Quad x, bool first) {
        const __m256i pa = _mm256_maddubs_epi16(w.a, x);
        const __m256i pb = _mm256_maddubs_epi16(w.b, x);
        sum16.a = first ? pa : _mm256_add_epi16(sum16.a, pa);
        sum16.b = first ? pb : _mm256_add_epi16(sum16.b, pb);
        pin(sum16.a);
        pin(sum16.b);
    }
    OCTAVO_INLINE void settle(bool first) {
        const __m256i ones = _mm256_set1_epi16(1);
        const VI wide = {_mm256_madd_epi16(sum16.a, ones), _mm256_madd_epi16(sum16.b, ones)};
        sum32 = first ? wide : sum32 + wide;
        pin(sum32.a);
        pin(sum32.b);
    }
    OCTAVO_INLINE VI finish(int32_t correction) const { return sum32 + vi_set(correction); }
    OCTAVO_INLINE VI finish() const { return sum32; }
};

// The same value, about which the compiler knows nothing.
OCTAVO_INLINE Bytes opaque(Bytes b) {
    pin(b.a);
    pin(b.b);
    return b;
}

// Signed codes: |w| as the unsigned operand and the activation with w's sign. 2 * 128 * 127 just fits 16 bits.
struct DotSigned {
    static constexpr int kBurst = 1;
    struct Weights {
        Bytes value, magnitude;
    };
    static OCTAVO_INLINE Weights weights(Bytes b) { return {b, {_mm256_abs_epi8(b.a), _mm256_abs_epi8(b.b)}}; }

    VI sum16, sum32;
    OCTAVO_INLINE void start(int32_t) {}
    OCTAVO_INLINE void step(const Weights& w, Quad x, bool) {
        sum16.a = _mm256_maddubs_epi16(w.magnitude.a, _mm256_sign_epi8(x, w.value.a));
        sum16.b = _mm256_maddubs_epi16(w.magnitude.b, _mm256_sign_epi8(x, w.value.b));
    }
    OCTAVO_INLINE void settle(bool first) {
        const __m256i ones = _mm256_set1_epi16(1);
        const VI wide = {_mm256_madd_epi16(sum16.a, ones), _mm256_madd_epi16(sum16.b, ones)};
        sum32 = first ? wide : sum32 + wide;
        pin(sum32.a);
        pin(sum32.b);
    }
    OCTAVO_INLINE VI finish(int32_t correction) const { return sum32 + vi_set(correction); }
    OCTAVO_INLINE VI finish() const { return sum32; }
};

OCTAVO_INLINE DotSigned::Weights opaque(DotSigned::Weights w) { return {opaque(w.value), opaque(w.magnitude)}; }

template <Code C>
struct DotOf;
template <>
struct DotOf<Code::U4> {
    using type = DotUnsigned<15>;
};
template <>
struct DotOf<Code::U5> {
    using type = DotUnsigned<31>;
};
template <>
struct DotOf<Code::U6> {
    using type = DotUnsigned<63>;
};
template <>
struct DotOf<Code::S8> {
    using type = DotSigned;
};

// --- bf16 pairs --------------------------------------------------------------------------------------------------

inline constexpr ActKind kBf16Act = ActKind::F32;
inline constexpr bool kBiasedBytes = false;
inline constexpr Isa kIsa = Isa::Avx2;

struct PairWeights {
    VF even, odd;
};
struct PairInput {
    __m256 even, odd;
};
OCTAVO_INLINE PairWeights pair_weights(const uint8_t* p) {
    const Bytes v = load_bytes(p);
    const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000U));
    return {{_mm256_castsi256_ps(_mm256_slli_epi32(v.a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(v.b, 16))},
            {_mm256_castsi256_ps(_mm256_and_si256(v.a, high)), _mm256_castsi256_ps(_mm256_and_si256(v.b, high))}};
}
OCTAVO_INLINE PairInput pair_input(const uint8_t* row, int pair) {
    const float* x = reinterpret_cast<const float*>(row) + 2 * pair;
    return {_mm256_broadcast_ss(x), _mm256_broadcast_ss(x + 1)};
}
OCTAVO_INLINE PairInput pair_last(const uint8_t* row, int pair) {
    const float* x = reinterpret_cast<const float*>(row) + 2 * pair;
    return {_mm256_broadcast_ss(x), _mm256_setzero_ps()};
}
OCTAVO_INLINE VF pair_dot(const PairWeights& w, const PairInput& x, VF acc) {
    acc = {_mm256_fmadd_ps(w.even.a, x.even, acc.a), _mm256_fmadd_ps(w.even.b, x.even, acc.b)};
    return {_mm256_fmadd_ps(w.odd.a, x.odd, acc.a), _mm256_fmadd_ps(w.odd.b, x.odd, acc.b)};
}
// Rows of floats are used as they are on this instruction set.
OCTAVO_INLINE void store_bf16_pairs(const float*, int, uint8_t*) {}

inline constexpr size_t kPrefetchAhead = 512;
OCTAVO_INLINE void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

// Registers decide the tile: rows and panels whose accumulators stay in registers.
inline constexpr int kMaxRows = 4;
// Unpacking nibbles is an eighth of a tile of 4 rows.
inline constexpr bool kWidenNibbles = true;
constexpr int rows_for(Code) { return 4; }
constexpr int panels_for(int rows) { return rows == 1 ? 4 : 1; }
constexpr bool in_registers(int rows, int panels) { return rows * panels <= 2; }

}  // namespace
}  // namespace octavo::avx2
