// What a bad step is refused with. The binding turns each into octavo's own error of the same meaning.
#pragma once

#include <stdexcept>

namespace octavo {

// A block, slot or table that is not the pool's.
struct KVFault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A token or a number of tokens that this program was not made for.
struct RequestFault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace octavo
