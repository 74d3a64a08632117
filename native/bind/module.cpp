// The Python module: matrices, a pool and linear layers over numpy arrays. Checks every shape before a kernel sees it.
#include "bind/bind.h"
#include "core/isa.h"
#include "core/linear.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace nb = nanobind;
using namespace octavo;

namespace {

using Floats2 = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats1 = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints1 = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes1 = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Out2 = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

Isa isa_from(const std::string& name) {
    for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512})
        if (name == isa_name(isa)) return isa;
    throw std::invalid_argument("unknown instruction set '" + name + "'; known: portable, avx2, avx512");
}

const Kernels& kernels_from(const std::string& name) {
    const Kernels* k = kernels_for(isa_from(name));
    if (k == nullptr) throw std::invalid_argument("this processor or build has no " + name + " kernels");
    return *k;
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512})
        if (kernels_for(isa) != nullptr) names.emplace_back(isa_name(isa));
    return names;
}

Source source_from(const std::string& name) {
    for (int s = 0; s <= static_cast<int>(Source::Q6_K); ++s)
        if (name == info(static_cast<Source>(s)).name) return static_cast<Source>(s);
    throw std::invalid_argument("unknown storage type '" + name + "'");
}

Activation activation_from(const std::optional<std::string>& name) {
    if (!name) return Activation::None;
    if (*name == "silu") return Activation::Silu;
    if (*name == "gelu") return Activation::Gelu;
    if (*name == "gelu_tanh") return Activation::GeluTanh;
    if (*name == "relu") return Activation::Relu;
    throw std::invalid_argument("unknown activation '" + *name + "'");
}

// A fresh array that owns its memory.
Out2 make_floats(size_t rows, size_t columns) {
    auto* data = new float[rows * columns > 0 ? rows * columns : 1];
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    return Out2(data, {rows, columns}, owner);
}

using PartTuple = std::tuple<std::string, int, Bytes1>;

Matrix* make_matrix(const std::string& isa, const std::vector<PartTuple>& parts, int k, ThreadPool& pool, Arena& arena) {
    std::vector<Part> list;
    for (const auto& [type, n, data] : parts) {
        const Source source = source_from(type);
        const SourceInfo& s = info(source);
        if (n <= 0 || k <= 0 || k % s.block != 0)
            throw std::invalid_argument(type + " cannot hold " + std::to_string(n) + " rows of " + std::to_string(k));
        const size_t need = static_cast<size_t>(n) * static_cast<size_t>(k / s.block) * static_cast<size_t>(s.bytes);
        if (data.size() != need)
            throw std::invalid_argument(type + " " + std::to_string(n) + " x " + std::to_string(k) + " takes " +
                                        std::to_string(need) + " bytes, got " + std::to_string(data.size()));
        list.push_back({source, data.data(), n});
    }
    if (list.empty()) throw std::invalid_argument("a matrix needs at least one part");
    nb::gil_scoped_release release;
    return new Matrix(kernels_from(isa), list, k, pool, arena);
}

using ShapeTuple = std::tuple<std::string, int>;

Matrix* make_shape(const std::string& isa, const std::vector<ShapeTuple>& parts, int k) {
    std::vector<Part> list;
    for (const auto& [type, n] : parts) list.push_back({source_from(type), nullptr, n});
    if (list.empty()) throw std::invalid_argument("a matrix needs at least one part");
    return new Matrix(kernels_from(isa), list, k);
}

void require(bool ok, const char* message) {
    if (!ok) throw std::invalid_argument(message);
}

Out2 linear(ThreadPool& pool, const Matrix& w, Floats2 x, std::optional<Floats1> bias, const std::optional<std::string>& activation,
            std::optional<Floats2> residual, bool gated, std::optional<Ints1> rows, float softcap) {
    const size_t n = static_cast<size_t>(gated ? w.n() / 2 : w.n());
    const size_t count = rows ? rows->shape(0) : x.shape(0);
    require(w.filled(), "a matrix that is a shape alone computes nothing");
    require(x.shape(1) == static_cast<size_t>(w.k()), "x must have as many columns as the matrix has inputs");
    require(!bias || (!gated && bias->shape(0) == n), "bias must have one value per output, and none goes with a gate");
    require(!residual || (residual->shape(0) == count && residual->shape(1) == n), "residual must have the result's shape");
    require(!gated || splits_in_halves(w), "a gated matrix needs two halves of equal parts");
    for (size_t i = 0; rows && i < count; ++i)
        require(rows->data()[i] >= 0 && static_cast<size_t>(rows->data()[i]) < x.shape(0), "row index outside x");
    Out2 out = make_floats(count, n);
    LinearCall call;
    call.weight = &w;
    call.gated = gated;
    call.x = x.data();
    call.x_stride = w.k();
    call.index = rows ? rows->data() : nullptr;
    call.rows = static_cast<int>(count);
    call.out = out.data();
    call.out_stride = static_cast<ptrdiff_t>(n);
    call.bias = bias ? bias->data() : nullptr;
    call.residual = residual ? residual->data() : nullptr;
    call.residual_stride = static_cast<ptrdiff_t>(n);
    call.activation = activation_from(activation);
    call.softcap = softcap;
    const Buffer scratch(scratch_bytes(w, call.rows));
    call.scratch = scratch.data();
    nb::gil_scoped_release release;
    run_linear(call, pool);
    return out;
}

Out2 embed(const Matrix& w, Ints1 ids, float scale) {
    require(w.filled(), "a matrix that is a shape alone has no rows");
    for (size_t i = 0; i < ids.shape(0); ++i)
        require(ids.data()[i] >= 0 && ids.data()[i] < w.n(), "id outside the table");
    Out2 out = make_floats(ids.shape(0), static_cast<size_t>(w.k()));
    for (size_t i = 0; i < ids.shape(0); ++i) w.row(ids.data()[i], scale, out.data() + i * static_cast<size_t>(w.k()));
    return out;
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "octavo's native kernels, and what else is called often enough to be native";
    m.def("instruction_sets", &instruction_sets, "Names of the sets that run here, narrowest first.");
    nb::class_<ThreadPool>(m, "Pool")
        .def(nb::init<int, bool>(), nb::arg("threads"), nb::arg("pin") = false)
        .def_prop_ro("threads", &ThreadPool::threads);
    nb::class_<Arena>(m, "Arena").def(nb::init<>());
    nb::class_<Matrix>(m, "Matrix")
        .def(nb::new_(&make_matrix), nb::arg("isa"), nb::arg("parts"), nb::arg("k"), nb::arg("pool"), nb::arg("arena"))
        .def_static("shaped", &make_shape, nb::arg("isa"), nb::arg("parts"), nb::arg("k"), nb::rv_policy::take_ownership,
                    "A shape without weights, for tapes that are only measured.")
        .def_prop_ro("n", &Matrix::n)
        .def_prop_ro("k", &Matrix::k)
        .def_prop_ro("nbytes", &Matrix::bytes);
    m.def("linear", &linear, nb::arg("pool"), nb::arg("weight"), nb::arg("x"), nb::arg("bias") = nb::none(),
          nb::arg("activation") = nb::none(), nb::arg("residual") = nb::none(), nb::arg("gated") = false,
          nb::arg("rows") = nb::none(), nb::arg("softcap") = 0.0F);
    m.def("embed", &embed, nb::arg("weight"), nb::arg("ids"), nb::arg("scale") = 1.0F);
    octavo::bind::bind_engine(m);
    octavo::bind::bind_sends(m);
}
