#include "core/workspace.h"

#include <algorithm>
#include <numeric>

namespace octavo {

// Largest first, each at the lowest offset that no slot alive with it takes.
Placement place(const std::vector<Lifetime>& slots) {
    std::vector<size_t> order(slots.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return slots[a].bytes > slots[b].bytes; });
    Placement result{std::vector<size_t>(slots.size(), 0), 0};
    std::vector<size_t> placed;  // by offset
    for (const size_t i : order) {
        if (slots[i].end < slots[i].begin) continue;
        size_t offset = 0;
        for (const size_t j : placed) {
            if (slots[j].end < slots[i].begin || slots[i].end < slots[j].begin) continue;
            if (offset + slots[i].bytes <= result.offsets[j]) break;
            offset = std::max(offset, result.offsets[j] + slots[j].bytes);
        }
        result.offsets[i] = offset;
        result.bytes = std::max(result.bytes, offset + slots[i].bytes);
        placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                       [&](size_t a, size_t b) { return result.offsets[a] < result.offsets[b]; }),
                      i);
    }
    return result;
}

}  // namespace octavo
