// Everything but products in portable C++.
#include "core/step_kernels.h"
#include "kernels/lanes_portable.h"

#define OCTAVO_NS portable
#include "kernels/math.h"
#include "kernels/rows.h"
#include "kernels/attention_tile.h"
#include "kernels/attention.h"
#include "kernels/sampling.h"
#include "kernels/step_table.h"
