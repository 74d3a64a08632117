// Operations that work row by row: embedding, norms, rotary embedding, sums, writing keys and values.
#pragma once

#include "core/matrix.h"
#include "core/op.h"

#include <memory>
#include <vector>

namespace octavo {

// Float32 values that the model's layers share: norm weights, biases, frequencies, slopes.
struct Constant {
    std::vector<float> values;

    int size() const { return static_cast<int>(values.size()); }
    const float* data() const { return values.data(); }
};
using ConstantRef = std::shared_ptr<const Constant>;

class RowOp : public Op {
public:
    using Op::Op;
    bool by_rows(int) const override { return true; }
};

class Embed : public RowOp {
public:
    Embed(std::shared_ptr<const Matrix> table, float scale, View out);
    void run(const StepContext& c, int phase, int thread) const override;
    void need(StepNeeds& needs) const override;

private:
    std::shared_ptr<const Matrix> table_;
    float scale_;
    View out_;
};

struct NormNumbers {
    ConstantRef weight;
    ConstantRef bias;  // may be null
    float eps = 0.0F;
    bool layer = false;
};

class Norm : public RowOp {
public:
    Norm(View x, View residual, View out, NormNumbers numbers);
    void run(const StepContext& c, int phase, int thread) const override;

private:
    View x_, residual_, out_;
    NormNumbers numbers_;
};

// Cosines and sines of every token's angles, once a step for all layers that turn alike.
class Angles : public RowOp {
public:
    Angles(ConstantRef inv_freq, float scale, View out);
    void run(const StepContext& c, int phase, int thread) const override;

private:
    ConstantRef inv_freq_;
    float scale_;
    View out_;
};

class Rotate : public RowOp {
public:
    Rotate(View x, View angles, View out, int head_size, bool interleaved);
    void run(const StepContext& c, int phase, int thread) const override;

private:
    View x_, angles_, out_;
    int head_size_;
    bool interleaved_;
};

class Add : public RowOp {
public:
    Add(View a, View b, View out);
    void run(const StepContext& c, int phase, int thread) const override;

private:
    View a_, b_, out_;
};

class WriteKV : public RowOp {
public:
    WriteKV(View k, View v, int group, int layer);
    void run(const StepContext& c, int phase, int thread) const override;
    void need(StepNeeds& needs) const override { needs.writes.push_back(group_); }

private:
    View k_, v_;
    int group_, layer_;
};

// A slot's rows to the program's output.
class Give : public RowOp {
public:
    explicit Give(View x);
    void run(const StepContext& c, int phase, int thread) const override;

private:
    View x_;
};

}  // namespace octavo
