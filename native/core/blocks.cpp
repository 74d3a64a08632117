#include "core/blocks.h"

#include <cstring>

namespace octavo {

namespace {

constexpr SourceInfo kSources[] = {
    {"F32", 1, 4, Format::F32},       {"F16", 1, 2, Format::F32},       {"BF16", 1, 2, Format::BF16},
    {"Q4_0", 32, 18, Format::Q4_0},   {"Q4_1", 32, 20, Format::Q4_1},   {"Q5_0", 32, 22, Format::Q5_0},
    {"Q5_1", 32, 24, Format::Q5_1},   {"Q8_0", 32, 34, Format::Q8_0},   {"Q2_K", 256, 84, Format::Q2_K},
    {"Q3_K", 256, 110, Format::Q3_K}, {"Q4_K", 256, 144, Format::Q4_K}, {"Q5_K", 256, 176, Format::Q5_K},
    {"Q6_K", 256, 210, Format::Q6_K},
};

uint16_t load_u16(const uint8_t* p) {
    uint16_t v;
    std::memcpy(&v, p, 2);
    return v;
}
uint32_t load_u32(const uint8_t* p) {
    uint32_t v;
    std::memcpy(&v, p, 4);
    return v;
}

// 32 values whose low nibbles are the first half: the 4- and 5-bit types of 32.
void nibbles32(const uint8_t* q, uint32_t high, uint8_t* codes) {
    for (int i = 0; i < 16; ++i) {
        codes[i] = static_cast<uint8_t>((q[i] & 15) | ((high >> i & 1) << 4));
        codes[i + 16] = static_cast<uint8_t>((q[i] >> 4) | ((high >> (i + 16) & 1) << 4));
    }
}

// The 6-bit scale and minimum of sub-block j, packed in 12 bytes (Q4_K, Q5_K).
void scale_min_k4(int j, const uint8_t* q, int& scale, int& min) {
    if (j < 4) {
        scale = q[j] & 63;
        min = q[j + 4] & 63;
    } else {
        scale = (q[j + 4] & 15) | ((q[j - 4] >> 6) << 4);
        min = (q[j + 4] >> 4) | ((q[j] >> 6) << 4);
    }
}

void scales_k4(const uint8_t* from, Block& to) {
    const float d = f16_to_f32(load_u16(from));
    const float dmin = f16_to_f32(load_u16(from + 2));
    for (int j = 0; j < 8; ++j) {
        int scale;
        int min;
        scale_min_k4(j, from + 4, scale, min);
        to.scale[j] = d * static_cast<float>(scale);
        to.min[j] = -(dmin * static_cast<float>(min));
    }
}

void decode_q4_k(const uint8_t* from, Block& to) {
    scales_k4(from, to);
    const uint8_t* q = from + 16;
    for (int chunk = 0; chunk < 4; ++chunk) {
        for (int i = 0; i < 32; ++i) {
            to.codes[64 * chunk + i] = q[32 * chunk + i] & 15;
            to.codes[64 * chunk + 32 + i] = q[32 * chunk + i] >> 4;
        }
    }
}

void decode_q5_k(const uint8_t* from, Block& to) {
    scales_k4(from, to);
    const uint8_t* high = from + 16;
    const uint8_t* q = from + 48;
    for (int chunk = 0; chunk < 4; ++chunk) {
        for (int i = 0; i < 32; ++i) {
            const int low = q[32 * chunk + i];
            to.codes[64 * chunk + i] = static_cast<uint8_t>((low & 15) | ((high[i] >> (2 * chunk) & 1) << 4));
            to.codes[64 * chunk + 32 + i] = static_cast<uint8_t>((low >> 4) | ((high[i] >> (2 * chunk + 1) & 1) << 4));
        }
    }
}

void decode_q6_k(const uint8_t* from, Block& to) {
    const uint8_t* low = from;
    const uint8_t* high = from + 128;
    const int8_t* scales = reinterpret_cast<const int8_t*>(from + 192);
    const float d = f16_to_f32(load_u16(from + 208));
    for (int j = 0; j < 16; ++j) to.scale[j] = d * static_cast<float>(scales[j]);
    for (int half = 0; half < 2; ++half) {
        const uint8_t* l = low + 64 * half;
        const uint8_t* h = high + 32 * half;
        uint8_t* out = to.codes + 128 * half;
        for (int i = 0; i < 32; ++i) {
            out[i] = static_cast<uint8_t>((l[i] & 15) | ((h[i] & 3) << 4));
            out[i + 32] = static_cast<uint8_t>((l[i + 32] & 15) | ((h[i] >> 2 & 3) << 4));
            out[i + 64] = static_cast<uint8_t>((l[i] >> 4) | ((h[i] >> 4 & 3) << 4));
            out[i + 96] = static_cast<uint8_t>((l[i + 32] >> 4) | ((h[i] >> 6) << 4));
        }
    }
}

void decode_q2_k(const uint8_t* from, Block& to) {
    const float d = f16_to_f32(load_u16(from + 80));
    const float dmin = f16_to_f32(load_u16(from + 82));
    for (int j = 0; j < 16; ++j) {
        to.scale[j] = d * static_cast<float>(from[j] & 15);
        to.min[j] = -(dmin * static_cast<float>(from[j] >> 4));
    }
    const uint8_t* q = from + 16;
    for (int i = 0; i < 256; ++i) {
        const int half = i / 128;
        const int shift = 2 * (i % 128 / 32);
        to.codes[i] = q[32 * half + i % 32] >> shift & 3;
    }
}

// Codes 0..7 with zero 4: the high bit says "do not subtract 4".
void decode_q3_k(const uint8_t* from, Block& to) {
    const uint8_t* high = from;
    const uint8_t* q = from + 32;
    const uint8_t* s = from + 96;
    const float d = f16_to_f32(load_u16(from + 108));
    for (int j = 0; j < 16; ++j) {
        const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        const int top = s[8 + j % 4] >> (2 * (j / 4)) & 3;
        to.scale[j] = d * static_cast<float>((low | top << 4) - 32);
    }
    for (int i = 0; i < 256; ++i) {
        const int half = i / 128;
        const int lane = i % 128 / 32;
        const int low = q[32 * half + i % 32] >> (2 * lane) & 3;
        const int bit = high[i % 32] >> (4 * half + lane) & 1;
        to.codes[i] = static_cast<uint8_t>(low | bit << 2);
    }
}

}  // namespace

const SourceInfo& info(Source s) { return kSources[static_cast<int>(s)]; }

float f16_to_f32(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
    const uint32_t exponent = h >> 10 & 31;
    const uint32_t fraction = h & 0x3ff;
    float value;
    if (exponent == 0) {
        value = static_cast<float>(fraction) * 5.9604644775390625e-8F;  // 2^-24
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        bits |= sign;
        std::memcpy(&value, &bits, 4);
        return value;
    }
    const uint32_t bits = sign | (exponent == 31 ? 0x7f800000U : (exponent + 112) << 23) | fraction << 13;
    std::memcpy(&value, &bits, 4);
    return value;
}

void decode(Source s, const uint8_t* from, Block& to) {
    to.scale16 = load_u16(from);
    to.min16 = load_u16(from + 2);
    switch (s) {
        case Source::Q4_0: nibbles32(from + 2, 0, to.codes); break;
        case Source::Q4_1: nibbles32(from + 4, 0, to.codes); break;
        case Source::Q5_0: nibbles32(from + 6, load_u32(from + 2), to.codes); break;
        case Source::Q5_1: nibbles32(from + 8, load_u32(from + 4), to.codes); break;
        case Source::Q8_0: std::memcpy(to.codes, from + 2, 32); break;
        case Source::Q2_K: decode_q2_k(from, to); break;
        case Source::Q3_K: decode_q3_k(from, to); break;
        case Source::Q4_K: decode_q4_k(from, to); break;
        case Source::Q5_K: decode_q5_k(from, to); break;
        case Source::Q6_K: decode_q6_k(from, to); break;
        case Source::F32:
        case Source::F16:
        case Source::BF16: break;
    }
}

}  // namespace octavo
