// Programs for Python: one call a step, the interpreter lock released.
#include "bind/bind.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace octavo::bind {
namespace {

// One step as Python gives it; see octavo.ops.base.StepInputs and AttentionMeta.
struct PyStep {
    In<int32_t, 1> ids, positions, logit_rows, offsets, lengths;
    In<int32_t, 3> table;
    In<int64_t, 2> slots;

    StepArrays arrays() const {
        const auto size = [](const auto& a, size_t axis) { return static_cast<int64_t>(a.shape(axis)); };
        StepArrays s;
        s.tokens = size(ids, 0);
        s.wanted = size(logit_rows, 0);
        s.sequences = size(lengths, 0);
        s.groups = size(table, 0);
        s.columns = size(table, 2);
        if (size(positions, 0) != s.tokens || size(offsets, 0) != s.sequences + 1 || size(table, 1) != s.sequences ||
            size(slots, 0) != s.groups || size(slots, 1) != s.tokens) {
            throw std::invalid_argument(
                "a step's arrays do not belong together: " + std::to_string(s.tokens) + " ids, " +
                std::to_string(size(positions, 0)) + " positions, " + std::to_string(size(offsets, 0)) + " offsets of " +
                std::to_string(s.sequences) + " sequences, tables of " + std::to_string(size(table, 1)) + ", slots [" +
                std::to_string(size(slots, 0)) + ", " + std::to_string(size(slots, 1)) + "] of " + std::to_string(s.groups) +
                " groups");
        }
        s.ids = ids.data();
        s.positions = positions.data();
        s.logit_rows = logit_rows.data();
        s.offsets = offsets.data();
        s.lengths = lengths.data();
        s.table = table.data();
        s.slots = slots.data();
        return s;
    }
};

void run(PyProgram& p, const PyStep& step, const std::vector<In<float, 2>>& inputs, const Out<float, 2>& out,
         const std::optional<Out<int32_t, 1>>& top) {
    Program& program = *p.program;
    const StepArrays arrays = step.arrays();
    if (inputs.size() != program.inputs())
        throw std::invalid_argument(std::to_string(inputs.size()) + " inputs for " + std::to_string(program.inputs()));
    std::vector<const float*> floats;
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (static_cast<int64_t>(inputs[i].shape(0)) != arrays.tokens ||
            static_cast<int>(inputs[i].shape(1)) != program.input_columns(i))
            throw std::invalid_argument("input " + std::to_string(i) + " has another shape than was recorded");
        floats.push_back(inputs[i].data());
    }
    const int64_t rows = program.logits() ? arrays.wanted : program.out_columns() == 0 ? 0 : arrays.tokens;
    if (static_cast<int64_t>(out.shape(0)) != rows || static_cast<int>(out.shape(1)) != program.out_columns())
        throw std::invalid_argument("the output must be " + std::to_string(rows) + " x " + std::to_string(program.out_columns()));
    if (top.has_value() && (!program.logits() || static_cast<int64_t>(top->shape(0)) != rows))
        throw std::invalid_argument("the largest of " + std::to_string(rows) + " rows of logits need as many places");
    const nb::gil_scoped_release release;
    program.run(arrays, floats, out.data(), top.has_value() ? top->data() : nullptr);
}

// A view of the program's workspace, which lives as long as the view does.
nb::ndarray<nb::numpy, const float, nb::ndim<2>> kept(nb::handle self) {
    const Program& program = *nb::cast<const PyProgram&>(self).program;
    const Rows rows = program.kept();
    const size_t shape[2] = {rows.data == nullptr ? 0 : static_cast<size_t>(program.planned_tokens()),
                             static_cast<size_t>(program.kept_columns())};
    const int64_t strides[2] = {rows.stride, 1};
    return {rows.data, 2, shape, self, strides};
}

std::vector<std::tuple<std::string, double, int64_t>> times(const PyProgram& p) {
    std::vector<std::tuple<std::string, double, int64_t>> list;
    for (const PhaseTime& t : p.program->times()) list.emplace_back(t.name, t.seconds, t.runs);
    return list;
}

}  // namespace

void bind_program(nb::module_& m) {
    nb::class_<PyStep>(m, "Step")
        .def("__init__",
             [](PyStep* to, In<int32_t, 1> ids, In<int32_t, 1> positions, In<int32_t, 1> logit_rows, In<int32_t, 1> offsets,
                In<int32_t, 1> lengths, In<int32_t, 3> table, In<int64_t, 2> slots) {
                 new (to) PyStep{ids, positions, logit_rows, offsets, lengths, table, slots};
             },
             nb::arg("ids").noconvert(), nb::arg("positions").noconvert(), nb::arg("logit_rows").noconvert(),
             nb::arg("cu_seqlens_q").noconvert(), nb::arg("seq_lens").noconvert(), nb::arg("block_table").noconvert(),
             nb::arg("slot_mapping").noconvert());
    nb::class_<PyProgram>(m, "Program")
        .def("run", &run, nb::arg("step"), nb::arg("inputs"), nb::arg("out").noconvert(), nb::arg("top").noconvert().none())
        .def_prop_ro("out_columns", [](const PyProgram& p) { return p.program->out_columns(); })
        .def_prop_ro("nbytes", [](const PyProgram& p) { return p.program->bytes(); })
        .def("kept", &kept)
        .def("profile", [](PyProgram& p, bool on) { p.program->profile(on); }, nb::arg("on"))
        .def("times", &times);
}

}  // namespace octavo::bind
