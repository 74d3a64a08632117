// Many small pieces to many sockets. Knows nothing of what they say.
#pragma once

#include <cstddef>
#include <vector>

namespace octavo {

struct Piece {
    int socket;
    const char* data;
    size_t size;
    size_t sent = 0;
};

// Gives each socket as much of its piece as it takes without waiting, which `sent` then tells: nothing where it is full
// or broken. Raises no signal.
void send_all(std::vector<Piece>& pieces);

}  // namespace octavo
