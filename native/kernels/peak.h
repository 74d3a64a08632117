// Loops that do nothing but arithmetic in registers: the limits that kernels are measured against. Includer defines OCTAVO_NS.
#pragma once

namespace octavo::OCTAVO_NS {
namespace {

// Keeps a value alive without storing it.
template <class T>
OCTAVO_INLINE void keep(T& v) {
    asm volatile("" : "+m"(v));
}

// Products of small codes, summed as narrowly as the instruction set allows and never widened. The weights pass through
// an empty asm statement, or the compiler would see that they never change.
double peak_int8(int iterations) {
    using Dot = DotOf<Code::U4>::type;
    constexpr int kChains = 5;
    alignas(64) uint8_t ones[64];
    std::memset(ones, 1, sizeof ones);
    keep(ones);
    const Bytes start = load_bytes(ones);
    const Quad x = quad(ones);
    Dot dots[kChains];
    for (int c = 0; c < kChains; ++c) {
        dots[c].start(0);
        dots[c].step(Dot::weights(start), x, true);
    }
    for (int i = 0; i < iterations; ++i) {
        const typename Dot::Weights w = Dot::weights(opaque(start));
#pragma GCC unroll 5
        for (int c = 0; c < kChains; ++c) dots[c].step(w, x, false);
    }
    VF sum = vf_set(0.0F);
    for (int c = 0; c < kChains; ++c) {
        dots[c].settle(true);
        sum = sum + to_float(dots[c].finish());
    }
    keep(sum);
    return 2.0 * 64 * kChains * iterations;
}

double peak_f32(int iterations) {
    constexpr int kChains = 5;
    float one = 1.0F;
    keep(one);
    const VF x = vf_set(one);
    VF sums[kChains] = {x, x, x, x, x};
    for (int i = 0; i < iterations; ++i) {
#pragma GCC unroll 5
        for (VF& s : sums) s = vf_fma(x, x, s);
    }
    VF sum = vf_set(0.0F);
    for (VF& s : sums) sum = sum + s;
    keep(sum);
    return 2.0 * kPanel * kChains * iterations;
}

}  // namespace
}  // namespace octavo::OCTAVO_NS
