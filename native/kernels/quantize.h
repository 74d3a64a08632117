// Activations to the form a kernel wants: 8-bit groups, bf16 pairs, or floats. Includer defines OCTAVO_NS.
#pragma once

namespace octavo::OCTAVO_NS {
namespace {

// One group of G values: codes = round(x * 127 / max|x|), ties to even; scale = max|x| / 127. The maximum is taken on
// the bits, where not-a-number is above infinity: such a group gets a scale that spoils its row, never a wild code.
template <int G>
OCTAVO_INLINE void quantize_group(const float* x, uint8_t* codes, uint8_t* scale_at, size_t plane) {
    constexpr int kV = G / 16;
    VF v[kV];
    VI top = vi_set(0);
    for (int i = 0; i < kV; ++i) {
        v[i] = vf_load(x + 16 * i);
        top = vi_max(top, vf_abs_bits(v[i]));
    }
    const int32_t bits = vi_max_lane(top);
    float largest;
    std::memcpy(&largest, &bits, 4);
    const bool tiny = bits < 0x01000000;  // 2^-125: 127 / largest would overflow, and such values are noise
    const float inverse = tiny ? 0.0F : 127.0F / largest;
    const float scale = tiny ? 0.0F : largest / 127.0F;
    VI sum = vi_set(0);
    for (int i = 0; i < kV; ++i) {
        const VF scaled = vf_max(vf_min(v[i] * vf_set(inverse), vf_set(127.0F)), vf_set(-127.0F));
        const VI q = to_int(scaled);
        vi_store_i8(codes + 16 * i, q);
        sum = sum + q;
    }
    const int32_t total = vi_sum_lanes(sum);
    const float scaled_total = scale * static_cast<float>(total);
    std::memcpy(scale_at, &scale, 4);
    std::memcpy(scale_at + plane, &total, 4);
    std::memcpy(scale_at + 2 * plane, &scaled_total, 4);
}

template <int G>
void quantize_row(const float* x, int k, uint8_t* row) {
    const int count = k / G;
    const size_t plane = 4 * static_cast<size_t>(count);
    uint8_t* scales = row + k;
    for (int g = 0; g < count; ++g) {
        quantize_group<G>(x, row, scales, plane);
        x += G;
        row += G;
        scales += 4;
    }
}

void quantize(const float* x, ptrdiff_t ldx, const int32_t* index, Range rows, int k, ActKind kind, uint8_t* act) {
    const size_t stride = act_row_stride(kind, k);
    for (int r = rows.begin; r < rows.end; ++r) {
        const float* from = x + ldx * (index != nullptr ? index[r] : r);
        uint8_t* to = act + stride * static_cast<size_t>(r);
        switch (kind) {
            case ActKind::Q8x32: quantize_row<32>(from, k, to); break;
            case ActKind::Q8x16: quantize_row<16>(from, k, to); break;
            case ActKind::BF16: store_bf16_pairs(from, k, to); break;
            case ActKind::F32: std::memcpy(to, from, 4 * static_cast<size_t>(k)); break;
        }
    }
}

}  // namespace
}  // namespace octavo::OCTAVO_NS
