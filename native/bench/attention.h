// Times paged attention alone, through the plan and the kernels that a step uses, on a pool that it makes and fills. Checks no
// values. Judge the figures by bench/limits.h.
#pragma once

#include "core/isa.h"
#include "core/pool.h"

namespace octavo {

// Equal sequences of one step. `context` counts the new tokens too: 1 new one is decode, as many as context a whole prompt.
struct AttentionCase {
    int sequences = 8;
    int context = 1024;
    int fresh = 1;
    int heads = 9;
    int kv_heads = 3;
    int head_size = 64;
    int layers = 30;
    int block_size = 16;
    bool bf16 = true;
    bool scattered = true;  // blocks of a sequence in random places of the pool, else one after the other
    int window = 0;
};

struct AttentionTime {
    double seconds = 0.0;  // of all layers of one step: the median
    double least = 0.0;
    double most = 0.0;
    int runs = 0;
    double bytes = 0.0;       // of keys and values that the queries see, each once a sequence
    double operations = 0.0;  // two a product: scores and weighted sums, without the exponentials
};

// Steps are repeated for about `seconds`, at least 5 times after an unmeasured one. Throws std::invalid_argument.
AttentionTime time_attention(const Kernels& kernels, ThreadPool& pool, const AttentionCase& what, double seconds);

}  // namespace octavo
