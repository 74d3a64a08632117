// The inner tiles of a linear layer: R rows x P panels over a range of groups. Written once for every instruction set:
// the includer defines OCTAVO_NS and has included its simd header.
//
// Every tile does for one output of one row exactly the same operations in the same order, whatever R and P are: exact
// integer sums inside a group, then one fused multiply-add a group, groups in order. That is what makes a row's bits
// independent of the rows beside it, and why accumulators may leave registers between groups or blocks of k.
#pragma once

namespace octavo::OCTAVO_NS {
namespace {

// Sums of a tile's rows while k advances: row r's begin at data + r * stride, panel after panel.
struct Sums {
    float* data;
    int stride;

    OCTAVO_INLINE float* at(int row, int panel) const { return data + row * stride + panel * kPanel; }
};

// Pointers into the packed activation row: codes, scales, sums.
struct ActRows {
    const uint8_t* base;
    size_t stride;
    int k;
    int groups;
};

OCTAVO_INLINE float load_float(const uint8_t* p) {
    float v;
    std::memcpy(&v, p, 4);
    return v;
}
OCTAVO_INLINE int32_t load_int(const uint8_t* p) {
    int32_t v;
    std::memcpy(&v, p, 4);
    return v;
}

template <Format F>
OCTAVO_INLINE VF load_scale(const uint8_t* p) {
    if constexpr (info(F).scale_bytes == 2) return vf_load_f16(p);
    else return vf_load_f32(p);
}

// Codes that are signed and stored biased (AVX-512) carry the bias as their zero.
template <Format F>
constexpr int zero_of() {
    return info(F).code == Code::S8 && kBiasedBytes ? 128 : info(F).zero;
}

// 4-bit codes of a group, unpacked for many rows to read: a byte each and float scales, as the 5-bit formats lie.
template <Format F>
inline constexpr bool kNibbles = info(F).code == Code::U4;
template <Format F>
constexpr size_t wide_code_bytes() {
    return size_t{kPanel} * info(F).group;
}
template <Format F>
constexpr size_t wide_group_bytes() {
    return wide_code_bytes<F>() + sizeof(float) * kPanel * (info(F).has_min ? 2 : 1);
}

template <Format F>
void widen(const uint8_t* from, int count, uint8_t* to) {
    constexpr int kHalf = info(F).group / 8;
    for (int g = 0; g < count; ++g) {
OCTAVO_UNROLL(4)
        for (int j = 0; j < kHalf; ++j) {
            const Bytes both = load_bytes(from + 64 * j);
            store_bytes(to + 64 * j, low_nibbles(both));
            store_bytes(to + 64 * (j + kHalf), high_nibbles(both));
        }
        const uint8_t* scales = from + group_code_bytes(F);
        float* wide = reinterpret_cast<float*>(to + wide_code_bytes<F>());
        vf_store(wide, load_scale<F>(scales));
        if constexpr (info(F).has_min) vf_store(wide + kPanel, load_scale<F>(scales + kPanel * info(F).scale_bytes));
        from += group_bytes(F);
        to += wide_group_bytes<F>();
    }
}

template <Format F, bool Wide, int R, int P, class Dot>
OCTAVO_INLINE void dot_group(const uint8_t* const (&w)[P], const uint8_t* const (&x)[R], Dot (&dot)[R][P]) {
    constexpr int kQuads = info(F).group / 4;
    if constexpr (kNibbles<F> && !Wide && R == 1) {
        // Panel by panel: the unpacked weights of all of them would not fit the registers.
        constexpr int kHalf = kQuads / 2;
OCTAVO_UNROLL(4)
        for (int j = 0; j < kHalf; ++j) {
            const Quad xl = quad(x[0] + 4 * j);
            const Quad xh = quad(x[0] + 4 * (j + kHalf));
OCTAVO_UNROLL(4)
            for (int p = 0; p < P; ++p) {
                const Bytes both = load_bytes(w[p] + 64 * j);
                dot[0][p].step(Dot::weights(low_nibbles(both)), xl, j == 0);
                dot[0][p].step(Dot::weights(high_nibbles(both)), xh, false);
            }
        }
        for (int p = 0; p < P; ++p) dot[0][p].settle(true);
    } else if constexpr (kNibbles<F> && !Wide) {
        constexpr int kHalf = kQuads / 2;
OCTAVO_UNROLL(4)
        for (int j = 0; j < kHalf; ++j) {
            typename Dot::Weights low[P], high[P];
            for (int p = 0; p < P; ++p) {
                const Bytes both = load_bytes(w[p] + 64 * j);
                low[p] = Dot::weights(low_nibbles(both));
                high[p] = Dot::weights(high_nibbles(both));
            }
OCTAVO_UNROLL(8)
            for (int r = 0; r < R; ++r) {
                const Quad xl = quad(x[r] + 4 * j);
                for (int p = 0; p < P; ++p) dot[r][p].step(low[p], xl, j == 0);
                const Quad xh = quad(x[r] + 4 * (j + kHalf));
                for (int p = 0; p < P; ++p) dot[r][p].step(high[p], xh, false);
            }
        }
        for (int r = 0; r < R; ++r)
            for (int p = 0; p < P; ++p) dot[r][p].settle(true);
    } else {
        constexpr int kBurst = Dot::kBurst < kQuads ? Dot::kBurst : kQuads;
OCTAVO_UNROLL(8)
        for (int b = 0; b < kQuads; b += kBurst) {
OCTAVO_UNROLL(8)
            for (int j = b; j < b + kBurst; ++j) {
                if constexpr (R == 1) {
                    const Quad xq = quad(x[0] + 4 * j);
OCTAVO_UNROLL(4)
                    for (int p = 0; p < P; ++p) {
                        dot[0][p].step(Dot::weights(load_bytes(w[p] + 64 * j)), xq, j == b);
                        if constexpr (kBurst == 1) dot[0][p].settle(b == 0);
                    }
                    continue;
                }
                typename Dot::Weights v[P];
                for (int p = 0; p < P; ++p) v[p] = Dot::weights(load_bytes(w[p] + 64 * j));
OCTAVO_UNROLL(8)
                for (int r = 0; r < R; ++r) {
                    const Quad xq = quad(x[r] + 4 * j);
                    for (int p = 0; p < P; ++p) {
                        dot[r][p].step(v[p], xq, j == b);
                        if constexpr (kBurst == 1) dot[r][p].settle(b == 0);
                    }
                }
            }
            if constexpr (kBurst > 1) {
                for (int r = 0; r < R; ++r)
                    for (int p = 0; p < P; ++p) dot[r][p].settle(b == 0);
            }
        }
    }
}

// sums[R][P panels] += groups [g0, g1) of P panels, which are given where group g0 begins.
template <Format F, bool Wide, int R, int P>
void tile_int(const uint8_t* const* panels, const ActRows& act, int g0, int g1, Sums sums) {
    using Dot = typename DotOf<info(F).code>::type;
    constexpr int kGroup = info(F).group;
    constexpr int kZero = zero_of<F>();
    constexpr bool kKeep = in_registers(R, P);
    constexpr size_t kStep = Wide ? wide_group_bytes<F>() : group_bytes(F);
    constexpr size_t kCodes = Wide ? wide_code_bytes<F>() : group_code_bytes(F);
    constexpr int kScale = Wide ? int{sizeof(float)} : info(F).scale_bytes;

    const uint8_t* w[P];
    const uint8_t* x[R];
    const uint8_t* s[R];
OCTAVO_UNROLL(4)
    for (int p = 0; p < P; ++p) w[p] = panels[p];
    for (int r = 0; r < R; ++r) {
        const uint8_t* row = act.base + act.stride * static_cast<size_t>(r);
        x[r] = row + kGroup * g0;
        s[r] = row + act.k + 4 * g0;
    }
    const size_t plane = 4 * static_cast<size_t>(act.groups);

    VF acc[R][P];
    if constexpr (kKeep) {
        for (int r = 0; r < R; ++r)
            for (int p = 0; p < P; ++p) acc[r][p] = vf_load(sums.at(r, p));
    }
    for (int g = g0; g < g1; ++g) {
        Dot dot[R][P];
        for (int r = 0; r < R; ++r)
            for (int p = 0; p < P; ++p) dot[r][p].start(kZero == 0 ? 0 : -kZero * load_int(s[r] + plane));
        dot_group<F, Wide, R, P, Dot>(w, x, dot);
OCTAVO_UNROLL(4)
        for (int p = 0; p < P; ++p) {
            const uint8_t* scales = w[p] + kCodes;
            const VF scale = Wide ? vf_load_f32(scales) : load_scale<F>(scales);
            VF min = vf_set(0.0F);
            if constexpr (info(F).has_min)
                min = Wide ? vf_load_f32(scales + kPanel * kScale) : load_scale<F>(scales + kPanel * kScale);
OCTAVO_UNROLL(8)
            for (int r = 0; r < R; ++r) {
                float* out = sums.at(r, p);
                VF a = kKeep ? acc[r][p] : vf_load(out);
                const VI sum = kZero == 0 ? dot[r][p].finish() : dot[r][p].finish(-kZero * load_int(s[r] + plane));
                a = vf_fma(scale * vf_set(load_float(s[r])), to_float(sum), a);
                if constexpr (info(F).has_min) a = vf_fma(min, vf_set(load_float(s[r] + 2 * plane)), a);
                if constexpr (kKeep) acc[r][p] = a;
                else vf_store(out, a);
            }
        }
OCTAVO_UNROLL(4)
        for (int p = 0; p < P; ++p) {
            if constexpr (R <= 2) {
OCTAVO_UNROLL(8)
                for (size_t line = 0; line < kStep; line += 64) prefetch(w[p] + kPrefetchAhead + line);
            }
            w[p] += kStep;
        }
        for (int r = 0; r < R; ++r) {
            x[r] += kGroup;
            s[r] += 4;
        }
    }
    if constexpr (kKeep) {
        for (int r = 0; r < R; ++r)
            for (int p = 0; p < P; ++p) vf_store(sums.at(r, p), acc[r][p]);
    }
}

// f32: units are single k; bf16: pairs of k, the last of which may be half.
template <Format F, int R, int P>
void tile_float(const uint8_t* const* panels, const ActRows& act, int u0, int u1, Sums sums) {
    constexpr size_t kStep = group_bytes(F);
    VF acc[R][P];
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p) acc[r][p] = vf_load(sums.at(r, p));
    const uint8_t* w[P];
    for (int p = 0; p < P; ++p) w[p] = panels[p];
    for (int u = u0; u < u1; ++u) {
        if constexpr (F == Format::BF16) {
            PairWeights v[P];
            for (int p = 0; p < P; ++p) v[p] = pair_weights(w[p]);
            const bool half = 2 * u + 1 == act.k;
OCTAVO_UNROLL(8)
            for (int r = 0; r < R; ++r) {
                const uint8_t* row = act.base + act.stride * static_cast<size_t>(r);
                const PairInput x = half ? pair_last(row, u) : pair_input(row, u);
                for (int p = 0; p < P; ++p) acc[r][p] = pair_dot(v[p], x, acc[r][p]);
            }
        } else {
            VF v[P];
            for (int p = 0; p < P; ++p) v[p] = vf_load_f32(w[p]);
OCTAVO_UNROLL(8)
            for (int r = 0; r < R; ++r) {
                const uint8_t* row = act.base + act.stride * static_cast<size_t>(r);
                const VF x = vf_set(load_float(row + 4 * static_cast<size_t>(u)));
                for (int p = 0; p < P; ++p) acc[r][p] = vf_fma(v[p], x, acc[r][p]);
            }
        }
        for (int p = 0; p < P; ++p) {
            if constexpr (R <= 2) prefetch(w[p] + kPrefetchAhead);
            w[p] += kStep;
        }
    }
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p) vf_store(sums.at(r, p), acc[r][p]);
}

template <Format F, int R, int P>
OCTAVO_INLINE void tile(const uint8_t* const* panels, const ActRows& act, int g0, int g1, Sums sums) {
    if constexpr (info(F).code == Code::None) tile_float<F, R, P>(panels, act, g0, g1, sums);
    else tile_int<F, false, R, P>(panels, act, g0, g1, sums);
}

}  // namespace
}  // namespace octavo::OCTAVO_NS
