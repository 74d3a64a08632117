#include "bench/attention.h"

#include "bench/limits.h"
#include "core/attention_plan.h"
#include "core/buffer.h"
#include "core/op.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

namespace octavo {

namespace {

// One step's inputs, pool and scratch, and the running of it.
class Rig {
public:
    Rig(const Kernels& kernels, ThreadPool& pool, const AttentionCase& what);
    void step();

private:
    void fill_pool();
    void take_step();
    void work(int thread);

    AttentionCase what_;
    ThreadPool& pool_;
    Buffer memory_;
    Buffer queries_, out_;
    std::vector<Buffer> scratch_;
    std::vector<float*> scratch_of_;
    std::vector<AttentionPlan> plan_;
    std::vector<std::atomic<int>> next_;
    Step step_;
    StepContext context_;
    AttendTask task_;
};

Rig::Rig(const Kernels& kernels, ThreadPool& pool, const AttentionCase& what)
    : what_(what), pool_(pool), next_(2 * static_cast<size_t>(what.layers)) {
    KVPool& kv = context_.pool;
    kv.layers = what.layers;
    kv.kv_heads = what.kv_heads;
    kv.block_size = what.block_size;
    kv.head_size = what.head_size;
    kv.bf16 = what.bf16;
    kv.num_blocks = what.sequences * ((what.context + what.block_size - 1) / what.block_size);
    memory_ = Buffer(kv.block_bytes() * static_cast<size_t>(kv.num_blocks));
    kv.data = memory_.data();
    fill_pool();
    take_step();
    const size_t columns = static_cast<size_t>(what.heads) * static_cast<size_t>(what.head_size);
    const size_t rows = static_cast<size_t>(what.sequences) * static_cast<size_t>(what.fresh);
    queries_ = Buffer(rows * columns * sizeof(float));
    out_ = Buffer(rows * columns * sizeof(float));
    std::mt19937 rng(2);
    std::normal_distribution<float> normal;
    auto* q = reinterpret_cast<float*>(queries_.data());
    for (size_t i = 0; i < rows * columns; ++i) q[i] = normal(rng);
    const size_t floats = attend_scratch_floats(unit_rows(what.heads / what.kv_heads), what.head_size);
    for (int t = 0; t < pool.threads(); ++t) {
        scratch_.emplace_back(floats * sizeof(float));
        std::memset(scratch_.back().data(), 0, scratch_.back().size());
        scratch_of_.push_back(reinterpret_cast<float*>(scratch_.back().data()));
    }
    plan_.emplace_back(AttentionKind{what.heads, what.window});
    context_.step = &step_;
    context_.kernels = &step_kernels(kernels.isa);
    context_.scratch = scratch_of_.data();
    context_.plans = plan_.data();
    context_.threads = pool.threads();
    task_.pool = kv;
    task_.heads = what.heads;
    task_.scale = 0.125F;
    task_.window = what.window;
    task_.q = {q, static_cast<ptrdiff_t>(columns)};
    task_.out = {reinterpret_cast<float*>(out_.data()), static_cast<ptrdiff_t>(columns)};
}

// Finite numbers around zero: a few thousand random ones over and over.
void Rig::fill_pool() {
    std::vector<uint8_t> pattern(size_t{1} << 16);
    std::mt19937 rng(1);
    const size_t width = context_.pool.value_bytes();
    for (size_t at = 0; at < pattern.size(); at += width) {
        const uint32_t bits = 0x3f000000U | (rng() & 0x80ff0000U);
        std::memcpy(&pattern[at], reinterpret_cast<const uint8_t*>(&bits) + 4 - width, width);
    }
    for (size_t at = 0; at < memory_.size(); at += pattern.size())
        std::memcpy(memory_.data() + at, pattern.data(), std::min(pattern.size(), memory_.size() - at));
}

void Rig::take_step() {
    const int sequences = what_.sequences;
    const int tokens = sequences * what_.fresh;
    std::vector<int32_t> ids(static_cast<size_t>(tokens)), positions(ids.size()), wanted;
    std::vector<int64_t> slots(ids.size());
    std::vector<int32_t> offsets(static_cast<size_t>(sequences) + 1), lengths(static_cast<size_t>(sequences), what_.context);
    for (size_t s = 0; s < offsets.size(); ++s) offsets[s] = static_cast<int32_t>(s) * what_.fresh;
    std::vector<int32_t> table(static_cast<size_t>(context_.pool.num_blocks));
    std::iota(table.begin(), table.end(), 0);
    if (what_.scattered) std::shuffle(table.begin(), table.end(), std::mt19937(3));
    StepArrays arrays;
    arrays.ids = ids.data();
    arrays.positions = positions.data();
    arrays.logit_rows = wanted.data();
    arrays.offsets = offsets.data();
    arrays.lengths = lengths.data();
    arrays.table = table.data();
    arrays.slots = slots.data();
    arrays.tokens = tokens;
    arrays.sequences = sequences;
    arrays.groups = 1;
    arrays.columns = context_.pool.num_blocks / sequences;
    StepNeeds needs;
    needs.max_tokens = tokens;
    needs.reads.push_back({0, what_.window});
    step_.take(arrays, needs, context_.pool);
}

void Rig::step() {
    plan_[0].make(step_, context_.pool, context_.threads);
    for (std::atomic<int>& next : next_) next.store(0, std::memory_order_relaxed);
    pool_.run([this](int thread) { work(thread); });
}

void Rig::work(int thread) {
    AttendTask task = task_;
    for (int layer = 0; layer < what_.layers; ++layer) {
        task.layer = layer;
        plan_[0].attend(context_, task, 0, thread, next_[2 * static_cast<size_t>(layer)]);
        pool_.barrier();
        if (!plan_[0].cut()) continue;
        plan_[0].merge(context_, task, 0, thread, next_[2 * static_cast<size_t>(layer) + 1]);
        pool_.barrier();
    }
}

void require(bool ok, const char* message) {
    if (!ok) throw std::invalid_argument(message);
}

}  // namespace

AttentionTime time_attention(const Kernels& kernels, ThreadPool& pool, const AttentionCase& what, double seconds) {
    require(what.sequences > 0 && what.fresh > 0 && what.fresh <= what.context && what.layers > 0 && what.block_size > 0 &&
                what.head_size > 0 && what.window >= 0,
            "sizes must be positive, and new tokens at most as many as the context");
    require(what.kv_heads > 0 && what.heads > 0 && what.heads % what.kv_heads == 0, "kv_heads must divide heads");
    Rig rig(kernels, pool, what);
    rig.step();
    std::vector<double> times;
    const double stop = bench_now(pool) + seconds;
    while (times.size() < 5 || bench_now(pool) < stop) {
        const double start = bench_now(pool);
        rig.step();
        times.push_back(bench_now(pool) - start);
    }
    std::sort(times.begin(), times.end());
    AttentionTime result;
    result.seconds = times[times.size() / 2];
    result.least = times.front();
    result.most = times.back();
    result.runs = static_cast<int>(times.size());
    double seen = 0.0;
    for (int i = 0; i < what.fresh; ++i) {
        const int keys = what.context - i;
        seen += what.window > 0 && keys > what.window ? what.window : keys;
    }
    const int first = what.context - what.fresh;
    const int keys = what.window > 0 && first >= what.window ? what.window + what.fresh - 1 : what.context;
    const double each = static_cast<double>(what.sequences) * what.layers * what.head_size;
    result.bytes = 2.0 * each * keys * what.kv_heads * (what.bf16 ? 2 : 4);
    result.operations = 4.0 * each * seen * what.heads;
    return result;
}

}  // namespace octavo
