// What the tape needs besides matrices: a runtime, constants, and faults as octavo's errors.
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

std::shared_ptr<Runtime> make_runtime(const std::string& name, std::shared_ptr<ThreadPool> pool) {
    for (const Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512}) {
        if (name == isa_name(isa) && kernels_for(isa) != nullptr)
            return std::make_shared<Runtime>(*kernels_for(isa), std::move(pool));
    }
    throw std::invalid_argument("this build on this machine has no instruction set " + name);
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

}  // namespace

void bind_engine(nb::module_& m) {
    nb::register_exception_translator(&translate);
    m.def("packed_bytes", &packed_bytes, nb::arg("type"), nb::arg("n"), nb::arg("k"), "At most what a matrix takes.");
    nb::class_<Runtime>(m, "Runtime").def(nb::new_(&make_runtime), nb::arg("isa"), nb::arg("pool"));
    nb::class_<Constant>(m, "Constant")
        .def(nb::new_(&make_constant), nb::arg("values").noconvert())
        .def("__len__", [](const Constant& c) { return c.size(); });
    bind_recording(m);
    bind_program(m);
}

}  // namespace octavo::bind
