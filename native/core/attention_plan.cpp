#include "core/attention_plan.h"

#include "core/op.h"

#include <algorithm>

namespace octavo {

namespace {

constexpr int kRun = 8;      // units that a thread takes at once, at most
constexpr int kEnough = 8;   // units or pieces of a thread that keep all of them busy to the end
constexpr size_t kAhead = size_t{128} << 10;  // bytes of one tile of all heads of a unit: the next one is fetched meanwhile

// KV heads that a unit of `count` positions takes together. Their keys and values are neighbours in a block, and memory
// gives long runs faster than short ones.
int heads_together(const KVPool& pool, int rows) {
    const size_t tile = 2 * size_t{kTileKeys} * static_cast<size_t>(pool.head_size) * pool.value_bytes();
    const int most = std::min({kUnitHeads, pool.kv_heads, kUnitRows / rows, static_cast<int>(kAhead / tile)});
    return std::max(most, 1);
}

}  // namespace

void AttentionPlan::place_units(const Step& step, const KVPool& pool, int most_heads) {
    units_.clear();
    const int group = kind_.heads / pool.kv_heads;
    const int most = unit_positions(group);
    for (int s = 0; s < step.sequences(); ++s) {
        const int begin = step.offset(s);
        const int count = step.offset(s + 1) - begin;
        for (int at = 0; at < count; at += most) {
            const int positions = std::min(count - at, most);
            const int heads = std::min(most_heads, heads_together(pool, positions * group));
            for (int head = 0; head < pool.kv_heads; head += heads) {
                AttendUnit unit{nullptr, begin + at, positions, step.length(s) - count + at, head, std::min(heads, pool.kv_heads - head)};
                units_.push_back({unit, s});
            }
        }
    }
}

void AttentionPlan::cut_at_splits(const KVPool& pool) {
    pieces_.clear();
    first_piece_.clear();
    const size_t floats = attend_state_floats(unit_rows(kind_.heads / pool.kv_heads), pool.head_size);
    for (size_t u = 0; u < units_.size(); ++u) {
        const AttendUnit& unit = units_[u].unit;
        const int seen = kind_.window == 0 || unit.first < kind_.window ? 0 : unit.first - kind_.window + 1;
        first_piece_.push_back(static_cast<int>(pieces_.size()));
        const int last = (unit.first + unit.count - 1) / kSplitKeys;
        for (int split = seen / kSplitKeys; split <= last; ++split)
            pieces_.push_back({static_cast<int>(u), split, pieces_.size() * floats});
    }
    first_piece_.push_back(static_cast<int>(pieces_.size()));
    if (pieces_.size() == units_.size()) pieces_.clear();
    const size_t bytes = pieces_.size() * floats * sizeof(float);
    if (states_.size() < bytes) states_ = Buffer(bytes);
}

size_t AttentionPlan::most_bytes(const KVPool& pool, int length, int threads) const {
    const int group = kind_.heads / pool.kv_heads;
    const int seen = kind_.window == 0 ? length : std::min(length, kind_.window + unit_positions(group));
    // One more split than the keys fill: a window rarely begins at one.
    const int splits = length <= kSplitKeys ? 1 : (seen + kSplitKeys - 1) / kSplitKeys + (kind_.window == 0 ? 0 : 1);
    if (threads == 1 || splits == 1) return 0;
    const auto pieces = static_cast<size_t>(splits) * static_cast<size_t>(kEnough * threads - 1);
    return pieces * attend_state_floats(unit_rows(group), pool.head_size) * sizeof(float);
}

void AttentionPlan::make(const Step& step, const KVPool& pool, int threads) {
    const auto enough = static_cast<size_t>(kEnough * threads);
    pieces_.clear();
    place_units(step, pool, kUnitHeads);
    if (threads == 1 || units_.size() >= enough) return;
    cut_at_splits(pool);
    if (std::max(units_.size(), pieces_.size()) >= enough) return;
    place_units(step, pool, 1);
    if (units_.size() < enough) cut_at_splits(pool);
    else pieces_.clear();
}

AttendUnit AttentionPlan::unit_of(const StepContext& c, int index, int group) const {
    AttendUnit unit = units_[static_cast<size_t>(index)].unit;
    unit.table = c.step->table(group, units_[static_cast<size_t>(index)].sequence);
    return unit;
}

void AttentionPlan::attend(const StepContext& c, const AttendTask& task, int group, int thread, std::atomic<int>& next) {
    float* scratch = c.scratch[thread];
    if (cut()) {
        const int all = static_cast<int>(pieces_.size());
        for (int i = next.fetch_add(1, std::memory_order_relaxed); i < all; i = next.fetch_add(1, std::memory_order_relaxed)) {
            const Piece& piece = pieces_[static_cast<size_t>(i)];
            c.kernels->attend_split(task, unit_of(c, piece.unit, group), piece.split, states() + piece.state, scratch);
        }
        return;
    }
    // A few units at a time, so that each can fetch the beginning of the next; few enough that no thread is left waiting.
    const int all = static_cast<int>(units_.size());
    const int wanted = all / (8 * c.threads);
    const int run = wanted < 1 ? 1 : wanted < kRun ? wanted : kRun;
    AttendUnit units[kRun];
    for (int i = next.fetch_add(run, std::memory_order_relaxed); i < all; i = next.fetch_add(run, std::memory_order_relaxed)) {
        const int count = all - i < run ? all - i : run;
        for (int k = 0; k < count; ++k) units[k] = unit_of(c, i + k, group);
        c.kernels->attend(task, units, count, scratch);
    }
}

void AttentionPlan::merge(const StepContext& c, const AttendTask& task, int group, int thread, std::atomic<int>& next) {
    const int all = static_cast<int>(units_.size());
    const size_t floats = attend_state_floats(unit_rows(task.group()), task.pool.head_size);
    for (int i = next.fetch_add(1, std::memory_order_relaxed); i < all; i = next.fetch_add(1, std::memory_order_relaxed)) {
        const Range splits{first_piece_[static_cast<size_t>(i)], first_piece_[static_cast<size_t>(i) + 1]};
        const float* first = states() + floats * static_cast<size_t>(splits.begin);
        c.kernels->attend_merge(task, unit_of(c, i, group), splits, first, floats, c.scratch[thread]);
    }
}

}  // namespace octavo
