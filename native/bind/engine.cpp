// What the tape needs besides matrices: a runtime, constants, and faults as octavo's errors.
#include "bench/attention.h"
#include "bench/limits.h"
#include "bind/bind.h"
#include "core/faults.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <initializer_list>
#include <stdexcept>
#include <string>

namespace octavo::bind {
namespace {

void raise(const char* name, const char* what, const char* param) {
    const nb::object type = nb::module_::import_("octavo.errors").attr(name);
    const nb::object error = param == nullptr ? type(what) : type(what, nb::arg("param") = param);
    PyErr_SetObject(type.ptr(), error.ptr());
}

void translate(const std::exception_ptr& fault, void*) {
    try {
        std::rethrow_exception(fault);
    } catch (const KVFault& e) {
        raise("KVError", e.what(), nullptr);
    } catch (const RequestFault& e) {
        raise("InvalidRequest", e.what(), "prompt");
    }
}

const Kernels& kernels_named(const std::string& name) {
    for (const Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512})
        if (name == isa_name(isa) && kernels_for(isa) != nullptr) return *kernels_for(isa);
    throw std::invalid_argument("this build on this machine has no instruction set " + name);
}

std::shared_ptr<Runtime> make_runtime(const std::string& name, std::shared_ptr<ThreadPool> pool) {
    return std::make_shared<Runtime>(kernels_named(name), std::move(pool));
}

MachineLimits limits(const std::string& isa, ThreadPool& pool) {
    const Kernels& kernels = kernels_named(isa);
    const nb::gil_scoped_release release;
    return measure_limits(kernels, pool);
}

// Room for one more panel: a lone part is cut in two.
size_t packed_bytes(const std::string& type, int n, int k) {
    for (int i = 0; i <= static_cast<int>(Source::Q6_K); ++i) {
        const SourceInfo& source = info(static_cast<Source>(i));
        if (type == source.name) return panel_bytes(source.format, k) * static_cast<size_t>(panels(n) + 1);
    }
    throw std::invalid_argument("no storage type " + type);
}

std::shared_ptr<Constant> make_constant(const In<float, 1>& values) {
    return std::make_shared<Constant>(Constant{{values.data(), values.data() + values.size()}});
}

AttentionTime attention_time(const std::string& isa, ThreadPool& pool, int sequences, int context, int fresh, int heads,
                             int kv_heads, int head_size, int layers, int block_size, double seconds) {
    AttentionCase what;
    what.sequences = sequences;
    what.context = context;
    what.fresh = fresh;
    what.heads = heads;
    what.kv_heads = kv_heads;
    what.head_size = head_size;
    what.layers = layers;
    what.block_size = block_size;
    const Kernels& kernels = kernels_named(isa);
    const nb::gil_scoped_release release;
    return time_attention(kernels, pool, what, seconds);
}

void bind_timing(nb::module_& m) {
    nb::class_<MachineLimits>(m, "MachineLimits")
        .def_ro("read_bytes", &MachineLimits::read_bytes)
        .def_ro("int8", &MachineLimits::int8)
        .def_ro("exact_int8", &MachineLimits::exact_int8)
        .def_ro("bf16", &MachineLimits::bf16)
        .def_ro("f32", &MachineLimits::f32)
        .def_ro("fork_join", &MachineLimits::fork_join);
    m.def("measure_limits", &limits, nb::arg("isa"), nb::arg("pool"));
    nb::class_<AttentionTime>(m, "AttentionTime")
        .def_ro("median", &AttentionTime::seconds)
        .def_ro("least", &AttentionTime::least)
        .def_ro("most", &AttentionTime::most)
        .def_ro("bytes", &AttentionTime::bytes)
        .def_ro("operations", &AttentionTime::operations);
    m.def("time_attention", &attention_time, nb::arg("isa"), nb::arg("pool"), nb::kw_only(), nb::arg("sequences"),
          nb::arg("context"), nb::arg("fresh"), nb::arg("heads"), nb::arg("kv_heads"), nb::arg("head_size"), nb::arg("layers"),
          nb::arg("block_size"), nb::arg("seconds"));
}

}  // namespace

void bind_engine(nb::module_& m) {
    nb::register_exception_translator(&translate);
    m.def("packed_bytes", &packed_bytes, nb::arg("type"), nb::arg("n"), nb::arg("k"), "At most what a matrix takes.");
    bind_timing(m);
    nb::class_<Runtime>(m, "Runtime").def(nb::new_(&make_runtime), nb::arg("isa"), nb::arg("pool"));
    nb::class_<Constant>(m, "Constant")
        .def(nb::new_(&make_constant), nb::arg("values").noconvert())
        .def("__len__", [](const Constant& c) { return c.size(); });
    bind_recording(m);
    bind_program(m);
    bind_sampling(m);
}

}  // namespace octavo::bind
