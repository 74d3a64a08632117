// Everything but products for AVX2, FMA and F16C.
#include "core/step_kernels.h"
#include "kernels/lanes_avx2.h"

#define OCTAVO_NS avx2
#include "kernels/math.h"
#include "kernels/rows.h"
#include "kernels/attention_tile.h"
#include "kernels/attention.h"
#include "kernels/sampling.h"
#include "kernels/step_table.h"
