#include "core/matrix.h"

#include "core/pack.h"

#include <stdexcept>
#include <string>

namespace octavo {

namespace {

// A lone part is cut in the middle, so that a gate and an up half stacked in one tensor can always
// be walked side by side; it costs at most one partly filled panel.
std::vector<Part> cut_halves(const std::vector<Part>& parts, int k) {
    std::vector<Part> cut;
    for (const Part& p : parts) {
        const SourceInfo& s = info(p.source);
        if (k <= 0 || p.n <= 0 || k % s.block != 0) {
            throw std::invalid_argument(std::string(s.name) + " rows hold blocks of " + std::to_string(s.block) +
                                        " values; a matrix of " + std::to_string(p.n) + " x " + std::to_string(k) +
                                        " does not fit them");
        }
        const int half = p.n / 2;
        if (parts.size() == 1 && p.n % 2 == 0) {
            const size_t row = static_cast<size_t>(k / s.block) * static_cast<size_t>(s.bytes);
            cut.push_back({p.source, p.data, half});
            cut.push_back({p.source, p.data == nullptr ? nullptr : p.data + row * static_cast<size_t>(half), half});
        } else {
            cut.push_back(p);
        }
    }
    return cut;
}

}  // namespace

void Matrix::place(const std::vector<Part>& parts) {
    for (const Part& p : parts) {
        const Format format = info(p.source).format;
        segments_.push_back({format, n_, p.n, bytes_});
        n_ += p.n;
        bytes_ += (panel_bytes(format, k_) * static_cast<size_t>(panels(p.n)) + 63) / 64 * 64;
    }
}

Matrix::Matrix(const Kernels& kernels, const std::vector<Part>& parts, int k) : kernels_(&kernels), k_(k) {
    place(cut_halves(parts, k));
}

Matrix::Matrix(const Kernels& kernels, const std::vector<Part>& parts, int k, ThreadPool& pool, Arena& arena)
    : kernels_(&kernels), k_(k) {
    const std::vector<Part> cut = cut_halves(parts, k);
    place(cut);
    buffer_ = arena.take(bytes_);
    pool.run([&](int thread) {
        for (size_t i = 0; i < cut.size(); ++i) {
            int begin;
            int end;
            split(panels(cut[i].n), thread, pool.threads(), begin, end);
            pack_panels(cut[i].source, cut[i].data, cut[i].n, k_, kernels_->biased_bytes, begin, end,
                        buffer_.data() + segments_[i].offset);
        }
    });
}

Operand Matrix::operand(const Segment& segment) const {
    Operand o;
    o.weight = buffer_.data() + segment.offset;
    o.format = segment.format;
    return o;
}

void Matrix::row(int row, float scale, float* to) const {
    for (const Segment& s : segments_) {
        if (row >= s.first + s.n) continue;
        unpack_row(s.format, buffer_.data() + s.offset, k_, kernels_->biased_bytes, row - s.first, scale, to);
        return;
    }
}

}  // namespace octavo
