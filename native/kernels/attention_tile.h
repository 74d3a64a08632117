// Attention of a few query rows over one tile of keys: scores, weights and the weighted sum of values, in registers.
// Each row's arithmetic is the same whatever rows stand beside it. Includer defines OCTAVO_NS.
#pragma once

#include <cmath>
#include <limits>

namespace octavo::OCTAVO_NS {
namespace {

inline constexpr int kTilePanels = kTileKeys / kPanel;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// kTileKeys consecutive keys and values of one head, from position `base`. Panels of keys are [head_size, 16] floats, or
// [head_size / 2, 16, 2] bf16; each panel has its 16 rows of values, `stride` values apart. A panel of keys and one of values
// are equally long, and so is what lies `ahead`: what memory is asked for while each of them is read.
struct Tile {
    const uint8_t* keys[kTilePanels];
    const uint8_t* values[kTilePanels];
    const uint8_t* keys_ahead[kTilePanels];
    const uint8_t* values_ahead[kTilePanels];
    ptrdiff_t stride;
    int base;

    // Fetches nothing new.
    void look_at_itself() {
        for (int p = 0; p < kTilePanels; ++p) {
            keys_ahead[p] = keys[p];
            values_ahead[p] = values[p];
        }
    }
};

inline constexpr float kLog2E = 1.44269504088896341F;

// 2^x for x <= 0, to 2 ulp; exactly 1 at 0 and exactly 0 from -127 down. Not a number stays so. Adding 1.5 x 2^23 rounds x
// to an integer and leaves that in the low bits; the rest goes through a minimax polynomial with constant term 1.
OCTAVO_INLINE VF vf_exp2_below_zero(VF x) {
    x = vf_max(vf_set(-127.0F), x);
    const VF shifter = vf_set(12582912.0F);
    const VF n = x + shifter;
    const VF r = x - (n - shifter);
    VF p = vf_set(0x1.5bba14p-10F);
    p = vf_fma(p, r, vf_set(0x1.3cea88p-7F));
    p = vf_fma(p, r, vf_set(0x1.c6b752p-5F));
    p = vf_fma(p, r, vf_set(0x1.ebf9bcp-3F));
    p = vf_fma(p, r, vf_set(0x1.62e42ap-1F));
    p = vf_fma(p, r, vf_set(1.0F));
    return vf_times_pow2(p, n);
}

inline float exp2_below_zero(float x) {
    float lanes[kPanel];
    vf_store(lanes, vf_exp2_below_zero(vf_set(x)));
    return lanes[0];
}

// The same address, about which the compiler knows nothing: what is behind it is loaded again, which is cheaper than the
// register that would keep it.
template <class T>
OCTAVO_INLINE const T* afresh(const T* p) {
    asm volatile("" : "+r"(p));
    return p;
}

OCTAVO_INLINE void fetch_soon(const uint8_t* from, ptrdiff_t at) { __builtin_prefetch(from + at); }

// One dimension of 16 keys; of bf16 the first of the two that lie there.
template <bool Half>
OCTAVO_INLINE VF load_keys(const uint8_t* from) {
    if constexpr (Half) return vf_load_bf16_first(reinterpret_cast<const uint16_t*>(from));
    else return vf_load(reinterpret_cast<const float*>(from));
}

// q [R, ldq] . keys of P panels -> s [R, kTileKeys], dimension by dimension.
template <int R, int P, bool Half>
OCTAVO_INLINE void score_block(const float* q, int ldq, const Tile& tile, int panel, int size, float* s) {
    const uint8_t* keys[P];
    const uint8_t* ahead[P];
    VF acc[R][P];
    for (int p = 0; p < P; ++p) {
        keys[p] = tile.keys[panel + p];
        ahead[p] = tile.keys_ahead[panel + p];
        for (int r = 0; r < R; ++r) acc[r][p] = vf_set(0.0F);
    }
    // A line of each panel at a time: one dimension of floats, two of bf16.
    for (ptrdiff_t at = 0; size > 0; at += kLineBytes, size -= Half ? 2 : 1, q += Half ? 2 : 1) {
        for (int p = 0; p < P; ++p) {
            fetch_soon(ahead[p], at);
            const float* again = afresh(q);
            const VF k = load_keys<Half>(keys[p] + at);
            for (int r = 0; r < R; ++r) vf_pin(acc[r][p] = vf_fma(k, vf_broadcast(again + r * ldq), acc[r][p]));
            if constexpr (Half) {
                const VF odd = vf_load_bf16_second(reinterpret_cast<const uint16_t*>(afresh(keys[p]) + at));
                for (int r = 0; r < R; ++r) vf_pin(acc[r][p] = vf_fma(odd, vf_broadcast(again + r * ldq + 1), acc[r][p]));
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p) vf_store(s + r * kTileKeys + p * kPanel, acc[r][p]);
}

template <int R, bool Half>
void score(const float* q, int ldq, const Tile& tile, Range panels, int size, float* s) {
    constexpr int kAtOnce = score_panels(R);
    int p = panels.begin;
    if constexpr (kAtOnce > 1) {
        for (; p + kAtOnce <= panels.end; p += kAtOnce)
            score_block<R, kAtOnce, Half>(q, ldq, tile, p, size, s + p * kPanel);
    }
    for (; p < panels.end; ++p) score_block<R, 1, Half>(q, ldq, tile, p, size, s + p * kPanel);
}

// Values of bf16 come in the order of vf_load_bf16_unordered, and stay so until a row is finished.
template <bool Half>
OCTAVO_INLINE VF load_values(const uint8_t* from) {
    if constexpr (Half) return vf_load_bf16_unordered(reinterpret_cast<const uint16_t*>(from));
    else return vf_load(reinterpret_cast<const float*>(from));
}

// acc [R, lda] += weights [R, kTileKeys] . values, key by key, C vectors of the head from dimension d on.
template <int R, int C, bool Half>
OCTAVO_INLINE void mix_block(const float* weights, const Tile& tile, Range keys, int d, float* acc, int lda) {
    constexpr int kWidth = Half ? 2 : 4;  // bytes of a value
    constexpr int kVector = kPanel * kWidth;
    VF sum[R][C];
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) sum[r][c] = vf_load(acc + r * lda + d + c * kPanel);
    const ptrdiff_t row = tile.stride * kWidth;
    for (int panel = keys.begin / kPanel; panel * kPanel < keys.end; ++panel) {
        const int base = panel * kPanel;
        const int begin = base > keys.begin ? base : keys.begin;
        const int end = base + kPanel < keys.end ? base + kPanel : keys.end;
        const ptrdiff_t start = row * (begin - base) + d * kWidth;
        const uint8_t* from = tile.values[panel] + start;
        const uint8_t* ahead = tile.values_ahead[panel] + start;
        for (const float *w = weights + begin, *stop = weights + end; w != stop; ++w, from += row, ahead += row) {
            for (int c = 0; c < C; ++c) {
                if (c * kVector % kLineBytes == 0) fetch_soon(ahead, c * kVector);
                const VF v = load_values<Half>(from + c * kVector);
                const float* again = afresh(w);
                for (int r = 0; r < R; ++r) sum[r][c] = vf_fma(v, vf_broadcast(again + r * kTileKeys), sum[r][c]);
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) vf_store(acc + r * lda + d + c * kPanel, sum[r][c]);
}

template <int R, bool Half>
void mix(const float* weights, const Tile& tile, Range keys, float* acc, int lda) {
    constexpr int kAtOnce = mix_vectors(R);
    int d = 0;
    if constexpr (kAtOnce > 1) {
        for (; d + kAtOnce * kPanel <= lda; d += kAtOnce * kPanel) mix_block<R, kAtOnce, Half>(weights, tile, keys, d, acc, lda);
    }
    for (; d < lda; d += kPanel) mix_block<R, 1, Half>(weights, tile, keys, d, acc, lda);
}

// One query's running softmax, in powers of two. While it has seen no key its peak is minus infinity and all else is 0.
struct Running {
    float* peak;
    float* sum;  // [kPanel], by lane
    float* acc;  // [lda]

    void shrink(float factor, int lda) const {
        const VF f = vf_set(factor);
        vf_store(sum, vf_load(sum) * f);
        for (int d = 0; d < lda; d += kPanel) vf_store(acc + d, vf_load(acc + d) * f);
    }
};

// What one query has of its own. slope: of ALiBi, times log2 e.
struct RowNumbers {
    int position;
    float slope;
};

// Queries are multiplied by this before their products with keys. Scores are in units of log2 e, so that the exponential is
// a power of two; before a softcap they are in units of the cap.
inline float query_factor(const AttendTask& t) { return t.softcap > 0.0F ? t.scale / t.softcap : t.scale * kLog2E; }

// Raw scores of a row's keys [seen) made final: cap, distance, and minus infinity in the other lanes of their panels. The
// largest of them.
OCTAVO_INLINE float settle(const AttendTask& t, const RowNumbers& row, int base, Range seen, float* s) {
    const bool plain = t.softcap <= 0.0F && t.slopes == nullptr;
    VF top = vf_set(kMinusInfinity);
    for (int at = seen.begin / kPanel * kPanel; at < seen.end; at += kPanel) {
        VF x = vf_load(s + at);
        const bool whole = at >= seen.begin && at + kPanel <= seen.end;
        if (!plain || !whole) {
            if (t.softcap > 0.0F) x = vf_set(t.softcap * kLog2E) * vf_tanh(x);
            if (t.slopes != nullptr) x = vf_fma(vf_set(row.slope), vf_count(base + at - row.position), x);
            if (!whole) x = vf_keep(x, seen.begin - at, seen.end - at, kMinusInfinity);
            vf_store(s + at, x);
        }
        top = vf_max(x, top);
    }
    return vf_max_lane(top);
}

// Final scores to weights in place, and what was summed before brought to the new peak.
OCTAVO_INLINE void weigh(float here, Range seen, float* s, const Running& run, int lda) {
    if (here > *run.peak) {
        run.shrink(exp2_below_zero(*run.peak - here), lda);
        *run.peak = here;
    }
    const VF peak = vf_set(*run.peak);
    VF sum = vf_load(run.sum);
    for (int at = seen.begin / kPanel * kPanel; at < seen.end; at += kPanel) {
        const VF w = vf_exp2_below_zero(vf_load(s + at) - peak);
        vf_store(s + at, w);
        sum = sum + w;
    }
    vf_store(run.sum, sum);
}

}  // namespace
}  // namespace octavo::OCTAVO_NS
