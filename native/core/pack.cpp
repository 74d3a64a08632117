#include "core/pack.h"

#include <cstring>

namespace octavo {

namespace {

// Code i of `group` values for output lane `lane`, inside one group's code bytes.
void store_codes(const uint8_t* codes, int group, bool nibbles, uint8_t flip, int lane, uint8_t* to) {
    const int quads = group / 4;
    if (!nibbles) {
        for (int j = 0; j < quads; ++j)
            for (int i = 0; i < 4; ++i) to[64 * j + 4 * lane + i] = codes[4 * j + i] ^ flip;
        return;
    }
    const int half = quads / 2;
    for (int j = 0; j < half; ++j)
        for (int i = 0; i < 4; ++i)
            to[64 * j + 4 * lane + i] = static_cast<uint8_t>(codes[4 * j + i] | codes[4 * (j + half) + i] << 4);
}

uint8_t load_code(const uint8_t* group_start, int group, bool nibbles, uint8_t flip, int lane, int i) {
    const int quad = i / 4;
    if (!nibbles) return group_start[64 * quad + 4 * lane + i % 4] ^ flip;
    const int half = group / 8;
    const uint8_t both = group_start[64 * (quad % half) + 4 * lane + i % 4];
    return quad < half ? both & 15 : both >> 4;
}

void pack_integer(Source source, const uint8_t* row, int k, bool biased, int lane, uint8_t* panel) {
    const SourceInfo& s = info(source);
    const FormatInfo f = info(s.format);
    const uint8_t flip = f.code == Code::S8 && biased ? 0x80 : 0;
    const int in_block = s.block / f.group;
    Block block;
    for (int b = 0; b < k / s.block; ++b) {
        decode(source, row + static_cast<size_t>(s.bytes) * static_cast<size_t>(b), block);
        for (int g = 0; g < in_block; ++g) {
            uint8_t* to = panel + group_bytes(s.format) * static_cast<size_t>(b * in_block + g);
            store_codes(block.codes + f.group * g, f.group, f.code == Code::U4, flip, lane, to);
            uint8_t* scales = to + group_code_bytes(s.format);
            uint8_t* minima = scales + kPanel * f.scale_bytes;
            if (f.scale_bytes == 2) {
                std::memcpy(scales + 2 * lane, &block.scale16, 2);
                if (f.has_min) std::memcpy(minima + 2 * lane, &block.min16, 2);
            } else {
                std::memcpy(scales + 4 * lane, &block.scale[g], 4);
                if (f.has_min) std::memcpy(minima + 4 * lane, &block.min[g], 4);
            }
        }
    }
}

void pack_plain(Source source, const uint8_t* row, int k, int lane, uint8_t* panel) {
    for (int i = 0; i < k; ++i) {
        if (source == Source::BF16) {
            std::memcpy(panel + 64 * (i / 2) + 4 * lane + 2 * (i % 2), row + 2 * i, 2);
        } else if (source == Source::F32) {
            std::memcpy(panel + 64 * static_cast<size_t>(i) + 4 * lane, row + 4 * static_cast<size_t>(i), 4);
        } else {
            uint16_t half;
            std::memcpy(&half, row + 2 * i, 2);
            const float value = f16_to_f32(half);
            std::memcpy(panel + 64 * static_cast<size_t>(i) + 4 * lane, &value, 4);
        }
    }
}

float load_f32(const uint8_t* p) {
    float v;
    std::memcpy(&v, p, 4);
    return v;
}

float load_scale(const uint8_t* at, int bytes, int lane) {
    if (bytes == 4) return load_f32(at + 4 * lane);
    uint16_t half;
    std::memcpy(&half, at + 2 * lane, 2);
    return f16_to_f32(half);
}

}  // namespace

void pack_panels(Source source, const uint8_t* from, int n, int k, bool biased, int begin, int end, uint8_t* to) {
    const SourceInfo& s = info(source);
    const size_t row_bytes = static_cast<size_t>(k / s.block) * static_cast<size_t>(s.bytes);
    const size_t size = panel_bytes(s.format, k);
    for (int p = begin; p < end; ++p) {
        uint8_t* panel = to + size * static_cast<size_t>(p);
        const bool partial = (p + 1) * kPanel > n || info(s.format).code == Code::None;
        if (partial) std::memset(panel, 0, size);  // padding lanes, and the odd half of a bf16 pair
        for (int lane = 0; lane < kPanel && p * kPanel + lane < n; ++lane) {
            const uint8_t* row = from + row_bytes * static_cast<size_t>(p * kPanel + lane);
            if (info(s.format).code == Code::None) pack_plain(source, row, k, lane, panel);
            else pack_integer(source, row, k, biased, lane, panel);
        }
    }
}

void unpack_row(Format format, const uint8_t* panels, int k, bool biased, int row, float scale, float* to) {
    const FormatInfo f = info(format);
    const uint8_t* panel = panels + panel_bytes(format, k) * static_cast<size_t>(row / kPanel);
    const int lane = row % kPanel;
    if (format == Format::F32) {
        for (int i = 0; i < k; ++i) to[i] = scale * load_f32(panel + 64 * static_cast<size_t>(i) + 4 * lane);
        return;
    }
    if (format == Format::BF16) {
        for (int i = 0; i < k; ++i) {
            uint8_t wide[4] = {};
            std::memcpy(wide + 2, panel + 64 * (i / 2) + 4 * lane + 2 * (i % 2), 2);
            to[i] = scale * load_f32(wide);
        }
        return;
    }
    const uint8_t flip = f.code == Code::S8 && biased ? 0x80 : 0;
    for (int g = 0; g < groups(format, k); ++g) {
        const uint8_t* codes = panel + group_bytes(format) * static_cast<size_t>(g);
        const uint8_t* scales = codes + group_code_bytes(format);
        const float d = load_scale(scales, f.scale_bytes, lane);
        const float min = f.has_min ? load_scale(scales + kPanel * f.scale_bytes, f.scale_bytes, lane) : 0.0F;
        for (int i = 0; i < f.group; ++i) {
            const uint8_t raw = load_code(codes, f.group, f.code == Code::U4, flip, lane, i);
            const int code = f.code == Code::S8 ? static_cast<int8_t>(raw) : raw - f.zero;
            const float value = d * static_cast<float>(code);
            to[f.group * g + i] = scale * (f.has_min ? value + min : value);
        }
    }
}

}  // namespace octavo
