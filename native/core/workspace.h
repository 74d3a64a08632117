// Places the slots of a tape in one buffer by their live ranges. Knows no ops.
#pragma once

#include <cstddef>
#include <vector>

namespace octavo {

// Alive from segment `begin` to segment `end`, both included. Slots of segments that overlap get memory of their own.
struct Lifetime {
    size_t bytes = 0;
    int begin = 0;
    int end = -1;  // before begin: never used
};

struct Placement {
    std::vector<size_t> offsets;
    size_t bytes = 0;
};

Placement place(const std::vector<Lifetime>& slots);

}  // namespace octavo
