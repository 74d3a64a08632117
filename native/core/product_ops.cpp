#include "core/product_ops.h"

#include <cmath>

namespace octavo {

Linear::Linear(View x, MatrixRef weight, View residual, View out, LinearNumbers numbers)
    : Op(numbers.gated ? "gated" : "linear"), x_(x), residual_(residual), out_(out), weight_(std::move(weight)),
      numbers_(std::move(numbers)) {
    touch(x);
    touch(residual);
    touch(out);
}

void Linear::run(const StepContext& c, int phase, int thread) const {
    const Rows x = c.at(x_);
    const Rows out = c.at(out_);
    const Rows residual = c.at(residual_);
    LinearCall call;
    call.weight = weight_.get();
    call.gated = numbers_.gated;
    call.x = x.data;
    call.x_stride = x.stride;
    call.rows = c.step->tokens();
    call.out = out.data;
    call.out_stride = out.stride;
    call.bias = numbers_.bias == nullptr ? nullptr : numbers_.bias->data();
    call.residual = residual.data;
    call.residual_stride = residual.stride;
    call.activation = numbers_.activation;
    call.scratch = c.products;
    if (phase == 0) convert_rows(call, thread, c.threads);
    else multiply(call, thread, c.threads);
}

Logits::Logits(View x, MatrixRef weight, float softcap)
    : Op("logits"), x_(x), weight_(std::move(weight)), softcap_(softcap) {
    touch(x);
}

void Logits::run(const StepContext& c, int phase, int thread) const {
    const std::vector<int32_t>& rows = c.step->logit_rows();
    const Rows x = c.at(x_);
    LinearCall call;
    call.weight = weight_.get();
    call.x = x.data;
    call.x_stride = x.stride;
    call.index = rows.data();
    call.rows = static_cast<int>(rows.size());
    call.out = c.out.data;
    call.out_stride = c.out.stride;
    call.softcap = softcap_;
    call.scratch = c.products;
    if (phase == 0) convert_rows(call, thread, c.threads);
    else multiply(call, thread, c.threads);
}

void Largest::run(const StepContext& c, int, int thread) const {
    Range rows{};
    split(static_cast<int>(c.step->logit_rows().size()), thread, c.threads, rows.begin, rows.end);
    for (int r = rows.begin; r < rows.end; ++r) {
        const int32_t place = c.kernels->argmax(c.out.row(r), columns_);
        c.top[r] = std::isfinite(c.out.row(r)[place]) ? place : -1;
    }
}

Attend::Attend(View q, View out, int group, int layer, int plan, AttendNumbers numbers)
    : Op("attend"), q_(q), out_(out), group_(group), layer_(layer), plan_(plan), numbers_(std::move(numbers)) {
    touch(q);
    touch(out);
}

void Attend::start() {
    for (std::atomic<int>& next : next_) next.store(0, std::memory_order_relaxed);
}

void Attend::run(const StepContext& c, int phase, int thread) const {
    AttendTask t;
    t.pool = c.pool;
    t.layer = layer_;
    t.heads = numbers_.heads;
    t.scale = numbers_.scale;
    t.window = numbers_.window;
    t.softcap = numbers_.softcap;
    t.slopes = numbers_.slopes == nullptr ? nullptr : numbers_.slopes->data();
    t.sinks = numbers_.sinks == nullptr ? nullptr : numbers_.sinks->data();
    t.q = c.at(q_);
    t.out = c.at(out_);
    AttentionPlan& plan = c.plans[plan_];
    if (phase == 0) plan.attend(c, t, group_, thread, next_[0]);
    else plan.merge(c, t, group_, thread, next_[1]);
}

void Attend::need(StepNeeds& needs) const { needs.reads.push_back({group_, numbers_.window}); }

size_t Attend::scratch_floats(const KVPool& pool) const {
    return attend_scratch_floats(unit_rows(numbers_.heads / pool.kv_heads), pool.head_size);
}

}  // namespace octavo
