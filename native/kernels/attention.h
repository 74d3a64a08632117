// Walks the keys of one unit of attention: fetches tiles through the block table, advances the running softmax of its
// queries tile by tile, merges the splits in order. Includer defines OCTAVO_NS.
//
// A query's result is a function of its position and its sequence alone: tiles and splits begin at fixed positions, a
// tile's weights come from the tile's own peak and the peaks before it, and keys are added one by one.
#pragma once

namespace octavo::OCTAVO_NS {
namespace {

// Queries up to which bf16 is widened in registers; more queries share one widened copy of the tile.
inline constexpr int kDirectRows = 8;

// All rows' running softmax, and scratch.
struct State {
    float* peaks;
    float* sums;
    float* acc;

    State(float* at, int rows) : peaks(at), sums(at + padded(rows)), acc(at + 2 * padded(rows)) {}
    Running row(int r, int lda) const { return {peaks + r, sums + r, acc + static_cast<ptrdiff_t>(r) * lda}; }
    void clear(int rows, int lda) const {
        std::memset(sums, 0, sizeof(float) * static_cast<size_t>(rows));
        std::memset(acc, 0, sizeof(float) * static_cast<size_t>(rows) * static_cast<size_t>(lda));
    }
};

class Unit {
public:
    // next: the unit that this thread attends to afterwards, or null.
    Unit(const AttendTask& task, const AttendUnit& unit, const AttendUnit* next, float* scratch)
        : t_(task), u_(unit), next_(next), rows_(unit.count * task.group()), size_(task.pool.head_size), lda_(padded(size_)) {
        spare_ = scratch;
        q_ = spare_ + 2 * attend_state_floats(rows_, size_);
        keys_ = q_ + static_cast<ptrdiff_t>(rows_) * lda_;
        values_ = keys_ + kTileKeys * lda_;
        scores_ = values_ + kTileKeys * lda_;
    }

    int rows() const { return rows_; }
    float* spare(int which) const { return spare_ + static_cast<size_t>(which) * attend_state_floats(rows_, size_); }
    Range splits() const { return {t_.first_seen(u_.first) / kSplitKeys, (u_.first + u_.count - 1) / kSplitKeys + 1}; }

    // Queries times scale, one row for each (position, head of the group).
    void take_queries() const {
        const int group = t_.group();
        for (int r = 0; r < rows_; ++r) {
            const float* from = t_.q.row(u_.row + r / group) + (u_.kv_head * group + r % group) * size_;
            float* to = q_ + static_cast<ptrdiff_t>(r) * lda_;
            for (int d = 0; d < size_; d += kPanel)
                store_some(to + d, load_some(from + d, size_ - d) * vf_set(t_.scale), size_ - d);
        }
    }

    void run_split(int split, const State& state) const {
        state.clear(rows_, lda_);
        const int seen = t_.first_seen(u_.first);
        const int last = u_.first + u_.count;
        const int from = split * kSplitKeys > seen ? split * kSplitKeys : seen;
        const int end = (split + 1) * kSplitKeys < last ? (split + 1) * kSplitKeys : last;
        for (int base = from / kTileKeys * kTileKeys; base < end; base += kTileKeys) {
            const Range keys{base > from ? base : from, base + kTileKeys < end ? base + kTileKeys : end};
            if (t_.pool.direct() && (!t_.pool.bf16 || rows_ <= kDirectRows)) {
                Tile tile = point(base, keys);
                look_ahead(tile, base + kTileKeys, end, last);
                if (t_.pool.bf16) run_tile<true>(tile, state);
                else run_tile<false>(tile, state);
            } else {
                run_tile<false>(widen(base, keys), state);
            }
        }
    }

    // a = a and then b. Rows that saw nothing leave the other as it is, to the bit.
    void merge(const State& a, const State& b) const {
        for (int r = 0; r < rows_; ++r) {
            const Running x = a.row(r, lda_);
            const Running y = b.row(r, lda_);
            if (*y.sum == 0.0F) continue;
            const bool first = *x.sum == 0.0F;
            const float peak = first || *y.peak > *x.peak ? *y.peak : *x.peak;
            const float fx = first ? 0.0F : exp_below_zero(*x.peak - peak);
            const float fy = exp_below_zero(*y.peak - peak);
            *x.sum = first ? *y.sum : *x.sum * fx + *y.sum * fy;
            *x.peak = peak;
            for (int d = 0; d < lda_; d += kPanel) {
                const VF v = vf_load(y.acc + d);
                vf_store(x.acc + d, first ? v : vf_load(x.acc + d) * vf_set(fx) + v * vf_set(fy));
            }
        }
    }

    void finish(const State& state) const {
        const int group = t_.group();
        for (int r = 0; r < rows_; ++r) {
            const Running run = state.row(r, lda_);
            const int head = u_.kv_head * group + r % group;
            float factor = 1.0F;
            float total = *run.sum;
            if (t_.sinks != nullptr) {
                const float sink = t_.sinks[head];
                const float peak = sink > *run.peak ? sink : *run.peak;
                factor = exp_below_zero(*run.peak - peak);
                total = total * factor + exp_below_zero(sink - peak);
            }
            float* out = t_.out.row(u_.row + r / group) + head * size_;
            for (int d = 0; d < size_; d += kPanel)
                store_some(out + d, vf_load(run.acc + d) * vf_set(factor) / vf_set(total), size_ - d);
        }
    }

private:
    // The keys of the tile that row r sees.
    Range seen_by(int r, int base) const {
        const int position = u_.first + r / t_.group();
        const int lo = t_.first_seen(position) - base;
        const int hi = position + 1 - base;
        return {lo > 0 ? lo : 0, hi < kTileKeys ? hi : kTileKeys};
    }

    template <bool Half>
    void run_tile(const Tile& tile, const State& state) const {
        for (int r = 0; r < rows_; r += kQueryRows) run_some<kQueryRows, Half>(tile, r, rows_ - r, state);
    }

    // Rows r to r + left - 1, at most R of them.
    template <int R, bool Half>
    void run_some(const Tile& tile, int r, int left, const State& state) const {
        if constexpr (R > 1) {
            if (left < R) return run_some<R - 1, Half>(tile, r, left, state);
        }
        run_rows<R, Half>(tile, r, state);
    }

    template <int R, bool Half>
    void run_rows(const Tile& tile, int r0, const State& state) const {
        Range seen[R];
        Range any{kTileKeys, 0};   // keys that some row sees
        Range all{0, kTileKeys};   // keys that every row sees
        for (int i = 0; i < R; ++i) {
            seen[i] = seen_by(r0 + i, tile.base);
            if (seen[i].begin < seen[i].end && seen[i].begin < any.begin) any.begin = seen[i].begin;
            if (seen[i].begin < seen[i].end && seen[i].end > any.end) any.end = seen[i].end;
            if (seen[i].begin > all.begin) all.begin = seen[i].begin;
            if (seen[i].end < all.end) all.end = seen[i].end;
        }
        if (any.begin >= any.end) return;
        const Range panels{any.begin / kPanel, (any.end + kPanel - 1) / kPanel};
        score<R, Half>(q_ + static_cast<ptrdiff_t>(r0) * lda_, lda_, tile, panels, size_, scores_);
        for (int i = 0; i < R; ++i) {
            if (seen[i].begin >= seen[i].end) continue;
            const int r = r0 + i;
            const RowNumbers row{u_.first + r / t_.group(),
                                 t_.slopes == nullptr ? 0.0F : t_.slopes[u_.kv_head * t_.group() + r % t_.group()]};
            weigh(t_, row, tile.base, seen[i], scores_ + i * kTileKeys, state.row(r, lda_), lda_);
        }
        float* acc = state.row(r0, lda_).acc;
        if (all.begin >= all.end) all = {0, 0};
        // Keys that only some of the rows see are added row by row, before and after those that all see.
        for (int i = 0; i < R; ++i) {
            const Range before{seen[i].begin, all.end == 0 ? seen[i].end : all.begin};
            if (before.begin < before.end)
                mix<1, Half>(scores_ + i * kTileKeys, tile, before, acc + static_cast<ptrdiff_t>(i) * lda_, lda_);
        }
        if (all.end == 0) return;
        mix<R, Half>(scores_, tile, all, acc, lda_);
        for (int i = 0; i < R; ++i) {
            if (all.end < seen[i].end)
                mix<1, Half>(scores_ + i * kTileKeys, tile, {all.end, seen[i].end}, acc + static_cast<ptrdiff_t>(i) * lda_, lda_);
        }
    }

    // The tile where it lies.
    Tile point(int base, Range keys) const {
        const KVPool& pool = t_.pool;
        Tile tile{};
        tile.stride = size_;
        tile.base = base;
        for (int p = 0; p < kTilePanels; ++p) {
            const int position = base + p * kPanel;
            if (position + kPanel <= keys.begin || position >= keys.end) continue;
            const int64_t block = u_.table[position / pool.block_size];
            const size_t at = offset_in_block(position);
            tile.keys[p] = pool.keys(block, t_.layer, u_.kv_head) + at;
            tile.values[p] = pool.values(block, t_.layer, u_.kv_head) + at;
        }
        return tile;
    }

    // What is read after this tile: the sequence's next one, or the first of the next unit.
    void look_ahead(Tile& tile, int base, int end, int last) const {
        const bool more = base < end || end < last;
        const AttendUnit& u = more || next_ == nullptr ? u_ : *next_;
        if (!more) base = t_.first_seen(u.first) / kTileKeys * kTileKeys;
        const int stop = u.first + u.count;
        for (int p = 0; p < kTilePanels; ++p) {
            const int position = base + p * kPanel;
            if (position >= stop || position + kPanel <= t_.first_seen(u.first)) continue;
            const int64_t block = u.table[position / t_.pool.block_size];
            tile.next[p] = t_.pool.keys(block, t_.layer, u.kv_head) + offset_in_block(position);
        }
    }

    size_t offset_in_block(int position) const {
        return static_cast<size_t>(position % t_.pool.block_size) * static_cast<size_t>(size_) * t_.pool.value_bytes();
    }

    // A copy of the tile as floats.
    Tile widen(int base, Range keys) const {
        Tile tile{};
        tile.stride = lda_;
        tile.base = base;
        for (int p = 0; p < kTilePanels; ++p) {
            tile.keys[p] = keys_ + p * kPanel * size_;
            tile.values[p] = values_ + p * kPanel * lda_;
        }
        if (t_.pool.direct() && t_.pool.bf16) {
            widen_panels(point(base, keys), base, keys);
        } else {
            for (int position = keys.begin; position < keys.end; ++position) widen_key(position, position - base);
        }
        return tile;
    }

    void widen_panels(const Tile& from, int base, Range keys) const {
        for (int p = 0; p < kTilePanels; ++p) {
            if (from.keys[p] == nullptr) continue;
            const auto* k = static_cast<const uint16_t*>(from.keys[p]);
            const auto* v = static_cast<const uint16_t*>(from.values[p]);
            float* keys_to = keys_ + p * kPanel * size_;
            for (int d = 0; d < size_; d += 2) {
                const VF2 pair = vf_load_bf16_pairs(k + d * kPanel);
                vf_store(keys_to + d * kPanel, pair.even);
                vf_store(keys_to + (d + 1) * kPanel, pair.odd);
            }
            float* values_to = values_ + p * kPanel * lda_;
            const int live = keys.end - base - p * kPanel < kPanel ? keys.end - base - p * kPanel : kPanel;
            for (int i = 0; i < live * size_; i += kPanel) vf_store(values_to + i, vf_load_bf16(v + i));
        }
    }

    // One key at a time, of any block and head size.
    void widen_key(int position, int place) const {
        const KVPool& pool = t_.pool;
        const int64_t block = u_.table[position / pool.block_size];
        const int offset = position % pool.block_size;
        const uint8_t* keys = pool.keys(block, t_.layer, u_.kv_head);
        const uint8_t* values = pool.values(block, t_.layer, u_.kv_head);
        const size_t stride = pool.key_stride();
        const size_t first = pool.key_index(offset, 0);
        const size_t row = static_cast<size_t>(offset) * static_cast<size_t>(size_);
        float* key_to = keys_ + place / kPanel * kPanel * size_ + place % kPanel;
        float* value_to = values_ + place * lda_;
        for (int d = 0; d < size_; ++d) {
            const auto dim = static_cast<size_t>(d);
            const size_t at = pool.paired() ? first + dim / 2 * stride + dim % 2 : first + dim * stride;
            key_to[d * kPanel] = number(keys, at);
            value_to[d] = number(values, row + dim);
        }
    }

    float number(const uint8_t* from, size_t at) const {
        float value;
        if (t_.pool.bf16) {
            uint16_t half;
            std::memcpy(&half, from + 2 * at, 2);
            const uint32_t bits = static_cast<uint32_t>(half) << 16;
            std::memcpy(&value, &bits, 4);
        } else {
            std::memcpy(&value, from + 4 * at, 4);
        }
        return value;
    }

    const AttendTask& t_;
    const AttendUnit& u_;
    const AttendUnit* next_;
    int rows_;
    int size_;
    int lda_;
    float* spare_;
    float* q_;
    float* keys_;
    float* values_;
    float* scores_;
};

void attend_one(const AttendTask& task, const AttendUnit& unit, const AttendUnit* next, float* scratch) {
    const Unit u(task, unit, next, scratch);
    const State all(u.spare(0), u.rows());
    const State part(u.spare(1), u.rows());
    u.take_queries();
    const Range splits = u.splits();
    u.run_split(splits.begin, all);
    for (int s = splits.begin + 1; s < splits.end; ++s) {
        u.run_split(s, part);
        u.merge(all, part);
    }
    u.finish(all);
}

void attend(const AttendTask& task, const AttendUnit* units, int count, float* scratch) {
    for (int i = 0; i < count; ++i) attend_one(task, units[i], i + 1 < count ? units + i + 1 : nullptr, scratch);
}

void attend_split(const AttendTask& task, const AttendUnit& unit, int split, float* state, float* scratch) {
    const Unit u(task, unit, nullptr, scratch);
    u.take_queries();
    u.run_split(split, State(state, u.rows()));
}

void attend_merge(const AttendTask& task, const AttendUnit& unit, Range splits, const float* states, size_t distance,
                  float* scratch) {
    const Unit u(task, unit, nullptr, scratch);
    const size_t floats = attend_state_floats(u.rows(), task.pool.head_size);
    const State all(u.spare(0), u.rows());
    std::memcpy(u.spare(0), states, sizeof(float) * floats);
    for (int s = splits.begin + 1; s < splits.end; ++s) {
        std::memcpy(u.spare(1), states + distance * static_cast<size_t>(s - splits.begin), sizeof(float) * floats);
        u.merge(all, State(u.spare(1), u.rows()));
    }
    u.finish(all);
}

}  // namespace
}  // namespace octavo::OCTAVO_NS
