// Kernels that walk rows: norms, rotary embedding, sums, storing keys and values, the largest value. Every row is
// computed alike wherever it stands. Includer defines OCTAVO_NS.
#pragma once

#include <cmath>
#include <cstring>

namespace octavo::OCTAVO_NS {
namespace {

// The first `width` lanes of p, zeros beyond; nothing past them is read.
OCTAVO_INLINE VF load_some(const float* p, int width) {
    if (width >= kPanel) return vf_load(p);
    float lanes[kPanel] = {};
    std::memcpy(lanes, p, sizeof(float) * static_cast<size_t>(width));
    return vf_load(lanes);
}

OCTAVO_INLINE void store_some(float* p, VF value, int width) {
    if (width >= kPanel) return vf_store(p, value);
    float lanes[kPanel];
    vf_store(lanes, value);
    std::memcpy(p, lanes, sizeof(float) * static_cast<size_t>(width));
}

// Sum of (x - mean)^2 over `width` values, lane by lane, then across lanes.
float power(const float* x, int width, float mean) {
    VF sum = vf_set(0.0F);
    int i = 0;
    for (; i + kPanel <= width; i += kPanel) {
        const VF v = vf_load(x + i) - vf_set(mean);
        sum = vf_fma(v, v, sum);
    }
    if (i < width) {
        const VF v = vf_keep(load_some(x + i, width - i) - vf_set(mean), 0, width - i, 0.0F);
        sum = vf_fma(v, v, sum);
    }
    return vf_sum_lanes(sum);
}

float mean_of(const float* x, int width) {
    VF sum = vf_set(0.0F);
    for (int i = 0; i < width; i += kPanel) sum = sum + load_some(x + i, width - i);
    return vf_sum_lanes(sum) / static_cast<float>(width);
}

void norm_group(const NormTask& t, const float* x, const float* residual, float* out) {
    const float mean = t.layer ? mean_of(x, t.width) : 0.0F;
    const float scale = 1.0F / std::sqrt(power(x, t.width, mean) / static_cast<float>(t.width) + t.eps);
    for (int i = 0; i < t.width; i += kPanel) {
        const int width = t.width - i;
        VF v = (load_some(x + i, width) - vf_set(mean)) * vf_set(scale) * load_some(t.weight + i, width);
        if (t.bias != nullptr) v = v + load_some(t.bias + i, width);
        if (residual != nullptr) v = load_some(residual + i, width) + v;
        store_some(out + i, v, width);
    }
}

void norm(const NormTask& t, Range rows) {
    for (int r = rows.begin; r < rows.end; ++r) {
        for (int g = 0; g < t.groups; ++g) {
            const int at = g * t.width;
            norm_group(t, t.x.row(r) + at, t.residual.data == nullptr ? nullptr : t.residual.row(r) + at, t.out.row(r) + at);
        }
    }
}

// Products are rounded before they are added (contraction is off), so vectors and their remainders agree.
void turn_halves(const float* __restrict x, const float* cosines, const float* sines, int half, float* __restrict out) {
    for (int i = 0; i < half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        out[i] = a * cosines[i] - b * sines[i];
        out[i + half] = b * cosines[i] + a * sines[i];
    }
}

void turn_neighbours(const float* __restrict x, const float* cosines, const float* sines, int half, float* __restrict out) {
    for (int i = 0; i < half; ++i) {
        const float a = x[2 * i];
        const float b = x[2 * i + 1];
        out[2 * i] = a * cosines[i] - b * sines[i];
        out[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
}

void rope(const RopeTask& t, Range rows) {
    for (int r = rows.begin; r < rows.end; ++r) {
        const float* cosines = t.table.row(r);
        const float* sines = cosines + t.half;
        for (int h = 0; h < t.heads; ++h) {
            const float* x = t.x.row(r) + h * t.head_size;
            float* out = t.out.row(r) + h * t.head_size;
            (t.interleaved ? turn_neighbours : turn_halves)(x, cosines, sines, t.half, out);
            const int rest = t.head_size - 2 * t.half;
            if (rest > 0) std::memcpy(out + 2 * t.half, x + 2 * t.half, sizeof(float) * static_cast<size_t>(rest));
        }
    }
}

void add(const Rows& a, const Rows& b, const Rows& out, int columns, Range rows) {
    for (int r = rows.begin; r < rows.end; ++r)
        for (int i = 0; i < columns; i += kPanel)
            store_some(out.row(r) + i, load_some(a.row(r) + i, columns - i) + load_some(b.row(r) + i, columns - i), columns - i);
}

// Up to 16 values in the pool's format.
OCTAVO_INLINE void narrow(const float* x, int width, uint16_t* lanes) { vf_store_bf16(lanes, load_some(x, width)); }

void store_key(const KVPool& pool, const float* k, uint8_t* keys, int offset) {
    const size_t stride = pool.key_stride();
    const size_t first = pool.key_index(offset, 0);
    if (!pool.bf16) {
        float* to = reinterpret_cast<float*>(keys) + first;
        for (int d = 0; d < pool.head_size; ++d) to[static_cast<size_t>(d) * stride] = k[d];
        return;
    }
    uint16_t* to = reinterpret_cast<uint16_t*>(keys) + first;
    const int step = pool.paired() ? 2 : 1;
    for (int i = 0; i < pool.head_size; i += kPanel) {
        const int width = pool.head_size - i < kPanel ? pool.head_size - i : kPanel;
        uint16_t lanes[kPanel];
        narrow(k + i, width, lanes);
        for (int d = 0; d < width; d += step)
            std::memcpy(to + static_cast<size_t>((i + d) / step) * stride, lanes + d, sizeof(uint16_t) * static_cast<size_t>(step));
    }
}

void store_value(const KVPool& pool, const float* v, uint8_t* values, int offset) {
    const size_t at = static_cast<size_t>(offset) * static_cast<size_t>(pool.head_size);
    if (!pool.bf16) {
        std::memcpy(reinterpret_cast<float*>(values) + at, v, sizeof(float) * static_cast<size_t>(pool.head_size));
        return;
    }
    uint16_t* to = reinterpret_cast<uint16_t*>(values) + at;
    for (int i = 0; i < pool.head_size; i += kPanel) {
        const int width = pool.head_size - i;
        uint16_t lanes[kPanel];
        narrow(v + i, width, lanes);
        std::memcpy(to + i, lanes, sizeof(uint16_t) * static_cast<size_t>(width < kPanel ? width : kPanel));
    }
}

void store(const StoreTask& t, Range rows) {
    for (int r = rows.begin; r < rows.end; ++r) {
        const int64_t block = t.slots[r] / t.pool.block_size;
        const int offset = static_cast<int>(t.slots[r] % t.pool.block_size);
        for (int h = 0; h < t.pool.kv_heads; ++h) {
            store_key(t.pool, t.k.row(r) + h * t.pool.head_size, t.pool.keys(block, t.layer, h), offset);
            store_value(t.pool, t.v.row(r) + h * t.pool.head_size, t.pool.values(block, t.layer, h), offset);
        }
    }
}

// Floats in order as integers; -0 below 0, which the second pass undoes by comparing floats.
OCTAVO_INLINE int32_t ordered(int32_t bits) { return bits ^ static_cast<int32_t>(static_cast<uint32_t>(bits >> 31) >> 1); }

int32_t argmax(const float* values, int count) {
    int32_t top = INT32_MIN;
    int32_t size = 0;
    for (int i = 0; i < count; ++i) {
        int32_t bits;
        std::memcpy(&bits, values + i, 4);
        const int32_t magnitude = bits & 0x7fffffff;
        const int32_t place = ordered(bits);
        top = place > top ? place : top;
        size = magnitude > size ? magnitude : size;
    }
    const bool bad = size > 0x7f800000;
    const int32_t bits = ordered(top);
    float largest;
    std::memcpy(&largest, &bits, 4);
    for (int32_t i = 0; i < count; ++i)
        if (bad ? std::isnan(values[i]) : values[i] == largest) return i;
    return 0;
}

}  // namespace
}  // namespace octavo::OCTAVO_NS
