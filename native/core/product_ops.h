// Operations on packed matrices: linear layers, gated pairs, logits. And attention, which also waits between phases.
#pragma once

#include "core/linear.h"
#include "core/row_ops.h"

#include <atomic>
#include <memory>

namespace octavo {

using MatrixRef = std::shared_ptr<const Matrix>;

struct LinearNumbers {
    ConstantRef bias;  // may be null
    Activation activation = Activation::None;
    bool gated = false;
};

// Phases: the rows' activations to the form that the matrix wants, then the product.
class Linear : public Op {
public:
    Linear(View x, MatrixRef weight, View residual, View out, LinearNumbers numbers);
    int phases() const override { return 2; }
    bool by_rows(int phase) const override { return phase == 0; }
    void run(const StepContext& c, int phase, int thread) const override;
    size_t product_bytes(int tokens) const override { return scratch_bytes(*weight_, tokens); }

private:
    View x_, residual_, out_;
    MatrixRef weight_;
    LinearNumbers numbers_;
};

// The wanted rows alone, straight to the program's output.
class Logits : public Op {
public:
    Logits(View x, MatrixRef weight, float softcap);
    int phases() const override { return 2; }
    bool by_rows(int) const override { return false; }
    void run(const StepContext& c, int phase, int thread) const override;
    size_t product_bytes(int tokens) const override { return scratch_bytes(*weight_, tokens); }
    bool idle(const StepContext& c, int) const override { return c.step->logit_rows().empty(); }

private:
    View x_;
    MatrixRef weight_;
    float softcap_;
};

// The largest of the first `columns` logits of each row, while they are warm; -1 where it is not finite.
class Largest : public Op {
public:
    explicit Largest(int columns) : Op("largest"), columns_(columns) {}
    bool by_rows(int) const override { return false; }
    bool idle(const StepContext& c, int) const override { return c.top == nullptr; }
    void run(const StepContext& c, int phase, int thread) const override;

private:
    int columns_;
};

struct AttendNumbers {
    int heads = 0;
    float scale = 1.0F;
    int window = 0;
    float softcap = 0.0F;
    ConstantRef slopes;
    ConstantRef sinks;
};

class Attend : public Op {
public:
    Attend(View q, View out, int group, int layer, int plan, AttendNumbers numbers);
    int phases() const override { return 2; }
    bool by_rows(int) const override { return false; }
    bool idle(const StepContext& c, int phase) const override { return phase == 1 && !c.plans[plan_].cut(); }
    void start() override;
    void run(const StepContext& c, int phase, int thread) const override;
    void need(StepNeeds& needs) const override;
    size_t scratch_floats(const KVPool& pool) const override;

private:
    View q_, out_;
    int group_, layer_, plan_;
    AttendNumbers numbers_;
    mutable std::atomic<int> next_[2] = {0, 0};
};

}  // namespace octavo
