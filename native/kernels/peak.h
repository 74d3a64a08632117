// Loops that do nothing but arithmetic in registers: the limits that kernels are measured against. Includer defines OCTAVO_NS.
#pragma once

#include <utility>

namespace octavo::OCTAVO_NS {
namespace {

// Independent sums, so that none waits for its own last addition: that takes about 4 cycles, and 2 begin in each. A sum is
// one register with AVX-512, two with AVX2, four of 16 bytes.
inline constexpr int kPeakSums = kIsa == Isa::Avx512 ? 10 : kIsa == Isa::Avx2 ? 5 : 3;

// Keeps a value alive without storing it.
template <class T>
OCTAVO_INLINE void keep(T& v) {
    asm volatile("" : "+m"(v));
}

// Adds to every sum `iterations` times. Sums are parameters and not an array: GCC keeps an array of them in memory, and
// then measures that. total: of a sum, to end with.
template <class Add, class Total, class... Sum>
OCTAVO_INLINE void spin(int iterations, const Add& add, const Total& total, Sum... sums) {
    for (int i = 0; i < iterations; ++i) (add(sums), ...);
    VF all = vf_set(0.0F);
    ((all = all + total(sums)), ...);
    keep(all);
}

// Distinct values behind the compiler's back: of equal sums it computes one, and the loop then claims more than there is.
template <int... I, class Start, class Add, class Total>
OCTAVO_INLINE void spin_sums(std::integer_sequence<int, I...>, int iterations, const Start& start, const Add& add,
                             const Total& total) {
    int numbers[sizeof...(I)] = {I...};
    keep(numbers);
    spin(iterations, add, total, start(numbers[I])...);
}

// wide: each step's sums are widened to 32 bits at once; otherwise they stay as narrow as the instruction set allows, and
// overflow. Weights pass through an empty asm statement before every step, or equal products would be computed once.
template <Code C, bool wide>
double peak_dot(int iterations) {
    using Dot = typename DotOf<C>::type;
    alignas(64) uint8_t ones[64];
    std::memset(ones, 1, sizeof ones);
    keep(ones);
    typename Dot::Weights w = Dot::weights(load_bytes(ones));
    const Quad x = quad(ones);
    const auto step = [&](Dot& dot, bool first) {
        dot.step(w = opaque(w), x, first);
        if (wide || first) dot.settle(first);
    };
    const auto start = [&](int number) {
        Dot dot;
        dot.start(number);
        step(dot, true);
        return dot;
    };
    spin_sums(std::make_integer_sequence<int, kPeakSums>(), iterations, start, [&](Dot& dot) { step(dot, false); },
              [](Dot& dot) {
                  if (!wide) dot.settle(false);
                  return to_float(dot.finish());
              });
    return 2.0 * 64 * kPeakSums * iterations;
}

// add: `products` products to each of the 16 lanes.
template <class Add>
OCTAVO_INLINE double peak_float(int iterations, int products, const Add& add) {
    spin_sums(std::make_integer_sequence<int, kPeakSums>(), iterations,
              [](int number) { return vf_set(static_cast<float>(number)); }, add, [](VF s) { return s; });
    return 2.0 * products * kPanel * kPeakSums * iterations;
}

double peak_bf16(int iterations) {
    alignas(64) uint8_t ones[64];
    std::memset(ones, 0x3c, sizeof ones);
    keep(ones);
    const PairWeights w = pair_weights(ones);
    const PairInput x = pair_input(ones, 0);
    return peak_float(iterations, 2, [&](VF& s) { s = pair_dot(w, x, s); });
}

double peak_f32(int iterations) {
    float one = 1.0F;
    keep(one);
    const VF x = vf_set(one);
    return peak_float(iterations, 1, [&](VF& s) { s = vf_fma(x, x, s); });
}

}  // namespace
}  // namespace octavo::OCTAVO_NS
