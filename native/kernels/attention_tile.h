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
// [head_size / 2, 16, 2] bf16; each panel has its 16 rows of values, `stride` values apart. next: the keys that will be
// read after this tile. Panels of keys and of values are equally long, so that while one is read, a place in another that
// is wanted soon can be fetched: values while keys are, the next keys while values are.
struct Tile {
    const void* keys[kTilePanels];
    const void* values[kTilePanels];
    const void* next[kTilePanels];
    ptrdiff_t stride;
    int base;
};

// e^x for x <= 0, and 0 where that is less than e^-87.
OCTAVO_INLINE VF exp_below_zero(VF x) { return vf_zero_below(x, -87.0F, vf_exp(x)); }

inline float exp_below_zero(float x) {
    float lanes[kPanel];
    vf_store(lanes, exp_below_zero(vf_set(x)));
    return lanes[0];
}

// The same address, about which the compiler knows nothing: what is behind it is loaded again, which is cheaper than the
// register that would keep it.
template <class T>
OCTAVO_INLINE const T* afresh(const T* p) {
    asm volatile("" : "+r"(p));
    return p;
}

// A hint, also where nothing is.
OCTAVO_INLINE void fetch_soon(const uint16_t* from, ptrdiff_t at) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + sizeof(uint16_t) * static_cast<size_t>(at)));
}

// q [R, ldq] . keys of P panels -> s [R, kTileKeys], dimension by dimension.
template <int R, int P, bool Half>
OCTAVO_INLINE void score_block(const float* q, int ldq, const Tile& tile, int panel, int size, float* s) {
    const void* const* keys = tile.keys + panel;
    VF acc[R][P];
    for (auto& row : acc)
        for (VF& a : row) a = vf_set(0.0F);
    for (int d = 0; d < size; d += Half ? 2 : 1) {
        for (int p = 0; p < P; ++p) {
            if constexpr (Half) {
                const VF2 k = vf_load_bf16_pairs(static_cast<const uint16_t*>(keys[p]) + d * kPanel);
                fetch_soon(static_cast<const uint16_t*>(tile.values[panel + p]), d * kPanel);
                const float* again = afresh(q + d);
                for (int r = 0; r < R; ++r) acc[r][p] = vf_fma(k.even, vf_broadcast(again + r * ldq), acc[r][p]);
                for (int r = 0; r < R; ++r) acc[r][p] = vf_fma(k.odd, vf_broadcast(again + r * ldq + 1), acc[r][p]);
            } else {
                const VF k = vf_load(static_cast<const float*>(keys[p]) + d * kPanel);
                for (int r = 0; r < R; ++r) acc[r][p] = vf_fma(k, vf_broadcast(q + r * ldq + d), acc[r][p]);
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

template <bool Half>
OCTAVO_INLINE VF load_values(const void* from, ptrdiff_t at) {
    if constexpr (Half) return vf_load_bf16(static_cast<const uint16_t*>(from) + at);
    else return vf_load(static_cast<const float*>(from) + at);
}

// acc [R, lda] += weights [R, kTileKeys] . values, key by key, C vectors of the head from dimension d on.
template <int R, int C, bool Half>
OCTAVO_INLINE void mix_block(const float* weights, const Tile& tile, Range keys, int d, float* acc, int lda) {
    VF sum[R][C];
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) sum[r][c] = vf_load(acc + r * lda + d + c * kPanel);
    for (int panel = keys.begin / kPanel; panel * kPanel < keys.end; ++panel) {
        const int base = panel * kPanel;
        const int begin = base > keys.begin ? base : keys.begin;
        const int end = base + kPanel < keys.end ? base + kPanel : keys.end;
        ptrdiff_t at = tile.stride * (begin - base) + d;
        for (const float *w = weights + begin, *stop = weights + end; w != stop; ++w, at += tile.stride) {
            for (int c = 0; c < C; ++c) {
                const VF v = load_values<Half>(tile.values[panel], at + c * kPanel);
                if (Half && c % 2 == 0) fetch_soon(static_cast<const uint16_t*>(tile.next[panel]), at + c * kPanel);
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

// One query's running softmax.
struct Running {
    float* peak;
    float* sum;  // 0 while no key was seen
    float* acc;  // [lda]
};

struct RowNumbers {
    int position;
    float slope;
};

// Scores of keys [seen) of the tile to weights in place, and what was summed before brought to the new peak.
inline void weigh(const AttendTask& t, const RowNumbers& row, int base, Range seen, float* s, const Running& run, int lda) {
    const Range panels{seen.begin / kPanel, (seen.end + kPanel - 1) / kPanel};
    VF top = vf_set(kMinusInfinity);
    for (int p = panels.begin; p < panels.end; ++p) {
        const int at = p * kPanel;
        VF x = vf_load(s + at);
        if (t.softcap > 0.0F) x = vf_set(t.softcap) * vf_tanh(x / vf_set(t.softcap));
        if (t.slopes != nullptr) x = vf_fma(vf_set(row.slope), vf_count(base + at - row.position), x);
        if (at < seen.begin || at + kPanel > seen.end) x = vf_keep(x, seen.begin - at, seen.end - at, kMinusInfinity);
        vf_store(s + at, x);
        top = vf_max(x, top);
    }
    const float here = vf_max_lane(top);
    const float peak = *run.sum == 0.0F || here > *run.peak ? here : *run.peak;
    VF total = vf_set(0.0F);
    for (int p = panels.begin; p < panels.end; ++p) {
        const VF w = exp_below_zero(vf_load(s + p * kPanel) - vf_set(peak));
        vf_store(s + p * kPanel, w);
        total = total + w;
    }
    const float sum = vf_sum_lanes(total);
    if (*run.sum == 0.0F) {
        *run.sum = sum;
    } else if (peak == *run.peak) {
        *run.sum += sum;
    } else {
        const float shrink = exp_below_zero(*run.peak - peak);
        *run.sum = *run.sum * shrink + sum;
        for (int d = 0; d < lda; d += kPanel) vf_store(run.acc + d, vf_load(run.acc + d) * vf_set(shrink));
    }
    *run.peak = peak;
}

}  // namespace
}  // namespace octavo::OCTAVO_NS
