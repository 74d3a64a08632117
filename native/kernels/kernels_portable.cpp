// The kernels in portable C++.
#include "core/kernels.h"
#include "kernels/simd_portable.h"

#define OCTAVO_NS portable
#include "kernels/linear_tile.h"
#include "kernels/math.h"
#include "kernels/quantize.h"
#include "kernels/peak.h"
#include "kernels/linear.h"
