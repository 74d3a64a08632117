// The kernels of everything but products, one table an instruction set. Plain data and function pointers.
#pragma once

#include "core/kernels.h"
#include "core/kv_pool.h"
#include "core/sampling_kernels.h"

#include <cstddef>
#include <cstdint>

namespace octavo {

// Rows of floats, `stride` floats apart.
struct Rows {
    float* data = nullptr;
    ptrdiff_t stride = 0;
    float* row(int r) const { return data + stride * r; }
};

// out = residual + normalised x * weight + bias, over groups of `width` columns. layer: the mean is taken off first.
struct NormTask {
    Rows x, out, residual;  // residual.data may be null
    const float* weight = nullptr;
    const float* bias = nullptr;
    int width = 0;
    int groups = 0;
    float eps = 0.0F;
    bool layer = false;
};

// Turns pairs of each head. table: each row has `half` cosines, then `half` sines.
struct RopeTask {
    Rows x, out, table;
    int heads = 0;
    int head_size = 0;
    int half = 0;
    bool interleaved = false;
};

// One row's keys and values into its slot of one layer.
struct StoreTask {
    KVPool pool;
    int layer = 0;
    const int64_t* slots = nullptr;
    Rows k, v;
};

inline constexpr int kTileKeys = 64;    // keys of one step of the online softmax, from position 0
inline constexpr int kUnitHeads = 16;   // KV heads of a unit, at most
inline constexpr int kLineBytes = 64;   // of memory
inline constexpr int kSplitKeys = 512;  // keys of one partial result: a multiple of kTileKeys, from position 0

// Numbers of one layer's attention in one step.
struct AttendTask {
    KVPool pool;
    int layer = 0;
    int heads = 0;
    float scale = 1.0F;
    int window = 0;  // 0: no limit
    float softcap = 0.0F;
    const float* slopes = nullptr;
    const float* sinks = nullptr;
    Rows q, out;

    int group() const { return heads / pool.kv_heads; }
    // The first position that position p sees.
    int first_seen(int p) const { return window == 0 || p < window ? 0 : p - window + 1; }
};

// Consecutive positions of one sequence, all query heads of a few KV heads.
struct AttendUnit {
    const int32_t* table = nullptr;  // the sequence's blocks
    int row = 0;                     // of q and out, of the first position
    int count = 0;                   // positions
    int first = 0;                   // position of the first
    int kv_head = 0;                 // the first
    int kv_heads = 1;                // at most kUnitHeads
};

// Floats of one unit's state: per query a peak, a sum by lane and the mixed values.
constexpr int padded(int n) { return (n + kPanel - 1) / kPanel * kPanel; }
constexpr size_t attend_state_floats(int rows, int head_size) {
    return static_cast<size_t>(padded(rows)) + static_cast<size_t>(rows) * static_cast<size_t>(kPanel + padded(head_size));
}
// Floats of scratch that a thread needs for units of at most `rows` queries (positions times heads of the group).
constexpr size_t attend_scratch_floats(int rows, int head_size) {
    const auto d = static_cast<size_t>(padded(head_size));
    return 2 * attend_state_floats(rows, head_size) + static_cast<size_t>(rows) * d + 2 * kTileKeys * d + 8 * kTileKeys;
}

struct StepKernels {
    void (*norm)(const NormTask&, Range rows);
    void (*rope)(const RopeTask&, Range rows);
    void (*add)(const Rows& a, const Rows& b, const Rows& out, int columns, Range rows);
    void (*store)(const StoreTask&, Range rows);
    // `count` units, one after the other, from start to end. scratch: attend_scratch_floats.
    void (*attend)(const AttendTask&, const AttendUnit* units, int count, float* scratch);
    // The keys of one split only, into a state; and the states of the splits, in order and `distance` floats apart, to the
    // output.
    void (*attend_split)(const AttendTask&, const AttendUnit&, int split, float* state, float* scratch);
    void (*attend_merge)(const AttendTask&, const AttendUnit&, Range splits, const float* states, size_t distance,
                         float* scratch);
    // The place of the largest value, the first among equals; of some NaN where there is one.
    int32_t (*argmax)(const float* values, int count);
    SamplingKernels sampling;
};

// Those that go with kernels_for(isa), which must not be null.
const StepKernels& step_kernels(Isa isa);

}  // namespace octavo
