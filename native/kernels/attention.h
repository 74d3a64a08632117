// Walks the keys of one unit of attention: fetches tiles through the block table, advances the running softmax of its
// queries tile by tile, merges the splits in order. Includer defines OCTAVO_NS.
//
// A query's result is a function of its position and its sequence alone: tiles and splits begin at fixed positions, a
// tile's weights come from the tile's own peak and the peaks before it, and keys are added one by one.
#pragma once

#include <utility>

namespace octavo::OCTAVO_NS {
namespace {

// How far ahead of its use memory is asked for a panel.
inline constexpr size_t kAheadBytes = 8192;

// All rows' running softmax.
struct State {
    float* peaks;
    float* sums;
    float* acc;

    State(float* at, int rows)
        : peaks(at), sums(at + padded(rows)), acc(at + padded(rows) + static_cast<ptrdiff_t>(rows) * kPanel) {}
    Running row(int r, int lda) const {
        return {peaks + r, sums + static_cast<ptrdiff_t>(r) * kPanel, acc + static_cast<ptrdiff_t>(r) * lda};
    }
    void clear(int rows, int lda) const {
        for (int r = 0; r < rows; ++r) peaks[r] = kMinusInfinity;
        std::memset(sums, 0, sizeof(float) * static_cast<size_t>(rows) * static_cast<size_t>(kPanel + lda));
    }
};

// Rows are the unit's queries: head by head of its KV heads, in each position by position, in each by head of the group.
class Unit {
public:
    // next: the unit that this thread attends to afterwards, or null.
    Unit(const AttendTask& task, const AttendUnit& unit, const AttendUnit* next, float* scratch)
        : t_(task), u_(unit), next_(next), group_(task.group()), head_rows_(unit.count * group_), rows_(head_rows_ * unit.kv_heads),
          size_(task.pool.head_size), lda_(padded(size_)) {
        spare_ = scratch;
        q_ = spare_ + 2 * attend_state_floats(rows_, size_);
        keys_ = q_ + static_cast<ptrdiff_t>(rows_) * lda_;
        values_ = keys_ + kTileKeys * lda_;
        scores_ = values_ + kTileKeys * lda_;
    }

    int rows() const { return rows_; }
    float* spare(int which) const { return spare_ + static_cast<size_t>(which) * attend_state_floats(rows_, size_); }
    Range splits() const { return {t_.first_seen(u_.first) / kSplitKeys, (u_.first + u_.count - 1) / kSplitKeys + 1}; }

    void take_queries() const {
        const VF factor = vf_set(query_factor(t_));
        for (int r = 0; r < rows_; ++r) {
            const float* from = t_.q.row(u_.row + place(r)) + head(r) * size_;
            float* to = q_ + static_cast<ptrdiff_t>(r) * lda_;
            for (int d = 0; d < size_; d += kPanel) store_some(to + d, load_some(from + d, size_ - d) * factor, size_ - d);
        }
    }

    void run_split(int split, const State& state) {
        state.clear(rows_, lda_);
        const int seen = t_.first_seen(u_.first);
        const int last = u_.first + u_.count;
        const int from = split * kSplitKeys > seen ? split * kSplitKeys : seen;
        const int end = (split + 1) * kSplitKeys < last ? (split + 1) * kSplitKeys : last;
        const int first = from / kTileKeys * kTileKeys;
        if (t_.pool.direct()) here_ = list(u_, {from, first + kTileKeys < end ? first + kTileKeys : end}, orders_[0]);
        for (int base = first; base < end; base += kTileKeys) {
            const Range keys{base > from ? base : from, base + kTileKeys < end ? base + kTileKeys : end};
            if (!t_.pool.direct()) {
                for (int h = 0; h < u_.kv_heads; ++h) run_head<false>(widen(base, keys, u_.kv_head + h), h, state);
                continue;
            }
            look_ahead(base + kTileKeys, last);
            int taken = 0;
            for (int h = 0; h < u_.kv_heads; ++h) {
                const Tile tile = point(base, keys, taken);
                if (t_.pool.bf16) run_head<true>(tile, h, state);
                else run_head<false>(tile, h, state);
            }
            std::swap(orders_[0], orders_[1]);
            here_ = ahead_;
        }
    }

    // a = a and then b. Rows that saw nothing leave the other as it is, to the bit.
    void merge(const State& a, const State& b) const {
        for (int r = 0; r < rows_; ++r) {
            const Running x = a.row(r, lda_);
            const Running y = b.row(r, lda_);
            if (*y.peak == kMinusInfinity) continue;
            if (*x.peak < *y.peak) {
                x.shrink(exp2_below_zero(*x.peak - *y.peak), lda_);
                *x.peak = *y.peak;
            }
            const VF factor = vf_set(exp2_below_zero(*y.peak - *x.peak));
            vf_store(x.sum, vf_fma(vf_load(y.sum), factor, vf_load(x.sum)));
            for (int d = 0; d < lda_; d += kPanel) vf_store(x.acc + d, vf_fma(vf_load(y.acc + d), factor, vf_load(x.acc + d)));
        }
    }

    void finish(const State& state) const {
        const bool unordered = t_.pool.direct() && t_.pool.bf16;
        for (int r = 0; r < rows_; ++r) {
            const Running run = state.row(r, lda_);
            float factor = 1.0F;
            float total = vf_sum_lanes(vf_load(run.sum));
            if (t_.sinks != nullptr) {
                const float sink = t_.sinks[head(r)] * kLog2E;
                const float peak = sink > *run.peak ? sink : *run.peak;
                factor = exp2_below_zero(*run.peak - peak);
                total = total * factor + exp2_below_zero(sink - peak);
            }
            float* out = t_.out.row(u_.row + place(r)) + head(r) * size_;
            for (int d = 0; d < size_; d += kPanel) {
                const VF v = vf_load(run.acc + d) * vf_set(factor) / vf_set(total);
                store_some(out + d, unordered ? vf_in_order(v) : v, size_ - d);
            }
        }
    }

private:
    // Of row r: its position's place in the unit, and its query head.
    int place(int r) const { return r % head_rows_ / group_; }
    int head(int r) const { return (u_.kv_head + r / head_rows_) * group_ + r % group_; }

    // The keys of the tile that a position sees.
    Range seen_by(int position, int base) const {
        const int lo = t_.first_seen(position) - base;
        const int hi = position + 1 - base;
        return {lo > 0 ? lo : 0, hi < kTileKeys ? hi : kTileKeys};
    }

    // All rows of one of the unit's KV heads. Only the first to read the tile fetch what comes after it.
    template <bool Half>
    void run_head(Tile tile, int h, const State& state) const {
        for (int r = 0; r < head_rows_;) {
            const int count = rows_at_once(head_rows_ - r);
            run_some<kQueryRows, Half>(tile, h * head_rows_ + r, count, state);
            if (r == 0) tile.look_at_itself();
            r += count;
        }
    }

    // `count` rows from r on, at most R of them.
    template <int R, bool Half>
    void run_some(const Tile& tile, int r, int count, const State& state) const {
        if constexpr (R > 1) {
            if (count < R) return run_some<R - 1, Half>(tile, r, count, state);
        }
        run_rows<R, Half>(tile, r, state);
    }

    template <int R, bool Half>
    void run_rows(const Tile& tile, int r0, const State& state) const {
        Range seen[R];
        Range any{kTileKeys, 0};   // keys that some row sees
        Range all{0, kTileKeys};   // keys that every row sees
        int position = u_.first + place(r0);
        int member = r0 % group_;
        RowNumbers rows[R];
        for (int i = 0; i < R; ++i) {
            rows[i] = {position, t_.slopes == nullptr ? 0.0F : t_.slopes[head(r0 + i)] * kLog2E};
            seen[i] = seen_by(position, tile.base);
            if (++member == group_) {
                member = 0;
                ++position;
            }
            if (seen[i].begin < seen[i].end && seen[i].begin < any.begin) any.begin = seen[i].begin;
            if (seen[i].begin < seen[i].end && seen[i].end > any.end) any.end = seen[i].end;
            if (seen[i].begin > all.begin) all.begin = seen[i].begin;
            if (seen[i].end < all.end) all.end = seen[i].end;
        }
        if (any.begin >= any.end) return;
        const Range panels{any.begin / kPanel, (any.end + kPanel - 1) / kPanel};
        score<R, Half>(q_ + static_cast<ptrdiff_t>(r0) * lda_, lda_, tile, panels, size_, scores_);
        // Row by row in two rounds, so that one row's chain of maxima and the next one's overlap.
        float tops[R];
        for (int i = 0; i < R; ++i) {
            if (seen[i].begin >= seen[i].end) continue;
            tops[i] = settle(t_, rows[i], tile.base, seen[i], scores_ + i * kTileKeys);
        }
        for (int i = 0; i < R; ++i) {
            if (seen[i].begin < seen[i].end) weigh(tops[i], seen[i], scores_ + i * kTileKeys, state.row(r0 + i, lda_), lda_);
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

    // The panels that hold `keys` of all the unit's heads, in the order in which they are read: head by head, of each the
    // keys and then the values. How many they are.
    int list(const AttendUnit& u, Range keys, const uint8_t** to) const {
        const KVPool& pool = t_.pool;
        int64_t blocks[kTilePanels];
        size_t offsets[kTilePanels];
        int count = 0;
        for (int position = keys.begin / kPanel * kPanel; position < keys.end; position += kPanel, ++count) {
            const int place = position / pool.block_size;
            blocks[count] = u.table[place];
            offsets[count] = static_cast<size_t>(position - place * pool.block_size) * static_cast<size_t>(size_) * pool.value_bytes();
        }
        for (int h = u.kv_head; h < u.kv_head + u.kv_heads; ++h) {
            for (int p = 0; p < count; ++p) *to++ = pool.keys(blocks[p], t_.layer, h) + offsets[p];
            for (int p = 0; p < count; ++p) *to++ = pool.values(blocks[p], t_.layer, h) + offsets[p];
        }
        return 2 * count * u.kv_heads;
    }

    // Lists what is read after this tile: the sequence's next one, or the first of the next unit.
    void look_ahead(int base, int last) {
        ahead_ = 0;
        if (base < last) {
            ahead_ = list(u_, {base, base + kTileKeys < last ? base + kTileKeys : last}, orders_[1]);
        } else if (next_ != nullptr) {
            const int seen = t_.first_seen(next_->first);
            const int end = seen / kTileKeys * kTileKeys + kTileKeys;
            const int stop = next_->first + next_->count;
            ahead_ = list(*next_, {seen, end < stop ? end : stop}, orders_[1]);
        }
    }

    // The next head's tile where it lies. Beside each of its panels goes the one that is read some kilobytes later: soon
    // enough to be there in time, not so soon that the first cache has lost it again.
    Tile point(int base, Range keys, int& taken) const {
        Tile tile{};
        tile.stride = size_;
        tile.base = base;
        const Range panels{(keys.begin - base) / kPanel, (keys.end - base + kPanel - 1) / kPanel};
        const int distance = static_cast<int>(kAheadBytes / panel_bytes());
        for (int plane = 0; plane < 2; ++plane) {
            for (int p = panels.begin; p < panels.end; ++p, ++taken) {
                const int then = taken + (distance > 0 ? distance : 1);
                const uint8_t* panel = orders_[0][taken];
                const uint8_t* later = then < here_ ? orders_[0][then] : then - here_ < ahead_ ? orders_[1][then - here_] : panel;
                (plane == 0 ? tile.keys : tile.values)[p] = panel;
                (plane == 0 ? tile.keys_ahead : tile.values_ahead)[p] = later;
            }
        }
        return tile;
    }

    size_t panel_bytes() const { return static_cast<size_t>(kPanel) * static_cast<size_t>(size_) * t_.pool.value_bytes(); }
    // A copy of one head's tile as floats, key by key, of any block and head size.
    Tile widen(int base, Range keys, int kv_head) const {
        Tile tile{};
        tile.stride = lda_;
        tile.base = base;
        for (int p = 0; p < kTilePanels; ++p) {
            tile.keys[p] = reinterpret_cast<const uint8_t*>(keys_ + p * kPanel * size_);
            tile.values[p] = reinterpret_cast<const uint8_t*>(values_ + p * kPanel * lda_);
        }
        tile.look_at_itself();
        for (int position = keys.begin; position < keys.end; ++position) widen_key(position, position - base, kv_head);
        return tile;
    }

    void widen_key(int position, int place, int kv_head) const {
        const KVPool& pool = t_.pool;
        const int64_t block = u_.table[position / pool.block_size];
        const int offset = position % pool.block_size;
        const uint8_t* keys = pool.keys(block, t_.layer, kv_head);
        const uint8_t* values = pool.values(block, t_.layer, kv_head);
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
    int group_;
    int head_rows_;  // of one KV head
    int rows_;
    int size_;
    int lda_;
    float* spare_;
    float* q_;
    float* keys_;
    float* values_;
    float* scores_;
    const uint8_t* lists_[2][2 * kTilePanels * kUnitHeads];
    const uint8_t** orders_[2] = {lists_[0], lists_[1]};  // of the tile that is read and of the one after it
    int here_ = 0;                                       // panels of the one, of the other
    int ahead_ = 0;
};

void attend_one(const AttendTask& task, const AttendUnit& unit, const AttendUnit* next, float* scratch) {
    Unit u(task, unit, next, scratch);
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
    Unit u(task, unit, nullptr, scratch);
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
