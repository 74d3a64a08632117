// Everything but products for AVX-512.
#include "core/step_kernels.h"
#include "kernels/lanes_avx512.h"

#define OCTAVO_NS avx512
#include "kernels/math.h"
#include "kernels/rows.h"
#include "kernels/attention_tile.h"
#include "kernels/attention.h"
#include "kernels/sampling.h"
#include "kernels/step_table.h"
