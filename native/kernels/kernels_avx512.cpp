// The kernels for AVX-512 with VNNI and BF16.
#include "core/kernels.h"
#include "kernels/simd_avx512.h"

#define OCTAVO_NS avx512
#include "kernels/linear_tile.h"
#include "kernels/math.h"
#include "kernels/quantize.h"
#include "kernels/peak.h"
#include "kernels/linear.h"
