// The row sampler for Python: rows in, tokens out, the interpreter lock released in between.
#include "bind/bind.h"
#include "core/sampling.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

namespace octavo::bind {
namespace {

using Logits = std::vector<In<float, 1>>;
using FilterTuple = std::tuple<double, int64_t, double, double>;
// peak, total, the largest as (token, logit)
using ExpectationTuple = std::tuple<double, double, std::vector<std::pair<int32_t, float>>>;

LogitRow row_of(const In<float, 1>& logits) { return {logits.data(), static_cast<int>(logits.size())}; }

std::vector<int32_t> draw(RowSampler& sampler, const Logits& rows, const std::vector<FilterTuple>& filters,
                          const std::vector<double>& uniforms) {
    if (filters.size() != rows.size() || uniforms.size() != rows.size())
        throw std::invalid_argument("rows, filters and uniforms must be as many");
    std::vector<Draw> draws;
    for (size_t i = 0; i < rows.size(); ++i) {
        const auto& [temperature, top_k, top_p, min_p] = filters[i];
        if (!(uniforms[i] >= 0.0 && uniforms[i] < 1.0)) throw std::invalid_argument("a uniform must be in [0, 1)");
        draws.push_back({row_of(rows[i]), {temperature, top_k, top_p, min_p}, uniforms[i]});
    }
    std::vector<int32_t> tokens(rows.size());
    const nb::gil_scoped_release release;
    sampler.draw(draws, tokens.data());
    return tokens;
}

std::vector<ExpectationTuple> expect(RowSampler& sampler, const Logits& rows, const std::vector<int>& counts) {
    if (counts.size() != rows.size()) throw std::invalid_argument("rows and counts must be as many");
    std::vector<LogitRow> list;
    for (const In<float, 1>& row : rows) list.push_back(row_of(row));
    std::vector<Expectation> found(rows.size());
    {
        const nb::gil_scoped_release release;
        sampler.expect(list, counts, found.data());
    }
    std::vector<ExpectationTuple> told;
    for (size_t i = 0; i < rows.size(); ++i) {
        std::vector<std::pair<int32_t, float>> top;
        for (const int32_t id : found[i].ids) top.emplace_back(id, list[i].logits[id]);
        told.emplace_back(found[i].peak, found[i].total, std::move(top));
    }
    return told;
}

}  // namespace

void bind_sampling(nb::module_& m) {
    nb::class_<RowSampler>(m, "RowSampler")
        .def(nb::init<std::shared_ptr<Runtime>>(), nb::arg("runtime"))
        .def("draw", &draw, nb::arg("rows").noconvert(), nb::arg("filters"), nb::arg("uniforms"))
        .def("expect", &expect, nb::arg("rows").noconvert(), nb::arg("counts"));
}

}  // namespace octavo::bind
