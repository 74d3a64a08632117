// A recorded tape with its memory planned: runs one step after another. Knows no model and no Python.
#pragma once

#include "core/buffer.h"
#include "core/op.h"
#include "core/runtime.h"

#include <memory>
#include <string>
#include <vector>

namespace octavo {

// What a tape has recorded.
struct Recording {
    Recording() = default;
    Recording(Recording&&) = default;
    Recording& operator=(Recording&&) = default;

    std::vector<std::unique_ptr<Op>> ops;
    std::vector<int> columns;  // of each slot
    std::vector<int> inputs;   // slots
    std::vector<AttentionKind> kinds;
    int out_columns = 0;
    bool logits = false;  // the output has a row for each wanted one, else for each token
    View kept;            // readable after a run too, or none
};

// Time that the first thread spent in one kind of phase, waiting for the others included.
struct PhaseTime {
    std::string name;
    double seconds = 0.0;
    int64_t runs = 0;
};

// The largest step that memory is planned for. length: of a sequence; longer ones take more memory when they come.
struct StepLimits {
    int tokens = 0;
    int length = 0;
};

class Program {
public:
    // Plans; `allocate` before the first run.
    Program(std::shared_ptr<Runtime> runtime, KVPool pool, StepLimits limits, Recording recorded);
    void allocate();

    // out: [wanted rows or tokens, out_columns()] floats, `top` likewise one a row or null. inputs: [tokens, columns] each.
    // Throws before anything is computed; see Step::take.
    void run(const StepArrays& arrays, const std::vector<const float*>& inputs, float* out, int32_t* top);

    int out_columns() const { return recorded_.out_columns; }
    bool logits() const { return recorded_.logits; }
    int input_columns(size_t i) const { return recorded_.columns[static_cast<size_t>(recorded_.inputs[i])]; }
    size_t inputs() const { return recorded_.inputs.size(); }
    // What was to be kept: [planned tokens, columns] in the workspace, of which the last run wrote its tokens' rows.
    Rows kept() const { return context_.at(recorded_.kept); }
    int kept_columns() const { return recorded_.kept.slot < 0 ? 0 : recorded_.kept.columns; }
    int planned_tokens() const { return limits_.tokens; }
    // Workspace, converted activations, scratch, partial results of attention: what steps within the limits need, and what
    // is held now.
    size_t planned_bytes() const;
    size_t bytes() const;

    // From now on time every phase, or stop.
    void profile(bool on);
    const std::vector<PhaseTime>& times() const { return times_; }

private:
    // One phase of one op. wait: all threads must have finished what came before.
    struct Entry {
        const Op* op;
        int phase;
        bool wait;
        size_t time;  // index into times_
    };
    void schedule();
    void take_inputs(const std::vector<const float*>& inputs);
    void work(int thread);

    std::shared_ptr<Runtime> runtime_;
    StepLimits limits_;
    Recording recorded_;
    StepNeeds needs_;
    size_t workspace_bytes_ = 0;
    size_t product_bytes_ = 0;
    size_t scratch_bytes_ = 0;  // of each thread
    std::vector<Entry> entries_;
    std::vector<size_t> offsets_;
    std::vector<ptrdiff_t> strides_;
    std::vector<AttentionPlan> plans_;
    Buffer workspace_, products_;
    std::vector<Buffer> scratch_;
    std::vector<float*> scratch_of_;
    Step step_;
    StepContext context_;
    std::vector<PhaseTime> times_;
    bool timed_ = false;
};

}  // namespace octavo
