// The kernels of choosing tokens, one table an instruction set. All sets give the same bits.
#pragma once

namespace octavo {

inline constexpr int kSampleTile = 64;  // logits whose largest is known

// A logit weighs 2^((logit - peak) * scale).
struct WeightScale {
    float peak = 0.0F;
    float scale = 1.0F;
};

struct SamplingKernels {
    // The largest of each tile of `count` logits, the last of which may be short; returns the largest of all, or a NaN
    // where there is one among them.
    float (*scan)(const float* logits, int count, float* tiles);
    // Weights, multiples of 2^-34.
    void (*weigh)(const float* logits, int count, const WeightScale&, double* out);
    // Of each tile the sum of its weights. tiles: from `scan`.
    void (*sum)(const float* logits, int count, const float* tiles, const WeightScale&, double* sums);
};

}  // namespace octavo
