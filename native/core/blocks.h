// Decodes the blocks of weight files into codes, scales and minima. Layouts are GGUF's; nothing here knows kernels.
#pragma once

#include "core/format.h"

#include <cstddef>
#include <cstdint>

namespace octavo {

// How a file stores a row. Order is part of the binding: see source_from_name.
enum class Source : uint8_t { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K };

struct SourceInfo {
    const char* name;
    int block;  // values
    int bytes;  // of one block
    Format format;  // that holds it without loss
};

const SourceInfo& info(Source s);

// One block, decoded. Scales and minima are per group of info(format).group; those stored as f16 in the packed form keep
// their bits in `scale16`/`min16`, others are in `scale`/`min`.
struct Block {
    uint8_t codes[256];
    uint16_t scale16, min16;
    float scale[16];
    float min[16];
};

// Integer sources only.
void decode(Source s, const uint8_t* from, Block& to);

float f16_to_f32(uint16_t h);

}  // namespace octavo
