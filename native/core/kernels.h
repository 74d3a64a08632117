// The table of kernels that each instruction set fills. Plain data and function pointers: nothing here is compiled per ISA.
#pragma once

#include "core/format.h"

#include <cstddef>
#include <cstdint>

namespace octavo {

enum class Isa : uint8_t { Portable, Avx2, Avx512 };
enum class Activation : uint8_t { None, Silu, Gelu, GeluTanh, Relu };

// One packed matrix and the activations in the form it wants.
struct Operand {
    const uint8_t* weight = nullptr;
    Format format = Format::F32;
    const uint8_t* act = nullptr;
    size_t act_stride = 0;  // bytes from row to row
};

// out[r, j] = residual[r, j] + activation(x[r] . w[j] + bias[j]), then softcap * tanh(. / softcap) where softcap > 0.
// With `gated`: out[r, j] = activation(x[r] . w[j]) * (x[r] . up[j]).
struct LinearTask {
    Operand w;
    Operand up;
    bool gated = false;
    int rows = 0;
    int n = 0;
    int k = 0;
    float* out = nullptr;
    ptrdiff_t out_stride = 0;  // floats
    const float* bias = nullptr;
    const float* residual = nullptr;
    ptrdiff_t residual_stride = 0;
    Activation activation = Activation::None;
    float softcap = 0.0F;
};

struct Range {
    int begin;
    int end;
};

struct Kernels {
    Isa isa;
    bool biased_bytes;  // 8-bit signed codes are stored plus 128, because this ISA's dot product wants them unsigned

    ActKind (*act_kind)(Format);
    // x[rows, k] (floats, stride ldx) to act rows of the given kind. `index`, when given, picks the rows of x.
    void (*quantize)(const float* x, ptrdiff_t ldx, const int32_t* index, Range rows, int k, ActKind kind, uint8_t* act);
    // Rows [rows) of panels [panels) of the result. Any split into ranges gives the same bits.
    void (*linear)(const LinearTask& task, Range rows, Range panels);
    // What the arithmetic units can do at best, for measurement: each call returns the operations (2 a product) it did.
    // exact: sums of any signed 8-bit codes, where the plain one leaves out what widening costs.
    double (*peak_int8)(int iterations);
    double (*peak_exact_int8)(int iterations);
    double (*peak_bf16)(int iterations);
    double (*peak_f32)(int iterations);
};

}  // namespace octavo
