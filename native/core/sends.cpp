#include "core/sends.h"

#if __has_include(<sys/socket.h>)
#include <cerrno>
#include <sys/socket.h>
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0  // where there is none, Python has turned the signal off
#endif
#endif

namespace octavo {

void send_all([[maybe_unused]] std::vector<Piece>& pieces) {
#if __has_include(<sys/socket.h>)
    for (Piece& piece : pieces) {
        ssize_t taken;
        do taken = send(piece.socket, piece.data, piece.size, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (taken < 0 && errno == EINTR);
        if (taken > 0) piece.sent = static_cast<size_t>(taken);
    }
#endif
}

}  // namespace octavo
