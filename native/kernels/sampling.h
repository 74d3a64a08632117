// Kernels of choosing tokens: peaks and exact weights of a row of logits, tile by tile. See docs/decisions/0012-sampling.md.
// Includer defines OCTAVO_NS.
#pragma once

#include "core/sampling_kernels.h"

#include <limits>

namespace octavo::OCTAVO_NS {
namespace {

// Widest vectors of doubles that the compiler cuts to the machine's own.
using Doubles = double __attribute__((vector_size(64)));
using Floats = float __attribute__((vector_size(32)));

struct Weights {
    Doubles low, high;  // lanes 0 to 7, 8 to 15
};

// The first `count` lanes of x, minus infinity beyond.
OCTAVO_INLINE VF logits_at(const float* x, int count) {
    if (count >= kPanel) return vf_load(x);
    float lanes[kPanel];
    for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
    std::memcpy(lanes, x, sizeof(float) * static_cast<size_t>(count));
    return vf_load(lanes);
}

// Weights before they are rounded to their grain. Each operation rounds once, and none is fused: numpy's do the same.
OCTAVO_INLINE VF powers(VF x, const WeightScale& s) {
    const VF t = vf_max((x - vf_set(s.peak)) * vf_set(s.scale), vf_set(-64.0F));
    const VI n = to_int(t);
    const VF f = t - to_float(n);
    VF p = vf_set(0x1.41fbbcp-13F);
    p = p * f + vf_set(0x1.5f3e54p-10F);
    p = p * f + vf_set(0x1.3b2d4cp-7F);
    p = p * f + vf_set(0x1.c6aee8p-5F);
    p = p * f + vf_set(0x1.ebfbdcp-3F);
    p = p * f + vf_set(0x1.62e43p-1F);
    return (p * f + vf_set(1.0F)) * vf_pow2(n);
}

OCTAVO_INLINE Weights weigh_lanes(VF x, const WeightScale& s) {
    constexpr double kGrain = 1.5 * 262144.0;
    float lanes[kPanel];
    vf_store(lanes, powers(x, s));
    Floats low;
    Floats high;
    std::memcpy(&low, lanes, sizeof low);
    std::memcpy(&high, lanes + 8, sizeof high);
    return {(__builtin_convertvector(low, Doubles) + kGrain) - kGrain, (__builtin_convertvector(high, Doubles) + kGrain) - kGrain};
}

float scan_logits(const float* x, int count, float* tiles) {
    VI size = vi_set(0);
    float peak = -std::numeric_limits<float>::infinity();
    for (int begin = 0; begin < count; begin += kSampleTile) {
        VF top = vf_set(-std::numeric_limits<float>::infinity());
        const int end = begin + kSampleTile < count ? begin + kSampleTile : count;
        for (int i = begin; i < end; i += kPanel) {
            const VF v = logits_at(x + i, end - i);
            top = vf_max(v, top);
            size = vi_max(size, vf_abs_bits(v));
        }
        tiles[begin / kSampleTile] = vf_max_lane(top);
        peak = tiles[begin / kSampleTile] > peak ? tiles[begin / kSampleTile] : peak;
    }
    return vi_max_lane(size) > 0x7f800000 ? std::numeric_limits<float>::quiet_NaN() : peak;
}

void weigh_logits(const float* x, int count, const WeightScale& s, double* out) {
    for (int i = 0; i < count; i += kPanel) {
        const Weights w = weigh_lanes(logits_at(x + i, count - i), s);
        const int width = count - i < kPanel ? count - i : kPanel;
        double lanes[kPanel];
        std::memcpy(lanes, &w, sizeof lanes);
        std::memcpy(out + i, lanes, sizeof(double) * static_cast<size_t>(width));
    }
}

// The sum over at most a tile of weights below 2^-12, in grains: 64 integers below 2^22.
OCTAVO_INLINE double sum_small(const float* x, int count, const WeightScale& s) {
    VI grains = vi_set(0);
    for (int i = 0; i < count; i += kPanel) grains = grains + to_int(powers(logits_at(x + i, count - i), s) * vf_set(0x1p34F));
    return static_cast<double>(vi_sum_lanes(grains)) * 0x1p-34;
}

double sum_any(const float* x, int count, const WeightScale& s) {
    Doubles total = {};
    for (int i = 0; i < count; i += kPanel) {
        const Weights w = weigh_lanes(logits_at(x + i, count - i), s);
        total += w.low + w.high;
    }
    double sum = 0.0;
    for (int i = 0; i < 8; ++i) sum += total[i];
    return sum;
}

void sum_weights(const float* x, int count, const float* tiles, const WeightScale& s, double* sums) {
    for (int begin = 0; begin < count; begin += kSampleTile) {
        const float reach = (tiles[begin / kSampleTile] - s.peak) * s.scale;
        const int width = count - begin < kSampleTile ? count - begin : kSampleTile;
        double& sum = sums[begin / kSampleTile];
        if (reach < -36.0F) sum = 0.0;  // every weight is rounded to 0
        else sum = reach < -13.0F ? sum_small(x + begin, width, s) : sum_any(x + begin, width, s);
    }
}

}  // namespace
}  // namespace octavo::OCTAVO_NS
