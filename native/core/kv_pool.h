// How keys and values lie in a block of the paged pool: the only place that knows. Owns no memory, checks no bounds.
//
// A block is [layers, kv_heads, 2 (K, V), block_size x head_size], so that what attention reads of a block in one layer is
// one run, and a head's keys and values are neighbours in it; the last two axes of one head are
//   values: row-major [block_size, head_size], so that a query's sum walks rows of contiguous lanes;
//   keys: panels of `width()` keys, in each of which one dimension of all keys is contiguous ([head_size, width], or, for
//   bf16 and an even head size, [head_size / 2, width, 2]). A query's dot products with 16 keys then fill 16 lanes and
//   need no sum across lanes, and a pair of dimensions is what a 2-way bf16 dot product consumes.
#pragma once

#include "core/format.h"

#include <cstddef>
#include <cstdint>

namespace octavo {

struct KVPool {
    uint8_t* data = nullptr;
    int num_blocks = 0;
    int layers = 0;
    int kv_heads = 0;
    int block_size = 0;
    int head_size = 0;
    bool bf16 = false;

    // Keys of a panel.
    int width() const { return block_size % kPanel == 0 ? kPanel : block_size; }
    bool paired() const { return bf16 && head_size % 2 == 0; }
    // Whether attention can read panels of 16 keys and rows of values where they are.
    bool direct() const { return block_size % kPanel == 0 && head_size % kPanel == 0; }

    size_t value_bytes() const { return bf16 ? 2 : 4; }
    size_t head_bytes() const { return static_cast<size_t>(block_size) * static_cast<size_t>(head_size) * value_bytes(); }
    size_t block_bytes() const { return static_cast<size_t>(layers) * 2 * static_cast<size_t>(kv_heads) * head_bytes(); }

    uint8_t* keys(int64_t block, int layer, int head) const { return part(block, layer, 2 * head); }
    uint8_t* values(int64_t block, int layer, int head) const { return part(block, layer, 2 * head + 1); }

    // Index, in values, of dimension d of key `offset` within keys(block, ., .).
    size_t key_index(int offset, int d) const {
        const auto w = static_cast<size_t>(width());
        const size_t panel = static_cast<size_t>(offset) / w * w * static_cast<size_t>(head_size);
        const size_t lane = static_cast<size_t>(offset) % w;
        const auto dim = static_cast<size_t>(d);
        return paired() ? panel + (dim / 2 * w + lane) * 2 + dim % 2 : panel + dim * w + lane;
    }
    // Distance of consecutive dimensions (paired: of consecutive pairs) of one key, in values.
    size_t key_stride() const { return static_cast<size_t>(width()) * (paired() ? 2 : 1); }

private:
    uint8_t* part(int64_t block, int layer, int which) const {
        return data + static_cast<size_t>(block) * block_bytes() +
               (static_cast<size_t>(layer) * 2 * static_cast<size_t>(kv_heads) + static_cast<size_t>(which)) * head_bytes();
    }
};

}  // namespace octavo
