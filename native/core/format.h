// How packed weights lie in memory: the layout that packing writes and kernels read. Knows no files and no kernels.
//
// A matrix [n, k] is cut into panels of 16 outputs. A panel is one contiguous stream, group by group along k, so a
// kernel reads memory strictly forwards and keeps 16 outputs in the lanes of one (or two) vectors:
//   integer formats, per group:  codes | 16 scales | 16 minima (where the format has them)
//     codes: for each quad of 4 consecutive k, 16 outputs x 4 bytes, which is what a 4-way byte dot product consumes.
//     4-bit codes: byte = quad j in the low nibble, quad j + group/8 in the high one, so unpacking is a mask or a shift.
//   bf16: for each pair of k, 16 outputs x 2 values.       f32: for each k, 16 outputs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

inline constexpr int kPanel = 16;

// Names follow the GGUF type whose codes and scales the format holds; others (AWQ, GPTQ) use the one of equal shape.
enum class Format : uint8_t { F32, BF16, Q4_0, Q4_1, Q4_K, Q2_K, Q3_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0 };
inline constexpr int kFormats = 12;

// Range of the stored codes; it decides how many 8-bit products fit a 16-bit accumulator.
enum class Code : uint8_t { None, U4, U5, U6, S8 };

// weight = scale * (code - zero) + min. Scales and minima are both f16 or both f32.
struct FormatInfo {
    Code code;
    uint8_t group;        // k per scale; for None: k per unit of storage
    uint8_t zero;
    bool has_min;
    uint8_t scale_bytes;
    uint8_t code_bits;
};

// K-quants keep two-level scales in the file; their product with the super-block scale (an f16 times at most 8 bits) is
// exact in f32, so one f32 scale per group loses nothing.
constexpr FormatInfo info(Format f) {
    switch (f) {
        case Format::F32: return {Code::None, 1, 0, false, 0, 32};
        case Format::BF16: return {Code::None, 2, 0, false, 0, 16};
        case Format::Q4_0: return {Code::U4, 32, 8, false, 2, 4};
        case Format::Q4_1: return {Code::U4, 32, 0, true, 2, 4};
        case Format::Q4_K: return {Code::U4, 32, 0, true, 4, 4};
        case Format::Q2_K: return {Code::U4, 16, 0, true, 4, 4};
        case Format::Q3_K: return {Code::U4, 16, 4, false, 4, 4};
        case Format::Q5_0: return {Code::U5, 32, 16, false, 2, 8};
        case Format::Q5_1: return {Code::U5, 32, 0, true, 2, 8};
        case Format::Q5_K: return {Code::U5, 32, 0, true, 4, 8};
        case Format::Q6_K: return {Code::U6, 16, 32, false, 4, 8};
        case Format::Q8_0: return {Code::S8, 32, 0, false, 2, 8};
    }
    return {Code::None, 1, 0, false, 0, 32};
}

constexpr size_t group_code_bytes(Format f) { return size_t{kPanel} * info(f).group * info(f).code_bits / 8; }

constexpr size_t group_bytes(Format f) {
    return group_code_bytes(f) + size_t{kPanel} * info(f).scale_bytes * (info(f).has_min ? 2 : 1);
}

// Groups along k; only f32 and bf16 accept a k that is no multiple of the group (the tail is zero).
constexpr int groups(Format f, int k) { return (k + info(f).group - 1) / info(f).group; }

constexpr size_t panel_bytes(Format f, int k) { return group_bytes(f) * static_cast<size_t>(groups(f, k)); }

constexpr int panels(int n) { return (n + kPanel - 1) / kPanel; }

// Activations, as a kernel wants them. Q8: one row is k codes, then per group a f32 scale, an i32 sum of codes, and a f32
// scale * sum. A group's scale is max |x| / 127.
enum class ActKind : uint8_t { F32, BF16, Q8x32, Q8x16 };

constexpr int act_group(ActKind a) { return a == ActKind::Q8x32 ? 32 : 16; }

constexpr size_t act_row_bytes(ActKind a, int k) {
    switch (a) {
        case ActKind::F32: return static_cast<size_t>(k) * 4;
        case ActKind::BF16: return (static_cast<size_t>(k) + 1) / 2 * 4;
        case ActKind::Q8x32: return static_cast<size_t>(k) + static_cast<size_t>(k) / 32 * 12;
        case ActKind::Q8x16: return static_cast<size_t>(k) + static_cast<size_t>(k) / 16 * 12;
    }
    return 0;
}

// Rows start on cache lines of their own.
constexpr size_t act_row_stride(ActKind a, int k) { return (act_row_bytes(a, k) + 63) / 64 * 64; }

}  // namespace octavo
