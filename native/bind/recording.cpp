// The tape for Python: every operation of octavo.ops.base.Ops, recorded.
#include "bind/bind.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace octavo::bind {
namespace {

Activation activation_of(const std::optional<std::string>& name) {
    if (!name.has_value()) return Activation::None;
    if (*name == "silu") return Activation::Silu;
    if (*name == "gelu") return Activation::Gelu;
    if (*name == "gelu_tanh") return Activation::GeluTanh;
    if (*name == "relu") return Activation::Relu;
    throw std::invalid_argument("no activation " + *name);
}

std::vector<View> split_view(View v, const std::vector<int>& sizes) {
    std::vector<View> parts;
    int64_t sum = 0;
    for (const int size : sizes) {
        if (size < 1) throw std::invalid_argument("a part of " + std::to_string(size) + " columns");
        if (sum + size <= v.columns) parts.push_back({v.slot, v.column + static_cast<int>(sum), size});
        sum += size;
    }
    if (sum != v.columns)
        throw std::invalid_argument(std::to_string(v.columns) + " columns do not split into parts of " + std::to_string(sum));
    return parts;
}

struct Geometry {
    int num_blocks, layers, kv_heads, block_size, head_size;
    bool bf16;
};

// memory: none for a tape that is only measured.
KVPool pool_of(const std::optional<Out<uint8_t, 1>>& memory, const Geometry& g) {
    if (g.num_blocks < 1 || g.layers < 1 || g.kv_heads < 1 || g.block_size < 1 || g.head_size < 1)
        throw std::invalid_argument("a pool needs at least one of everything");
    const KVPool pool{memory ? memory->data() : nullptr, g.num_blocks, g.layers, g.kv_heads, g.block_size, g.head_size, g.bf16};
    if (memory && memory->size() != pool.block_bytes() * static_cast<size_t>(g.num_blocks)) {
        throw std::invalid_argument("a pool of " + std::to_string(g.num_blocks) + " blocks takes " +
                                    std::to_string(pool.block_bytes() * static_cast<size_t>(g.num_blocks)) + " bytes, not " +
                                    std::to_string(memory->size()));
    }
    return pool;
}

LayerSlot slot_of(int group, int index) { return {group, index}; }

View or_none(const std::optional<View>& v) { return v.value_or(View{}); }

using MatrixArgument = std::shared_ptr<Matrix>;
using ConstantArgument = std::shared_ptr<Constant>;

View linear(PyTape& t, View x, MatrixArgument weight, ConstantArgument bias, const std::optional<std::string>& activation,
            const std::optional<View>& residual) {
    return t.tape.linear(x, std::move(weight), {std::move(bias), activation_of(activation), false}, or_none(residual));
}

View norm(PyTape& t, View x, ConstantArgument weight, float eps, bool layer, ConstantArgument bias,
          const std::optional<View>& residual) {
    return t.tape.norm(x, {std::move(weight), std::move(bias), eps, layer}, or_none(residual));
}

}  // namespace

void bind_recording(nb::module_& m) {
    nb::class_<Geometry>(m, "Geometry")
        .def(nb::init<int, int, int, int, int, bool>(), nb::arg("num_blocks"), nb::arg("layers"), nb::arg("kv_heads"),
             nb::arg("block_size"), nb::arg("head_size"), nb::arg("bf16"));
    nb::class_<View>(m, "View")
        .def_ro("columns", &View::columns)
        .def("split", &split_view, nb::arg("sizes"));
    nb::class_<AttendNumbers>(m, "AttendNumbers")
        .def("__init__",
             [](AttendNumbers* to, int heads, float scale, int window, float softcap, ConstantArgument slopes,
                ConstantArgument sinks) {
                 new (to) AttendNumbers{heads, scale, window, softcap, std::move(slopes), std::move(sinks)};
             },
             nb::arg("heads"), nb::arg("scale"), nb::arg("window"), nb::arg("softcap"), nb::arg("slopes").none(),
             nb::arg("sinks").none());
    nb::class_<RopeNumbers>(m, "RopeNumbers")
        .def("__init__",
             [](RopeNumbers* to, ConstantArgument inv_freq, int head_size, bool interleaved, float scale) {
                 new (to) RopeNumbers{std::move(inv_freq), head_size, interleaved, scale};
             },
             nb::arg("inv_freq"), nb::arg("head_size"), nb::arg("interleaved"), nb::arg("scale"));
    nb::class_<PyTape>(m, "Tape")
        .def("__init__",
             [](PyTape* to, std::shared_ptr<Runtime> runtime, const std::optional<Out<uint8_t, 1>>& memory,
                const Geometry& geometry, int max_tokens, int max_length) {
                 new (to) PyTape{Tape(std::move(runtime), pool_of(memory, geometry), {max_tokens, max_length}), nb::cast(memory)};
             },
             nb::arg("runtime"), nb::arg("memory").noconvert().none(), nb::arg("geometry"), nb::arg("max_tokens"),
             nb::arg("max_length"))
        .def("input", [](PyTape& t, int columns) { return t.tape.input(columns); }, nb::arg("columns"))
        .def("embed", [](PyTape& t, MatrixArgument table, float scale) { return t.tape.embed(std::move(table), scale); },
             nb::arg("table"), nb::arg("scale"))
        .def("linear", &linear, nb::arg("x"), nb::arg("weight"), nb::arg("bias").none(), nb::arg("activation").none(),
             nb::arg("residual").none())
        .def("gated",
             [](PyTape& t, View x, MatrixArgument weight, const std::string& activation) {
                 return t.tape.linear(x, std::move(weight), {nullptr, activation_of(activation), true}, View{});
             },
             nb::arg("x"), nb::arg("gate_up"), nb::arg("activation"))
        .def("norm", &norm, nb::arg("x"), nb::arg("weight"), nb::arg("eps"), nb::arg("layer"), nb::arg("bias").none(),
             nb::arg("residual").none())
        .def("rope", [](PyTape& t, View x, const RopeNumbers& rope) { return t.tape.rope(x, rope); }, nb::arg("x"),
             nb::arg("rope"))
        .def("add", [](PyTape& t, View a, View b) { return t.tape.add(a, b); }, nb::arg("a"), nb::arg("b"))
        .def("write_kv",
             [](PyTape& t, View k, View v, int group, int index) { t.tape.write_kv(k, v, slot_of(group, index)); },
             nb::arg("k"), nb::arg("v"), nb::arg("group"), nb::arg("index"))
        .def("attend",
             [](PyTape& t, View q, int kv_heads, int head_size, int group, int index, const AttendNumbers& numbers) {
                 return t.tape.attend(q, kv_heads, head_size, slot_of(group, index), numbers);
             },
             nb::arg("q"), nb::arg("kv_heads"), nb::arg("head_size"), nb::arg("group"), nb::arg("index"), nb::arg("numbers"))
        .def("logits",
             [](PyTape& t, View x, MatrixArgument weight, float softcap) {
                 return t.tape.logits(x, std::move(weight), softcap);
             },
             nb::arg("x"), nb::arg("weight"), nb::arg("softcap"))
        .def("compile",
             [](PyTape& t, const std::optional<View>& output, int top_columns, const std::optional<View>& kept) {
                 return PyProgram{t.tape.compile(or_none(output), top_columns, or_none(kept)), t.memory};
             },
             nb::arg("output").none(), nb::arg("top_columns"), nb::arg("kept").none())
        .def("measure",
             [](PyTape& t, const std::optional<View>& output, const std::optional<View>& kept) {
                 return t.tape.measure(or_none(output), or_none(kept));
             },
             nb::arg("output").none(), nb::arg("kept").none(), "Bytes that the compiled program would hold.");
}

}  // namespace octavo::bind
