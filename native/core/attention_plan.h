// Cuts one kind of attention of one step into units that threads take one by one. Computes no attention.
#pragma once

#include "core/buffer.h"
#include "core/step.h"
#include "core/step_kernels.h"

#include <atomic>
#include <cstddef>
#include <vector>

namespace octavo {

struct StepContext;

// Layers that share a plan: equal heads and window.
struct AttentionKind {
    int heads = 0;
    int window = 0;
    bool operator==(const AttentionKind&) const = default;
};

// Queries of a unit: enough to share each tile of keys, few enough to stay in the first caches.
inline constexpr int kUnitRows = 64;
constexpr int unit_positions(int group) { return group >= kUnitRows ? 1 : kUnitRows / group; }
constexpr int unit_rows(int group) { return group >= kUnitRows ? group : kUnitRows; }

class AttentionPlan {
public:
    explicit AttentionPlan(AttentionKind kind) : kind_(kind) {}

    const AttentionKind& kind() const { return kind_; }
    // Bytes of partial results that a step may need, its sequences being of at most `length` tokens.
    size_t most_bytes(const KVPool& pool, int length, int threads) const;
    size_t bytes() const { return states_.size(); }
    // Takes them now, so that no step has to.
    void reserve(const KVPool& pool, int length, int threads) { states_ = Buffer(most_bytes(pool, length, threads)); }
    // Where there are few units, long ones are cut at the splits and heads go their own ways, so that every thread has work.
    void make(const Step& step, const KVPool& pool, int threads);
    bool cut() const { return !pieces_.empty(); }
    // Takes part until nothing is left: of the first phase, and of the merging that follows when cut().
    void attend(const StepContext& c, const AttendTask& task, int group, int thread, std::atomic<int>& next);
    void merge(const StepContext& c, const AttendTask& task, int group, int thread, std::atomic<int>& next);

private:
    struct Piece {
        int unit;
        int split;
        size_t state;  // floats into states_
    };
    AttendUnit unit_of(const StepContext& c, int index, int group) const;

    struct Place {
        AttendUnit unit;
        int sequence;
    };
    void place_units(const Step& step, const KVPool& pool, int most_heads);
    void cut_at_splits(const KVPool& pool);

    AttentionKind kind_;
    std::vector<Place> units_;
    std::vector<Piece> pieces_;
    std::vector<int> first_piece_;  // of each unit, and the end
    float* states() const { return reinterpret_cast<float*>(states_.data()); }

    Buffer states_;
};

}  // namespace octavo
