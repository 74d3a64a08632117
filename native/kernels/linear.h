// Walks the panels and rows of one linear task with the tiles, and applies what follows the product: bias, activation,
// gate, softcap, residual. Includer defines OCTAVO_NS.
#pragma once

namespace octavo::OCTAVO_NS {
namespace {

using TileFn1 = void (*)(const Weights<1>&, const ActRows&, int, int, float*);
using TileFn2 = void (*)(const Weights<2>&, const ActRows&, int, int, float*);

// One format's tiles, by rows. Two panels at once where that keeps the accumulators in registers.
struct TileSet {
    TileFn1 one[kMaxRows + 1];
    TileFn2 two[kMaxRows + 1];
    int max_rows;
};

template <Format F, int R>
constexpr void fill(TileSet& set) {
    if constexpr (R > 0) {
        set.one[R] = &tile<F, R, 1>;
        set.two[R] = panels_for(R) == 2 ? &tile<F, R, 2> : nullptr;
        fill<F, R - 1>(set);
    }
}

template <Format F>
constexpr TileSet tiles() {
    TileSet set{};
    set.max_rows = rows_for(info(F).code);
    fill<F, rows_for(info(F).code)>(set);
    return set;
}

const TileSet& tiles_of(Format f) {
    static constexpr TileSet kSets[kFormats] = {
        tiles<Format::F32>(),  tiles<Format::BF16>(), tiles<Format::Q4_0>(), tiles<Format::Q4_1>(),
        tiles<Format::Q4_K>(), tiles<Format::Q2_K>(), tiles<Format::Q3_K>(), tiles<Format::Q5_0>(),
        tiles<Format::Q5_1>(), tiles<Format::Q5_K>(), tiles<Format::Q6_K>(), tiles<Format::Q8_0>(),
    };
    return kSets[static_cast<int>(f)];
}

ActKind act_kind(Format f) {
    if (f == Format::F32) return ActKind::F32;
    if (f == Format::BF16) return kBf16Act;
    return info(f).group == 32 ? ActKind::Q8x32 : ActKind::Q8x16;
}

// Two columns of panels and what they read. For a gated task the first is gate and the second up.
struct Columns {
    const Operand* operand[2];
    int panel[2];
    int count;
};

// A block of rows keeps its accumulators here while k advances; 64 rows x 32 columns are 8 kB of first-level cache.
inline constexpr int kRowBlock = 64;
// Bytes of one panel that many rows read again and again: half of a first-level cache.
inline constexpr size_t kBlockBytes = 16384;

const uint8_t* panel_at(const Operand& w, int k, int panel) {
    return w.weight + panel_bytes(w.format, k) * static_cast<size_t>(panel);
}

// Rows [begin, end) of both columns, k in blocks that fit the first-level cache, into acc[row - begin][kTileColumns].
void accumulate(const Columns& c, int k, Range rows, float* acc) {
    const bool paired = c.count == 2 && c.operand[0]->format == c.operand[1]->format;
    for (int first = 0; first < c.count; first += paired ? 2 : 1) {
        const Operand& w = *c.operand[first];
        const TileSet& set = tiles_of(w.format);
        const int all = groups(w.format, k);
        const int count = rows.end - rows.begin;
        const int parts = (count + set.max_rows - 1) / set.max_rows;
        const int block = parts == 1 ? all : static_cast<int>(kBlockBytes / group_bytes(w.format)) + 1;
        for (int g0 = 0; g0 < all; g0 += block) {
            const int g1 = g0 + block < all ? g0 + block : all;
            for (int part = 0; part < parts; ++part) {
                const int r0 = count * part / parts;
                const int r1 = count * (part + 1) / parts;
                const ActRows act{w.act + w.act_stride * static_cast<size_t>(rows.begin + r0), w.act_stride, k, all};
                float* to = acc + r0 * kTileColumns + first * kPanel;
                const int r = r1 - r0;
                if (paired && set.two[r] != nullptr) {
                    set.two[r]({{panel_at(w, k, c.panel[0]), panel_at(*c.operand[1], k, c.panel[1])}}, act, g0, g1, to);
                    continue;
                }
                for (int p = 0; p < (paired ? 2 : 1); ++p) {
                    set.one[r]({{panel_at(*c.operand[first + p], k, c.panel[first + p])}}, act, g0, g1, to + p * kPanel);
                }
            }
        }
    }
}

// One panel of one row: bias, activation, softcap and residual on `value`, whose first `width` lanes are stored.
OCTAVO_INLINE void finish(const LinearTask& t, Activation activation, VF value, int row, int column, int width) {
    float* out = t.out + t.out_stride * row + column;
    const float* residual = t.residual == nullptr ? nullptr : t.residual + t.residual_stride * row + column;
    float lanes[kPanel] = {};
    if (t.bias != nullptr) {
        if (width < kPanel) std::memcpy(lanes, t.bias + column, sizeof(float) * static_cast<size_t>(width));
        value = value + vf_load(width < kPanel ? lanes : t.bias + column);
    }
    value = vf_activate(value, activation);
    if (t.softcap > 0.0F) value = vf_set(t.softcap) * vf_tanh(value / vf_set(t.softcap));
    if (residual != nullptr) {
        if (width < kPanel) std::memcpy(lanes, residual, sizeof(float) * static_cast<size_t>(width));
        value = vf_load(width < kPanel ? lanes : residual) + value;
    }
    if (width == kPanel) {
        vf_store(out, value);
    } else {
        vf_store(lanes, value);
        std::memcpy(out, lanes, sizeof(float) * static_cast<size_t>(width));
    }
}

int width_at(int n, int panel) { return n - panel * kPanel < kPanel ? n - panel * kPanel : kPanel; }

void linear(const LinearTask& t, Range rows, Range range) {
    alignas(64) float acc[kRowBlock * kTileColumns];
    const int step = t.gated ? 1 : 2;
    for (int r0 = rows.begin; r0 < rows.end; r0 += kRowBlock) {
        const int r1 = r0 + kRowBlock < rows.end ? r0 + kRowBlock : rows.end;
        for (int p = range.begin; p < range.end; p += step) {
            Columns c{{&t.w, t.gated ? &t.up : &t.w}, {p, t.gated ? p : p + 1}, t.gated || p + 1 < range.end ? 2 : 1};
            std::memset(acc, 0, sizeof(float) * static_cast<size_t>((r1 - r0) * kTileColumns));
            accumulate(c, t.k, {r0, r1}, acc);
            for (int r = r0; r < r1; ++r) {
                const float* a = acc + (r - r0) * kTileColumns;
                if (t.gated) {
                    const VF value = vf_activate(vf_load(a), t.activation) * vf_load(a + kPanel);
                    finish(t, Activation::None, value, r, p * kPanel, width_at(t.n, p));
                    continue;
                }
                for (int i = 0; i < c.count; ++i)
                    finish(t, t.activation, vf_load(a + i * kPanel), r, (p + i) * kPanel, width_at(t.n, p + i));
            }
        }
    }
}

const Kernels kTable{kIsa,
                     kBiasedBytes,
                     &act_kind,
                     &quantize,
                     &linear,
                     &peak_dot<Code::U4, false>,
                     &peak_dot<Code::S8, true>,
                     &peak_bf16,
                     &peak_f32};

}  // namespace

const Kernels& kernels();
const Kernels& kernels() { return kTable; }

}  // namespace octavo::OCTAVO_NS
