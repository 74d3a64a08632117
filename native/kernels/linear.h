// Walks the panels and rows of one linear task with the tiles, and applies what follows the product: bias, activation,
// gate, softcap, residual. Includer defines OCTAVO_NS.
#pragma once

namespace octavo::OCTAVO_NS {
namespace {

inline constexpr int kMaxPanels = 4;  // side by side

using TileFn = void (*)(const uint8_t* const*, const ActRows&, int, int, Sums);

// One format's tiles: by rows, and by panels side by side, of which there are 1, 2 or 4. Where unpacking first pays for many
// rows, also how to unpack groups, and the tiles of what that gives.
struct TileSet {
    TileFn one[kMaxRows + 1];
    TileFn two[kMaxRows + 1];
    TileFn four[kMaxRows + 1];
    TileFn wide[kMaxRows + 1];
    void (*widen)(const uint8_t*, int, uint8_t*);
    size_t wide_bytes;  // of a group
    int max_rows;
};

template <Format F, int R>
constexpr void fill(TileSet& set) {
    if constexpr (R > 0) {
        set.one[R] = &tile<F, R, 1>;
        if constexpr (panels_for(R) >= 2) set.two[R] = &tile<F, R, 2>;
        if constexpr (panels_for(R) >= 4) set.four[R] = &tile<F, R, 4>;
        if constexpr (kWidenNibbles && kNibbles<F>) set.wide[R] = &tile_int<F, true, R, 1>;
        fill<F, R - 1>(set);
    }
}

template <Format F>
constexpr TileSet tiles() {
    TileSet set{};
    set.max_rows = rows_for(info(F).code);
    fill<F, rows_for(info(F).code)>(set);
    if constexpr (kWidenNibbles && kNibbles<F>) {
        set.widen = &widen<F>;
        set.wide_bytes = wide_group_bytes<F>();
    }
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

// Panels side by side and what they read. For a gated task they are pairs of gate and up.
struct Columns {
    const Operand* operand[kMaxPanels];
    int panel[kMaxPanels];
    int count;
};

// A block of rows keeps its sums here while k advances; 64 rows x 32 columns are 8 kB of first-level cache.
inline constexpr int kRowBlock = 64;
// Bytes of one panel that many rows read again and again: half of a first-level cache.
inline constexpr size_t kBlockBytes = 16384;
// Parts of rows from which on it pays to unpack a block first, and to prefetch the next one.
inline constexpr int kManyParts = 4;

int parts_of(const TileSet& set, Range rows) { return (rows.end - rows.begin + set.max_rows - 1) / set.max_rows; }
bool widens(const TileSet& set, int parts) { return set.widen != nullptr && parts >= kManyParts; }

const uint8_t* panel_at(const Operand& w, int k, int panel) {
    return w.weight + panel_bytes(w.format, k) * static_cast<size_t>(panel);
}

// Panels side by side, all of one format and given where group g0 begins, for a few rows at once.
void run_tiles(const TileSet& set, const uint8_t* const* panels, int count, const ActRows& act, int rows, int g0, int g1,
               Sums sums) {
    for (int p = 0; p < count;) {
        const int left = count - p;
        const bool four = left >= 4 && set.four[rows] != nullptr;
        const bool two = left >= 2 && set.two[rows] != nullptr;
        const TileFn run = four ? set.four[rows] : two ? set.two[rows] : set.one[rows];
        run(panels + p, act, g0, g1, {sums.at(0, p), sums.stride});
        p += four ? 4 : two ? 2 : 1;
    }
}

// Rows of one tile after another over the same block of groups. The memory behind the block, which is read next, is
// prefetched meanwhile, a share in every part.
void run_block(const Operand& w, const uint8_t* const* panels, int count, Range rows, int k, int g0, int g1, Sums sums) {
    const TileSet& set = tiles_of(w.format);
    const int all = rows.end - rows.begin;
    const int parts = parts_of(set, rows);
    const bool wide = widens(set, parts);
    const size_t bytes = group_bytes(w.format) * static_cast<size_t>(g1 - g0);
    alignas(64) uint8_t memory[kBlockBytes];
    const uint8_t* unpacked = memory;
    if (wide) set.widen(panels[0], g1 - g0, memory);
    for (int part = 0; part < parts; ++part) {
        const int r0 = all * part / parts;
        const int r1 = all * (part + 1) / parts;
        const ActRows act{w.act + w.act_stride * static_cast<size_t>(rows.begin + r0), w.act_stride, k, groups(w.format, k)};
        const Sums to{sums.at(r0, 0), sums.stride};
        for (size_t at = bytes * part / parts / 64 * 64; parts >= kManyParts && at < bytes * (part + 1) / parts; at += 64)
            for (int p = 0; p < count; ++p) prefetch(panels[p] + bytes + at);
        if (wide) set.wide[r1 - r0](&unpacked, act, g0, g1, to);
        else run_tiles(set, panels, count, act, r1 - r0, g0, g1, to);
    }
}

// Rows [begin, end) of all columns, k in blocks that fit the first-level cache, into sums of row - begin.
void accumulate(const Columns& c, int k, Range rows, Sums sums) {
    for (int first = 0; first < c.count;) {
        const Operand& w = *c.operand[first];
        const TileSet& set = tiles_of(w.format);
        const int parts = parts_of(set, rows);
        const bool wide = widens(set, parts);
        int same = 1;
        while (!wide && first + same < c.count && c.operand[first + same]->format == w.format) ++same;
        const int all = groups(w.format, k);
        const int block = parts == 1 ? all : static_cast<int>(kBlockBytes / (wide ? set.wide_bytes : group_bytes(w.format)));
        for (int g0 = 0; g0 < all; g0 += block) {
            const int g1 = g0 + block < all ? g0 + block : all;
            const uint8_t* panels[kMaxPanels];
            for (int p = 0; p < same; ++p)
                panels[p] = panel_at(*c.operand[first + p], k, c.panel[first + p]) + group_bytes(w.format) * static_cast<size_t>(g0);
            run_block(w, panels, same, rows, k, g0, g1, {sums.at(0, first), sums.stride});
        }
        first += same;
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

// The finished columns of rows [begin, end).
void finish_columns(const LinearTask& t, const Columns& c, Range rows, Sums sums) {
    for (int r = rows.begin; r < rows.end; ++r) {
        for (int i = 0; i < c.count; i += t.gated ? 2 : 1) {
            const int p = c.panel[i];
            VF value = vf_load(sums.at(r - rows.begin, i));
            if (t.gated) value = vf_activate(value, t.activation) * vf_load(sums.at(r - rows.begin, i + 1));
            finish(t, t.gated ? Activation::None : t.activation, value, r, p * kPanel, width_at(t.n, p));
        }
    }
}

// A few rows are read at the speed of memory, and a core reads several streams at once much faster than one: the range is
// cut into as many equal parts as panels go side by side, and all parts advance together.
void linear(const LinearTask& t, Range rows, Range range) {
    alignas(64) float memory[kRowBlock * 2 * kPanel];
    const int each = t.gated ? 2 : 1;
    for (int r0 = rows.begin; r0 < rows.end; r0 += kRowBlock) {
        const int r1 = r0 + kRowBlock < rows.end ? r0 + kRowBlock : rows.end;
        const int side = panels_for(r1 - r0 < kMaxRows ? r1 - r0 : kMaxRows);
        const int streams = side > each ? side / each : 1;
        const int count = range.end - range.begin;
        const int longest = (count + streams - 1) / streams;
        const Sums sums{memory, streams * each * kPanel};
        for (int step = 0; step < longest; ++step) {
            Columns c;
            c.count = 0;
            for (int i = 0; i < streams; ++i) {
                const int begin = count * i / streams;
                if (begin + step >= count * (i + 1) / streams) continue;
                for (int e = 0; e < each; ++e) {
                    c.operand[c.count] = e == 0 ? &t.w : &t.up;
                    c.panel[c.count++] = range.begin + begin + step;
                }
            }
            std::memset(memory, 0, sizeof(float) * static_cast<size_t>((r1 - r0) * sums.stride));
            accumulate(c, t.k, {r0, r1}, sums);
            finish_columns(t, c, {r0, r1}, sums);
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
