// Memory for weights and workspaces: aligned to cache lines, on huge pages when large. Throws std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace octavo {

class Arena;

class Buffer {
public:
    Buffer() = default;
    explicit Buffer(size_t bytes);

    uint8_t* data() const { return data_.get(); }
    size_t size() const { return size_; }

private:
    friend class Arena;
    std::shared_ptr<uint8_t> data_;
    size_t size_ = 0;
};

// Cuts buffers from large slabs, so that matrices much smaller than a huge page lie on huge pages too. A slab lives as long
// as any buffer cut from it; nothing is handed out twice.
class Arena {
public:
    Buffer take(size_t bytes);

private:
    std::mutex mutex_;
    Buffer slab_;
    size_t used_ = 0;
};

}  // namespace octavo
