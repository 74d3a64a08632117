// Loops that do nothing but arithmetic in registers: the limits that kernels are measured against. Includer defines OCTAVO_NS.
#pragma once

namespace octavo::OCTAVO_NS {
namespace {

// Keeps a value alive without storing it.
template <class T>
OCTAVO_INLINE void keep(T& v) {
    asm volatile("" : "+m"(v));
}

// Products of small codes, summed as narrowly as the instruction set allows and never widened. The weights pass
// through an empty asm statement before every step: with equal operands GCC computes one product for all chains, and the
// loop then claims more than the multipliers can do. The chains are named one by one: GCC keeps an
// array of them in memory, and then measures that.
double peak_int8(int iterations) {
    using Dot = DotOf<Code::U4>::type;
    alignas(64) uint8_t ones[64];
    std::memset(ones, 1, sizeof ones);
    keep(ones);
    Bytes bytes = load_bytes(ones);
    const Quad x = quad(ones);
    Dot a;
    a.start(0);
    a.step(Dot::weights(bytes), x, true);
    Dot b = a;
    Dot c = a;
    Dot d = a;
    Dot e = a;
    for (int i = 0; i < iterations; ++i) {
        a.step(Dot::weights(bytes = opaque(bytes)), x, false);
        b.step(Dot::weights(bytes = opaque(bytes)), x, false);
        c.step(Dot::weights(bytes = opaque(bytes)), x, false);
        d.step(Dot::weights(bytes = opaque(bytes)), x, false);
        e.step(Dot::weights(bytes = opaque(bytes)), x, false);
    }
    VF sum = vf_set(0.0F);
    a.settle(true);
    b.settle(true);
    c.settle(true);
    d.settle(true);
    e.settle(true);
    sum = sum + to_float(a.finish()) + to_float(b.finish()) + to_float(c.finish()) + to_float(d.finish()) + to_float(e.finish());
    keep(sum);
    return 2.0 * 64 * 5 * iterations;
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
