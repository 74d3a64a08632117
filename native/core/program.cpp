#include "core/program.h"

#include "core/workspace.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace octavo {

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Program::Program(std::shared_ptr<Runtime> runtime, KVPool pool, StepLimits limits, Recording recorded)
    : runtime_(std::move(runtime)), limits_(limits), recorded_(std::move(recorded)) {
    needs_.max_tokens = limits.tokens;
    context_.pool = pool;
    context_.threads = runtime_->pool->threads();
    schedule();
    for (const std::unique_ptr<Op>& op : recorded_.ops) {
        op->need(needs_);
        product_bytes_ = std::max(product_bytes_, op->product_bytes(limits.tokens));
        scratch_bytes_ = std::max(scratch_bytes_, op->scratch_floats(pool) * sizeof(float));
    }
    for (const AttentionKind& kind : recorded_.kinds) plans_.emplace_back(kind);
}

void Program::allocate() {
    workspace_ = Buffer(workspace_bytes_);
    products_ = Buffer(product_bytes_);
    for (int t = 0; t < context_.threads; ++t) {
        scratch_.emplace_back(scratch_bytes_);
        std::memset(scratch_.back().data(), 0, scratch_bytes_);
        scratch_of_.push_back(reinterpret_cast<float*>(scratch_.back().data()));
    }
    for (AttentionPlan& plan : plans_) plan.reserve(context_.pool, limits_.length, context_.threads);
    context_.step = &step_;
    context_.kernels = &runtime_->steps;
    context_.workspace = reinterpret_cast<float*>(workspace_.data());
    context_.offsets = offsets_.data();
    context_.strides = strides_.data();
    context_.products = products_.data();
    context_.scratch = scratch_of_.data();
    context_.plans = plans_.data();
}

// Phases in which every thread keeps to its own rows follow each other freely; between all others everyone waits. Memory
// is handed on only where everyone has waited.
void Program::schedule() {
    std::vector<Lifetime> lives(recorded_.columns.size());
    for (const int columns : recorded_.columns) strides_.push_back(padded(columns));
    for (size_t i = 0; i < lives.size(); ++i) {
        lives[i].bytes = static_cast<size_t>(strides_[i]) * sizeof(float) * static_cast<size_t>(needs_.max_tokens);
        lives[i].begin = INT32_MAX;
    }
    for (const int slot : recorded_.inputs) lives[static_cast<size_t>(slot)] = {lives[static_cast<size_t>(slot)].bytes, 0, 0};
    int segment = 0;
    bool rows = true;
    for (const std::unique_ptr<Op>& op : recorded_.ops) {
        int begin = segment;
        for (int phase = 0; phase < op->phases(); ++phase) {
            const bool wait = !entries_.empty() && !(rows && op->by_rows(phase));
            rows = op->by_rows(phase);
            if (wait) ++segment;
            if (phase == 0) begin = segment;
            const std::string name = op->phases() > 1 ? op->name() + "/" + std::to_string(phase) : op->name();
            auto time = std::find_if(times_.begin(), times_.end(), [&](const PhaseTime& t) { return t.name == name; });
            if (time == times_.end()) time = times_.insert(times_.end(), {name, 0.0, 0});
            entries_.push_back({op.get(), phase, wait, static_cast<size_t>(time - times_.begin())});
        }
        for (const int slot : op->uses) {
            Lifetime& life = lives[static_cast<size_t>(slot)];
            life.begin = std::min(life.begin, begin);
            life.end = std::max(life.end, segment);
        }
    }
    if (recorded_.kept.slot >= 0) lives[static_cast<size_t>(recorded_.kept.slot)].end = segment;
    Placement placement = place(lives);
    offsets_ = std::move(placement.offsets);
    workspace_bytes_ = placement.bytes;
}

size_t Program::bytes() const {
    size_t sum = workspace_.size() + products_.size();
    for (const Buffer& buffer : scratch_) sum += buffer.size();
    for (const AttentionPlan& plan : plans_) sum += plan.bytes();
    return sum;
}

size_t Program::planned_bytes() const {
    size_t sum = workspace_bytes_ + product_bytes_ + scratch_bytes_ * static_cast<size_t>(context_.threads);
    for (const AttentionPlan& plan : plans_) sum += plan.most_bytes(context_.pool, limits_.length, context_.threads);
    return sum;
}

void Program::profile(bool on) {
    timed_ = on;
    for (PhaseTime& t : times_) t = {t.name, 0.0, 0};
}

void Program::take_inputs(const std::vector<const float*>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
        const int columns = input_columns(i);
        const Rows to = context_.at({recorded_.inputs[i], 0, columns});
        for (int r = 0; r < step_.tokens(); ++r)
            std::memcpy(to.row(r), inputs[i] + ptrdiff_t{columns} * r, sizeof(float) * static_cast<size_t>(columns));
    }
}

void Program::run(const StepArrays& arrays, const std::vector<const float*>& inputs, float* out, int32_t* top) {
    const std::lock_guard<std::mutex> lock(runtime_->mutex);
    step_.take(arrays, needs_, context_.pool);
    take_inputs(inputs);
    context_.out = {out, out_columns()};
    context_.top = top;
    for (AttentionPlan& plan : plans_) plan.make(step_, context_.pool, context_.threads);
    for (const std::unique_ptr<Op>& op : recorded_.ops) op->start();
    runtime_->pool->run([this](int thread) { work(thread); });
}

void Program::work(int thread) {
    const bool timed = timed_ && thread == 0;
    Clock::time_point last = timed ? Clock::now() : Clock::time_point{};
    bool wait = false;
    for (const Entry& entry : entries_) {
        wait = wait || entry.wait;
        if (entry.op->idle(context_, entry.phase)) continue;
        if (wait) runtime_->pool->barrier();
        wait = false;
        entry.op->run(context_, entry.phase, thread);
        if (timed) {
            const Clock::time_point now = Clock::now();
            times_[entry.time].seconds += seconds(now - last);
            ++times_[entry.time].runs;
            last = now;
        }
    }
}

}  // namespace octavo
