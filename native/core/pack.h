// File rows to panels, and rows of panels back to floats. Knows the layouts of format.h and blocks.h, no kernels.
#pragma once

#include "core/blocks.h"
#include "core/format.h"

#include <cstddef>
#include <cstdint>

namespace octavo {

// Packs panels [begin, end) of a matrix of n rows and k columns, rows `stride` bytes apart in the file. `to` is the start
// of panel 0. Rows past n become zero weights. `biased`: signed 8-bit codes are stored plus 128.
// k must be a multiple of info(source).block.
void pack_panels(Source source, const uint8_t* from, int n, int k, bool biased, int begin, int end, uint8_t* to);

// Row `row` as k floats times `scale`: exactly what the file means, (scale * code) + min in float32, each rounded once.
void unpack_row(Format format, const uint8_t* panels, int k, bool biased, int row, float scale, float* to);

}  // namespace octavo
