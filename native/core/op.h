// What a recorded operation is: phases that all threads run, the slots that it reads and writes, what it needs of a step.
#pragma once

#include "core/attention_plan.h"
#include "core/pool.h"
#include "core/step.h"
#include "core/step_kernels.h"

#include <memory>
#include <string>
#include <vector>

namespace octavo {

// Columns [column, column + columns) of a slot: an array [tokens, width of the slot] in the workspace.
struct View {
    int slot = -1;
    int column = 0;
    int columns = 0;
};

// What an op sees while it runs.
struct StepContext {
    const Step* step = nullptr;
    const StepKernels* kernels = nullptr;
    KVPool pool;
    float* workspace = nullptr;
    const size_t* offsets = nullptr;     // bytes, by slot
    const ptrdiff_t* strides = nullptr;  // floats, by slot
    uint8_t* products = nullptr;         // converted activations, shared
    float* const* scratch = nullptr;     // by thread
    AttentionPlan* plans = nullptr;
    Rows out;                // of the program
    int32_t* top = nullptr;  // of each row of logits, where somebody wants it
    int threads = 1;

    Rows at(View v) const {
        if (v.slot < 0) return {};
        return {workspace + offsets[v.slot] / sizeof(float) + v.column, strides[v.slot]};
    }
};

class Op {
public:
    explicit Op(std::string name) : name_(std::move(name)) {}
    virtual ~Op() = default;
    Op(const Op&) = delete;
    Op& operator=(const Op&) = delete;

    const std::string& name() const { return name_; }
    virtual int phases() const { return 1; }
    // Whether thread t reads and writes only its rows of the step's tokens in this phase: such phases follow each other
    // without waiting.
    virtual bool by_rows(int phase) const = 0;
    virtual void run(const StepContext& context, int phase, int thread) const = 0;
    // Whether this step has nothing to do in this phase; the same for all threads.
    virtual bool idle(const StepContext&, int /*phase*/) const { return false; }
    // Before the threads of a step begin.
    virtual void start() {}
    virtual void need(StepNeeds&) const {}
    virtual size_t product_bytes(int /*tokens*/) const { return 0; }
    virtual size_t scratch_floats(const KVPool&) const { return 0; }

    // Slots that it touches.
    std::vector<int> uses;

protected:
    void touch(View v) {
        if (v.slot >= 0) uses.push_back(v.slot);
    }

private:
    std::string name_;
};

// The thread's share of the step's tokens.
inline Range own_rows(const StepContext& c, int thread) {
    Range rows{};
    split(c.step->tokens(), thread, c.threads, rows.begin, rows.end);
    return rows;
}

}  // namespace octavo
