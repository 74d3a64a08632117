#include "core/attention_plan.h"

#include "core/op.h"

namespace octavo {

namespace {

constexpr int kRun = 8;  // units that a thread takes at once, at most

}  // namespace

void AttentionPlan::make(const Step& step, const KVPool& pool, int threads) {
    units_.clear();
    pieces_.clear();
    first_piece_.clear();
    const int most = unit_positions(kind_.heads / pool.kv_heads);
    for (int s = 0; s < step.sequences(); ++s) {
        const int begin = step.offset(s);
        const int count = step.offset(s + 1) - begin;
        for (int head = 0; head < pool.kv_heads; ++head) {
            for (int at = 0; at < count; at += most) {
                const int positions = count - at < most ? count - at : most;
                units_.push_back({{nullptr, begin + at, positions, step.length(s) - count + at, head}, s});
            }
        }
    }
    if (threads == 1 || static_cast<int>(units_.size()) >= 4 * threads) return;
    const int rows = unit_rows(kind_.heads / pool.kv_heads);
    const size_t floats = attend_state_floats(rows, pool.head_size);
    bool many = false;
    for (size_t u = 0; u < units_.size(); ++u) {
        const AttendUnit& unit = units_[u].unit;
        const int seen = kind_.window == 0 || unit.first < kind_.window ? 0 : unit.first - kind_.window + 1;
        first_piece_.push_back(static_cast<int>(pieces_.size()));
        const int last = (unit.first + unit.count - 1) / kSplitKeys;
        for (int split = seen / kSplitKeys; split <= last; ++split)
            pieces_.push_back({static_cast<int>(u), split, pieces_.size() * floats});
        many = many || last > seen / kSplitKeys;
    }
    first_piece_.push_back(static_cast<int>(pieces_.size()));
    if (!many) {
        pieces_.clear();
        return;
    }
    if (states_.size() < pieces_.size() * floats) states_.resize(pieces_.size() * floats);
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
            c.kernels->attend_split(task, unit_of(c, piece.unit, group), piece.split, states_.data() + piece.state, scratch);
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
        const float* states = states_.data() + floats * static_cast<size_t>(splits.begin);
        c.kernels->attend_merge(task, unit_of(c, i, group), splits, states, floats, c.scratch[thread]);
    }
}

}  // namespace octavo
