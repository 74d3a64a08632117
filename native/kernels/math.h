// exp, tanh and the activations over sixteen lanes, in a fixed order of operations. Includer defines OCTAVO_NS.
#pragma once

#include <math.h>

namespace octavo::OCTAVO_NS {
namespace {

// e^x to about 1 ulp for x in [-87, 88]; clamped outside, so it never overflows. Not a number stays so.
// Cody-Waite reduction by ln 2 in two parts, then the degree-6 minimax polynomial of Cephes' expf.
OCTAVO_INLINE VF vf_exp(VF x) {
    x = vf_max(vf_set(-87.0F), vf_min(vf_set(88.0F), x));
    const VI n = to_int(x * vf_set(1.44269504088896341F));
    const VF nf = to_float(n);
    VF r = vf_fma(nf, vf_set(-0.693359375F), x);
    r = vf_fma(nf, vf_set(2.12194440e-4F), r);
    VF p = vf_set(1.9875691500e-4F);
    p = vf_fma(p, r, vf_set(1.3981999507e-3F));
    p = vf_fma(p, r, vf_set(8.3334519073e-3F));
    p = vf_fma(p, r, vf_set(4.1665795894e-2F));
    p = vf_fma(p, r, vf_set(1.6666665459e-1F));
    p = vf_fma(p, r, vf_set(5.0000001201e-1F));
    p = vf_fma(p, r * r, r) + vf_set(1.0F);
    return p * vf_pow2(n);
}

OCTAVO_INLINE VF vf_sigmoid_times(VF x, VF z) { return x / (vf_set(1.0F) + vf_exp(vf_set(0.0F) - z)); }

OCTAVO_INLINE VF vf_tanh(VF x) {
    return vf_set(1.0F) - vf_set(2.0F) / (vf_set(1.0F) + vf_exp(x + x));
}

OCTAVO_INLINE VF vf_gelu_tanh(VF x) {
    const VF cubic = vf_fma(x * x * x, vf_set(0.044715F), x);
    return vf_sigmoid_times(x, cubic * vf_set(2.0F * 0.7978845608028654F));
}

// The exact form is rare in the models we serve, so it takes the library's erff lane by lane.
inline VF vf_gelu(VF x) {
    float lanes[kPanel];
    vf_store(lanes, x);
    for (float& v : lanes) v = 0.5F * v * (1.0F + ::erff(v * 0.70710678118654752F));
    return vf_load(lanes);
}

OCTAVO_INLINE VF vf_activate(VF x, Activation a) {
    switch (a) {
        case Activation::None: return x;
        case Activation::Silu: return vf_sigmoid_times(x, x);
        case Activation::Gelu: return vf_gelu(x);
        case Activation::GeluTanh: return vf_gelu_tanh(x);
        case Activation::Relu: return vf_max(x, vf_set(0.0F));
    }
    return x;
}

}  // namespace
}  // namespace octavo::OCTAVO_NS
