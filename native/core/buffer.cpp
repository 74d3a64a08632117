#include "core/buffer.h"

#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace octavo {

namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

// Large buffers begin on a huge page: streaming a matrix through 4 kB pages costs a translation miss every 64 lines.
Buffer::Buffer(size_t bytes) : size_(bytes) {
    const size_t align = bytes >= kHugePage ? kHugePage : kLine;
    const size_t rounded = (bytes + kLine) / kLine * kLine;  // never zero
    void* p = std::aligned_alloc(align, (rounded + align - 1) / align * align);
    if (p == nullptr) throw std::bad_alloc();
    data_.reset(static_cast<uint8_t*>(p));
#if defined(__linux__)
    if (align == kHugePage) madvise(p, rounded, MADV_HUGEPAGE);
#endif
}

void Buffer::Free::operator()(uint8_t* p) const { std::free(p); }

}  // namespace octavo
