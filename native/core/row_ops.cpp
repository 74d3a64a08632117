#include "core/row_ops.h"

#include <cmath>
#include <cstring>

namespace octavo {

Embed::Embed(std::shared_ptr<const Matrix> table, float scale, View out)
    : RowOp("embed"), table_(std::move(table)), scale_(scale), out_(out) {
    touch(out);
}

void Embed::run(const StepContext& c, int, int thread) const {
    const Rows out = c.at(out_);
    const Range rows = own_rows(c, thread);
    for (int r = rows.begin; r < rows.end; ++r) table_->row(c.step->ids()[r], scale_, out.row(r));
}

void Embed::need(StepNeeds& needs) const {
    if (needs.vocabulary == 0 || table_->n() < needs.vocabulary) needs.vocabulary = table_->n();
}

Norm::Norm(View x, View residual, View out, NormNumbers numbers)
    : RowOp("norm"), x_(x), residual_(residual), out_(out), numbers_(std::move(numbers)) {
    touch(x);
    touch(residual);
    touch(out);
}

void Norm::run(const StepContext& c, int, int thread) const {
    const int width = numbers_.weight->size();
    NormTask t;
    t.x = c.at(x_);
    t.out = c.at(out_);
    t.residual = c.at(residual_);
    t.weight = numbers_.weight->data();
    t.bias = numbers_.bias == nullptr ? nullptr : numbers_.bias->data();
    t.width = width;
    t.groups = x_.columns / width;
    t.eps = numbers_.eps;
    t.layer = numbers_.layer;
    c.kernels->norm(t, own_rows(c, thread));
}

Angles::Angles(ConstantRef inv_freq, float scale, View out)
    : RowOp("angles"), inv_freq_(std::move(inv_freq)), scale_(scale), out_(out) {
    touch(out);
}

// An angle is the float32 product of position and frequency, as trained models had it; its cosine and sine are exact to
// float32.
void Angles::run(const StepContext& c, int, int thread) const {
    const int half = inv_freq_->size();
    const Rows out = c.at(out_);
    const Range rows = own_rows(c, thread);
    for (int r = rows.begin; r < rows.end; ++r) {
        float* to = out.row(r);
        for (int i = 0; i < half; ++i) {
            const double angle = static_cast<float>(c.step->positions()[r]) * inv_freq_->data()[i];
            to[i] = static_cast<float>(std::cos(angle) * static_cast<double>(scale_));
            to[half + i] = static_cast<float>(std::sin(angle) * static_cast<double>(scale_));
        }
    }
}

Rotate::Rotate(View x, View angles, View out, int head_size, bool interleaved)
    : RowOp("rope"), x_(x), angles_(angles), out_(out), head_size_(head_size), interleaved_(interleaved) {
    touch(x);
    touch(angles);
    touch(out);
}

void Rotate::run(const StepContext& c, int, int thread) const {
    RopeTask t;
    t.x = c.at(x_);
    t.out = c.at(out_);
    t.table = c.at(angles_);
    t.heads = x_.columns / head_size_;
    t.head_size = head_size_;
    t.half = angles_.columns / 2;
    t.interleaved = interleaved_;
    c.kernels->rope(t, own_rows(c, thread));
}

Add::Add(View a, View b, View out) : RowOp("add"), a_(a), b_(b), out_(out) {
    touch(a);
    touch(b);
    touch(out);
}

void Add::run(const StepContext& c, int, int thread) const {
    c.kernels->add(c.at(a_), c.at(b_), c.at(out_), out_.columns, own_rows(c, thread));
}

WriteKV::WriteKV(View k, View v, int group, int layer) : RowOp("write_kv"), k_(k), v_(v), group_(group), layer_(layer) {
    touch(k);
    touch(v);
}

void WriteKV::run(const StepContext& c, int, int thread) const {
    c.kernels->store({c.pool, layer_, c.step->slots(group_), c.at(k_), c.at(v_)}, own_rows(c, thread));
}

Give::Give(View x) : RowOp("give"), x_(x) { touch(x); }

void Give::run(const StepContext& c, int, int thread) const {
    const Rows x = c.at(x_);
    const Range rows = own_rows(c, thread);
    for (int r = rows.begin; r < rows.end; ++r)
        std::memcpy(c.out.row(r), x.row(r), sizeof(float) * static_cast<size_t>(x_.columns));
}

}  // namespace octavo
