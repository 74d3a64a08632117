// Chooses tokens from rows of logits: octavo.ops.sampling.RowSampler. Knows no sequences and no requests.
#pragma once

#include "core/runtime.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace octavo {

struct LogitRow {
    const float* logits = nullptr;
    int count = 0;
};

// Applied in this order. top_k <= 0, top_p >= 1 and min_p <= 0 are off.
struct Filters {
    double temperature = 0.0;
    int64_t top_k = 0;
    double top_p = 1.0;
    double min_p = 0.0;
    bool greedy() const { return temperature <= 1e-4 || top_k == 1 || top_p <= 0.0 || min_p >= 1.0; }
};

struct Draw {
    LogitRow row;
    Filters filters;
    double uniform = 0.0;
};

struct Expectation {
    double peak = 0.0;
    double total = 0.0;
    std::vector<int32_t> ids;  // the largest, in order
};

// One row at a time; keeps its memory between rows.
class Chooser {
public:
    explicit Chooser(const SamplingKernels& kernels) : kernels_(kernels) {}
    // -1 where the largest logit is not finite.
    int32_t draw(const Draw& draw);
    // All zeros where the largest logit is not finite.
    Expectation expect(const LogitRow& row, int count);

private:
    // The tokens that may still be drawn, by ascending id.
    struct Candidate {
        uint64_t key;  // ascends with descending logit, then with id
        double weight;
        int32_t id() const { return static_cast<int32_t>(key & 0xffffffffU); }
    };

    bool scan(const LogitRow& row);
    int32_t top(const LogitRow& row) const;
    int32_t draw_any(const Draw& draw);
    double total(const LogitRow& row);
    // Makes candidates of the logits at or above `least`, with weights.
    double gather(const LogitRow& row, float least);
    // Gathers logits among which are the k largest; the k-th key.
    uint64_t gather_largest(const LogitRow& row, int64_t k);
    // The last key of the leading candidates that weigh at least `mass` together.
    uint64_t mass_bound(double mass);
    void keep_up_to(uint64_t bound);
    void keep_top_p(const Draw& draw);
    int32_t locate(double uniform) const;

    const SamplingKernels& kernels_;
    WeightScale scale_;
    float peak_ = 0.0F;
    std::vector<float> tiles_, ranked_, logits_;
    std::vector<double> sums_, weights_;
    std::vector<Candidate> candidates_, order_;
    std::vector<uint64_t> keys_;
};

// Many rows at once, shared among the runtime's threads. A row's answer depends on that row alone.
class RowSampler {
public:
    explicit RowSampler(std::shared_ptr<Runtime> runtime);
    void draw(const std::vector<Draw>& draws, int32_t* tokens);
    void expect(const std::vector<LogitRow>& rows, const std::vector<int>& counts, Expectation* out);

private:
    template <class F>
    void each(int count, F&& work);

    std::shared_ptr<Runtime> runtime_;
    std::vector<Chooser> choosers_;  // by thread
};

}  // namespace octavo
