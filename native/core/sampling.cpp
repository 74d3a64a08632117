#include "core/sampling.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

namespace octavo {
namespace {

constexpr double kLog2e = 1.4426950408889634;
constexpr double kDepths[] = {4.0, 8.0, 26.0};  // nats below the peak to look for a mass; beyond 26 every weight is 0
constexpr int kFew = 32;                        // candidates to sort instead of halving them
constexpr float kLowest = -std::numeric_limits<float>::infinity();

int tiles_of(int count) { return (count + kSampleTile - 1) / kSampleTile; }

uint64_t key_of(float logit, int32_t id) {
    const float united = logit + 0.0F;  // both zeros are one
    uint32_t bits;
    std::memcpy(&bits, &united, sizeof bits);
    const uint32_t descending = bits >> 31 == 0 ? bits ^ 0x7fffffffU : bits;
    return uint64_t{descending} << 32 | static_cast<uint32_t>(id);
}

float scale_of(double temperature) { return static_cast<float>(kLog2e / temperature); }

}  // namespace

bool Chooser::scan(const LogitRow& row) {
    tiles_.resize(static_cast<size_t>(tiles_of(row.count)));
    peak_ = row.count == 0 ? kLowest : kernels_.scan(row.logits, row.count, tiles_.data());
    return std::isfinite(peak_);
}

int32_t Chooser::top(const LogitRow& row) const {
    const auto tile = std::find(tiles_.begin(), tiles_.end(), peak_) - tiles_.begin();
    const float* first = row.logits + tile * kSampleTile;
    return static_cast<int32_t>(std::find(first, row.logits + row.count, peak_) - row.logits);
}

int32_t Chooser::draw(const Draw& draw) {
    if (!scan(draw.row)) return -1;
    const Filters& f = draw.filters;
    if (f.greedy()) return top(draw.row);
    scale_ = {peak_, scale_of(f.temperature)};
    const bool some = f.top_k > 0 && f.top_k < draw.row.count;
    if (!some && f.top_p >= 1.0 && f.min_p <= 0.0) return draw_any(draw);
    if (some) keep_up_to(gather_largest(draw.row, f.top_k));
    if (f.top_p < 1.0) keep_top_p(draw);
    else if (!some) gather(draw.row, peak_ - static_cast<float>(f.temperature * std::min(kDepths[2], 0.01 - std::log(f.min_p))));
    if (f.min_p > 0.0) std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < f.min_p; });
    return locate(draw.uniform);
}

// Every token has a chance: tiles are summed first, then one of them is walked.
int32_t Chooser::draw_any(const Draw& draw) {
    const double sum = total(draw.row);
    const double target = std::min(draw.uniform * sum, std::nextafter(sum, 0.0));
    double before = 0.0;
    size_t tile = 0;
    while (before + sums_[tile] <= target) before += sums_[tile++];
    const int begin = static_cast<int>(tile) * kSampleTile;
    double weights[kSampleTile];
    kernels_.weigh(draw.row.logits + begin, std::min(kSampleTile, draw.row.count - begin), scale_, weights);
    int place = 0;
    while (before + weights[place] <= target) before += weights[place++];
    return begin + place;
}

double Chooser::total(const LogitRow& row) {
    sums_.resize(tiles_.size());
    kernels_.sum(row.logits, row.count, tiles_.data(), scale_, sums_.data());
    double sum = 0.0;
    for (const double each : sums_) sum += each;
    return sum;
}

double Chooser::gather(const LogitRow& row, float least) {
    logits_.clear();
    candidates_.clear();
    for (size_t tile = 0; tile < tiles_.size(); ++tile) {
        if (tiles_[tile] < least) continue;
        const int begin = static_cast<int>(tile) * kSampleTile;
        for (int i = begin; i < std::min(begin + kSampleTile, row.count); ++i) {
            if (row.logits[i] < least) continue;
            logits_.push_back(row.logits[i]);
            candidates_.push_back({key_of(row.logits[i], i), 0.0});
        }
    }
    weights_.resize(logits_.size());
    kernels_.weigh(logits_.data(), static_cast<int>(logits_.size()), scale_, weights_.data());
    double sum = 0.0;
    for (size_t i = 0; i < weights_.size(); ++i) sum += candidates_[i].weight = weights_[i];
    return sum;
}

// Of k tiles the largest logit is at or above the k-th largest of those, so the k largest of all are too.
uint64_t Chooser::gather_largest(const LogitRow& row, int64_t k) {
    float least = kLowest;
    if (k <= static_cast<int64_t>(tiles_.size())) {
        ranked_ = tiles_;
        std::nth_element(ranked_.begin(), ranked_.begin() + (k - 1), ranked_.end(), std::greater<>());
        least = ranked_[static_cast<size_t>(k - 1)];
    }
    gather(row, least);
    keys_.clear();
    for (const Candidate& c : candidates_) keys_.push_back(c.key);
    std::nth_element(keys_.begin(), keys_.begin() + (k - 1), keys_.end());
    return keys_[static_cast<size_t>(k - 1)];
}

void Chooser::keep_up_to(uint64_t bound) {
    std::erase_if(candidates_, [&](const Candidate& c) { return c.key > bound; });
}

// The fewest leading tokens that have the share; of what top_k left, or of all.
void Chooser::keep_top_p(const Draw& draw) {
    const Filters& f = draw.filters;
    if (f.top_k > 0 && f.top_k < draw.row.count) {
        double sum = 0.0;
        for (const Candidate& c : candidates_) sum += c.weight;
        keep_up_to(mass_bound(f.top_p * sum));
        return;
    }
    const double mass = f.top_p * total(draw.row);
    for (const double depth : kDepths) {
        if (gather(draw.row, peak_ - static_cast<float>(f.temperature * depth)) >= mass) break;
    }
    keep_up_to(mass_bound(mass));
}

// Halves what is left: the first half by order either reaches the mass or is kept whole. Sums are exact, so it does not
// matter where the halves are cut.
uint64_t Chooser::mass_bound(double mass) {
    order_ = candidates_;
    const auto earlier = [](const Candidate& a, const Candidate& b) { return a.key < b.key; };
    auto begin = order_.begin();
    auto end = order_.end();
    double before = 0.0;
    while (end - begin > kFew) {
        const auto middle = begin + (end - begin) / 2;
        std::nth_element(begin, middle, end, earlier);
        double sum = before;
        for (auto c = begin; c != middle; ++c) sum += c->weight;
        if (sum >= mass) {
            end = middle;
        } else {
            before = sum;
            begin = middle;
        }
    }
    std::sort(begin, end, earlier);
    for (auto c = begin; c + 1 < end; ++c) {
        before += c->weight;
        if (before >= mass) return c->key;
    }
    return (end - 1)->key;
}

int32_t Chooser::locate(double uniform) const {
    double sum = 0.0;
    for (const Candidate& c : candidates_) sum += c.weight;
    const double target = std::min(uniform * sum, std::nextafter(sum, 0.0));
    double before = 0.0;
    auto c = candidates_.begin();
    while (before + c->weight <= target) before += (c++)->weight;
    return c->id();
}

Expectation Chooser::expect(const LogitRow& row, int count) {
    Expectation found;
    if (!scan(row)) return found;
    scale_ = {peak_, scale_of(1.0)};
    found.peak = peak_;
    found.total = total(row);
    if (count > 0) {
        keep_up_to(gather_largest(row, std::min<int64_t>(count, row.count)));
        std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
        for (const Candidate& c : candidates_) found.ids.push_back(c.id());
    }
    return found;
}

RowSampler::RowSampler(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {
    for (int t = 0; t < runtime_->pool->threads(); ++t) choosers_.emplace_back(runtime_->steps.sampling);
}

template <class F>
void RowSampler::each(int count, F&& work) {
    const std::lock_guard<std::mutex> lock(runtime_->mutex);
    if (count == 1) {  // waking others costs more
        work(0, 0);
        return;
    }
    std::atomic<int> next{0};
    runtime_->pool->run([&](int thread) {
        for (int i = next++; i < count; i = next++) work(i, thread);
    });
}

void RowSampler::draw(const std::vector<Draw>& draws, int32_t* tokens) {
    each(static_cast<int>(draws.size()), [&](int i, int thread) {
        tokens[i] = choosers_[static_cast<size_t>(thread)].draw(draws[static_cast<size_t>(i)]);
    });
}

void RowSampler::expect(const std::vector<LogitRow>& rows, const std::vector<int>& counts, Expectation* out) {
    each(static_cast<int>(rows.size()), [&](int i, int thread) {
        const auto place = static_cast<size_t>(i);
        out[i] = choosers_[static_cast<size_t>(thread)].expect(rows[place], counts[place]);
    });
}

}  // namespace octavo
