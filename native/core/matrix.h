// A weight matrix in packed form: parts stacked along the outputs, each in its own format. Computes nothing.
#pragma once

#include "core/blocks.h"
#include "core/buffer.h"
#include "core/kernels.h"
#include "core/pool.h"

#include <vector>

namespace octavo {

// Rows of one file tensor.
struct Part {
    Source source;
    const uint8_t* data;
    int n;
};

// Consecutive outputs of one format, starting at a panel.
struct Segment {
    Format format;
    int first;  // output
    int n;
    size_t offset;  // bytes into the buffer
};

class Matrix {
public:
    // Packs into the arena's memory with all of the pool's threads. Throws std::invalid_argument where k does not suit a
    // part's blocks.
    Matrix(const Kernels& kernels, const std::vector<Part>& parts, int k, ThreadPool& pool, Arena& arena);
    // The shape alone, for planning: parts have no data, and nobody may compute with it. Throws likewise.
    Matrix(const Kernels& kernels, const std::vector<Part>& parts, int k);

    int n() const { return n_; }
    int k() const { return k_; }
    size_t bytes() const { return bytes_; }
    bool filled() const { return buffer_.data() != nullptr; }
    const std::vector<Segment>& segments() const { return segments_; }
    const Kernels& kernels() const { return *kernels_; }

    Operand operand(const Segment& segment) const;
    // Row `row` as floats times `scale`.
    void row(int row, float scale, float* to) const;

private:
    void place(const std::vector<Part>& parts);

    const Kernels* kernels_;
    int n_ = 0;
    int k_;
    size_t bytes_ = 0;
    std::vector<Segment> segments_;
    Buffer buffer_;
};

}  // namespace octavo
