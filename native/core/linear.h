// One linear layer over a packed matrix, as two phases that any number of threads share. Owns no memory and no threads.
#pragma once

#include "core/matrix.h"

namespace octavo {

// out[rows, n] = residual + activation(x . w + bias), softcapped; or, gated, out[rows, n / 2] = activation(gate) * up.
// Strides are in floats. `index`, when given, picks rows of x (logits of a few rows).
struct LinearCall {
    const Matrix* weight = nullptr;
    bool gated = false;
    const float* x = nullptr;
    ptrdiff_t x_stride = 0;
    const int32_t* index = nullptr;
    int rows = 0;
    float* out = nullptr;
    ptrdiff_t out_stride = 0;
    const float* bias = nullptr;
    const float* residual = nullptr;
    ptrdiff_t residual_stride = 0;
    Activation activation = Activation::None;
    float softcap = 0.0F;
    uint8_t* scratch = nullptr;  // scratch_bytes(*weight, rows), aligned to 64
};

// Room for the rows of x in every form that the matrix's formats want (one, rarely two).
size_t scratch_bytes(const Matrix& weight, int rows);

// Thread t of n takes its share of the rows. All threads must be done (a barrier) before any calls multiply.
void convert_rows(const LinearCall& call, int thread, int threads);

// Thread t of n takes its share of the outputs. Bits do not depend on n.
void multiply(const LinearCall& call, int thread, int threads);

// Both phases on a pool.
void run_linear(const LinearCall& call, ThreadPool& pool);

// Whether the matrix can be walked as gate above up: true where its two halves have equal segments.
bool splits_in_halves(const Matrix& weight);

}  // namespace octavo
