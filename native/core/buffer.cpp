#include "core/buffer.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace octavo {

namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLargestSlab = size_t{32} << 20;

size_t whole_lines(size_t bytes) { return (bytes + kLine) / kLine * kLine; }  // never zero

}  // namespace

// Large buffers begin on a huge page: streaming a matrix through 4 kB pages costs a translation miss every 64 lines.
Buffer::Buffer(size_t bytes) : size_(bytes) {
    const size_t align = bytes >= kHugePage ? kHugePage : kLine;
    const size_t rounded = whole_lines(bytes);
    void* p = std::aligned_alloc(align, (rounded + align - 1) / align * align);
    if (p == nullptr) throw std::bad_alloc();
    data_ = std::shared_ptr<uint8_t>(static_cast<uint8_t*>(p), std::free);
#if defined(__linux__)
    if (align == kHugePage) madvise(p, rounded, MADV_HUGEPAGE);
#endif
}

// Slabs double, so that a small model takes little; pages that nobody touched take nothing.
Buffer Arena::take(size_t bytes) {
    const size_t need = whole_lines(bytes);
    if (need >= kLargestSlab / 4) return Buffer(bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (used_ + need > slab_.size()) {
        slab_ = Buffer(std::max({kHugePage, std::min(2 * slab_.size(), kLargestSlab), need}));
        used_ = 0;
    }
    Buffer part;
    part.data_ = std::shared_ptr<uint8_t>(slab_.data_, slab_.data() + used_);
    part.size_ = bytes;
    used_ += need;
    return part;
}

}  // namespace octavo
