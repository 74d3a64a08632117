// The kernels for AVX2, FMA and F16C.
#include "core/kernels.h"
#include "kernels/simd_avx2.h"

#define OCTAVO_NS avx2
#include "kernels/linear_tile.h"
#include "kernels/math.h"
#include "kernels/quantize.h"
#include "kernels/peak.h"
#include "kernels/linear.h"
