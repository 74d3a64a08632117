// Owned memory for weights and workspaces: aligned to cache lines, on huge pages when large. Throws std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace octavo {

class Buffer {
public:
    Buffer() = default;
    explicit Buffer(size_t bytes);

    uint8_t* data() const { return data_.get(); }
    size_t size() const { return size_; }

private:
    struct Free {
        void operator()(uint8_t* p) const;
    };
    std::unique_ptr<uint8_t, Free> data_;
    size_t size_ = 0;
};

}  // namespace octavo
