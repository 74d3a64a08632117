#include "bind/bind.h"

#include "core/sends.h"

#include <stdexcept>
#include <vector>

namespace octavo::bind {

namespace {

nb::list send_all(const nb::list& sockets, const nb::list& pieces) {
    const size_t count = nb::len(pieces);
    if (nb::len(sockets) != count) throw std::invalid_argument("as many sockets as pieces are needed");
    std::vector<nb::bytes> kept;  // whatever becomes of the list meanwhile
    std::vector<Piece> all;
    kept.reserve(count);
    all.reserve(count);
    for (size_t i = 0; i < count; ++i) {
        kept.push_back(nb::cast<nb::bytes>(pieces[i]));
        all.push_back({nb::cast<int>(sockets[i]), kept.back().c_str(), kept.back().size()});
    }
    {
        nb::gil_scoped_release release;
        octavo::send_all(all);
    }
    nb::list left;
    for (size_t i = 0; i < count; ++i)
        if (all[i].sent < all[i].size) left.append(nb::make_tuple(i, all[i].sent));
    return left;
}

}  // namespace

void bind_sends(nb::module_& m) {
    m.def("send_all", &send_all, nb::arg("sockets"), nb::arg("pieces"),
          "Give each socket its piece, as far as it takes that without waiting; [(index, bytes taken)] of the others.");
}

}  // namespace octavo::bind
