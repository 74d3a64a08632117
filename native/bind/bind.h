// Shared by the parts of the Python module: argument types and what Python objects hold.
#pragma once

#include "core/program.h"
#include "core/tape.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>

namespace octavo::bind {

namespace nb = nanobind;

template <class T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T, int N>
using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

// A tape, or a program, and the Python array that its KV pool lives in.
struct PyTape {
    Tape tape;
    nb::object memory;
};
struct PyProgram {
    std::unique_ptr<Program> program;
    nb::object memory;
};

// What module.cpp adds to matrices and pools: constants, the tape, programs, octavo's errors, and what sends.
void bind_engine(nb::module_& m);
void bind_recording(nb::module_& m);
void bind_program(nb::module_& m);
void bind_sampling(nb::module_& m);
void bind_sends(nb::module_& m);

}  // namespace octavo::bind
