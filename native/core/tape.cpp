#include "core/tape.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace octavo {

namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

std::string text(int64_t n) { return std::to_string(n); }

int size_of(const ConstantRef& c) { return c->size(); }

}  // namespace

Tape::Tape(std::shared_ptr<Runtime> runtime, KVPool pool, StepLimits limits)
    : runtime_(std::move(runtime)), pool_(pool), limits_(limits), shapes_only_(pool.data == nullptr) {
    if (limits.tokens < 1) refuse("a program for steps of " + text(limits.tokens) + " tokens");
}

View Tape::add_slot(int columns) {
    recorded_.columns.push_back(columns);
    return {static_cast<int>(recorded_.columns.size()) - 1, 0, columns};
}

void Tape::check(View v, const char* what) const {
    const auto slots = static_cast<int>(recorded_.columns.size());
    if (v.slot < 0 || v.slot >= slots || v.column < 0 || v.columns < 1 ||
        v.column > recorded_.columns[static_cast<size_t>(v.slot)] - v.columns)
        refuse(std::string(what) + " is not an activation of this recording");
}

void Tape::check_layer(LayerSlot slot) const {
    if (slot.group < 0 || slot.index < 0 || slot.index >= pool_.layers) {
        refuse("layer " + text(slot.index) + " of group " + text(slot.group) + "; the pool has " + text(pool_.layers) +
               " layers a group");
    }
}

View Tape::input(int columns) {
    if (columns < 1) refuse("an input of " + text(columns) + " columns");
    const View v = add_slot(columns);
    recorded_.inputs.push_back(v.slot);
    return v;
}

View Tape::embed(MatrixRef table, float scale) {
    use(table);
    const View out = add_slot(table->k());
    record<Embed>(std::move(table), scale, out);
    return out;
}

View Tape::linear(View x, MatrixRef weight, LinearNumbers numbers, View residual) {
    check(x, "x");
    use(weight);
    if (x.columns != weight->k()) refuse("activations of " + text(x.columns) + " columns meet a weight of " + text(weight->k()));
    const int columns = numbers.gated ? weight->n() / 2 : weight->n();
    if (numbers.gated && (weight->n() % 2 != 0 || !splits_in_halves(*weight)))
        refuse("a gated weight of " + text(weight->n()) + " outputs is not gate above up");
    if (numbers.bias != nullptr && size_of(numbers.bias) != columns)
        refuse("a bias of " + text(size_of(numbers.bias)) + " for " + text(columns) + " columns");
    if (residual.slot != -1) {
        check(residual, "the residual");
        if (residual.columns != columns) refuse("a residual of " + text(residual.columns) + " columns for " + text(columns));
    }
    const View out = add_slot(columns);
    record<Linear>(x, std::move(weight), residual, out, std::move(numbers));
    return out;
}

View Tape::norm(View x, NormNumbers numbers, View residual) {
    check(x, "x");
    const int width = size_of(numbers.weight);
    if (width < 1 || x.columns % width != 0) refuse(text(x.columns) + " columns are not groups of " + text(width));
    if (numbers.bias != nullptr && size_of(numbers.bias) != width)
        refuse("a bias of " + text(size_of(numbers.bias)) + " for groups of " + text(width));
    if (residual.slot != -1) {
        check(residual, "the residual");
        if (residual.columns != x.columns) refuse("a residual of " + text(residual.columns) + " columns for " + text(x.columns));
    }
    const View out = add_slot(x.columns);
    record<Norm>(x, residual, out, std::move(numbers));
    return out;
}

View Tape::rope(View x, const RopeNumbers& rope) {
    check(x, "x");
    const int rotary = 2 * size_of(rope.inv_freq);
    if (rope.head_size < 1 || x.columns % rope.head_size != 0 || rotary > rope.head_size || rotary == 0) {
        refuse(text(x.columns) + " columns, heads of " + text(rope.head_size) + ", " + text(rotary) +
               " rotated: no such rotation");
    }
    const auto key = std::make_pair(rope.inv_freq.get(), rope.scale);
    auto found = angles_.find(key);
    if (found == angles_.end()) {
        const View angles = add_slot(rotary);
        record<Angles>(rope.inv_freq, rope.scale, angles);
        found = angles_.emplace(key, angles).first;
    }
    const View out = add_slot(x.columns);
    record<Rotate>(x, found->second, out, rope.head_size, rope.interleaved);
    return out;
}

View Tape::add(View a, View b) {
    check(a, "a");
    check(b, "b");
    if (a.columns != b.columns) refuse(text(a.columns) + " and " + text(b.columns) + " columns do not add");
    const View out = add_slot(a.columns);
    record<Add>(a, b, out);
    return out;
}

void Tape::write_kv(View k, View v, LayerSlot slot) {
    check(k, "k");
    check(v, "v");
    check_layer(slot);
    const int columns = pool_.kv_heads * pool_.head_size;
    if (k.columns != columns || v.columns != columns) {
        refuse("keys of " + text(k.columns) + " and values of " + text(v.columns) + " columns; the pool holds " +
               text(pool_.kv_heads) + " heads of " + text(pool_.head_size));
    }
    record<WriteKV>(k, v, slot.group, slot.index);
}

View Tape::attend(View q, int kv_heads, int head_size, LayerSlot slot, AttendNumbers numbers) {
    check(q, "q");
    check_layer(slot);
    if (kv_heads != pool_.kv_heads || head_size != pool_.head_size || numbers.heads < 1 || numbers.heads % kv_heads != 0) {
        refuse(text(numbers.heads) + " heads on " + text(kv_heads) + " of " + text(head_size) + "; the pool holds " +
               text(pool_.kv_heads) + " heads of " + text(pool_.head_size));
    }
    if (q.columns != numbers.heads * head_size)
        refuse(text(q.columns) + " columns are not " + text(numbers.heads) + " heads of " + text(head_size));
    for (const ConstantRef& c : {numbers.slopes, numbers.sinks}) {
        if (c != nullptr && size_of(c) != numbers.heads) refuse(text(size_of(c)) + " numbers for " + text(numbers.heads) + " heads");
    }
    const AttentionKind kind{numbers.heads, numbers.window};
    const auto known = std::find(recorded_.kinds.begin(), recorded_.kinds.end(), kind);
    const auto plan = static_cast<int>(known - recorded_.kinds.begin());
    if (known == recorded_.kinds.end()) recorded_.kinds.push_back(kind);
    const View out = add_slot(q.columns);
    record<Attend>(q, out, slot.group, slot.index, plan, std::move(numbers));
    return out;
}

View Tape::logits(View x, MatrixRef weight, float softcap) {
    check(x, "x");
    use(weight);
    if (x.columns != weight->k()) refuse("activations of " + text(x.columns) + " columns meet a weight of " + text(weight->k()));
    const View out{kLogits, 0, weight->n()};
    record<Logits>(x, std::move(weight), softcap);
    return out;
}

std::unique_ptr<Program> Tape::plan(View output, int top_columns, View kept) {
    if (output.slot == kLogits) {
        if (top_columns > output.columns) refuse("the largest of " + text(top_columns) + " of " + text(output.columns) + " logits");
        if (top_columns > 0) record<Largest>(top_columns);
        recorded_.logits = true;
    } else if (output.slot != -1) {
        check(output, "the output");
        record<Give>(output);
    }
    if (kept.slot != -1) check(kept, "what is kept");
    recorded_.kept = kept;
    recorded_.out_columns = output.slot == -1 ? 0 : output.columns;
    auto program = std::make_unique<Program>(runtime_, pool_, limits_, std::move(recorded_));
    recorded_ = Recording{};
    angles_.clear();
    return program;
}

std::unique_ptr<Program> Tape::compile(View output, int top_columns, View kept) {
    if (shapes_only_) throw std::logic_error("a tape of shapes can be measured, not run");
    std::unique_ptr<Program> program = plan(output, top_columns, kept);
    program->allocate();
    return program;
}

size_t Tape::measure(View output, View kept) { return plan(output, 0, kept)->planned_bytes(); }

}  // namespace octavo
