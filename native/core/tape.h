// Records operations once, in order, and makes a program of them. Checks that shapes fit; knows no model.
#pragma once

#include "core/product_ops.h"
#include "core/program.h"
#include "core/row_ops.h"
#include "core/runtime.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace octavo {

// Which KV a layer owns, as octavo.ops.base.KVSlot.
struct LayerSlot {
    int group = 0;
    int index = 0;
};

struct RopeNumbers {
    ConstantRef inv_freq;
    int head_size = 0;
    bool interleaved = false;
    float scale = 1.0F;
};

// Every method records one operation and returns its result. std::invalid_argument where shapes do not fit.
class Tape {
public:
    // pool: its memory may be absent while nothing but `measure` is wanted.
    Tape(std::shared_ptr<Runtime> runtime, KVPool pool, StepLimits limits);

    // Floats [tokens, columns] that each run is given, in the order of these calls.
    View input(int columns);
    View embed(MatrixRef table, float scale);
    View linear(View x, MatrixRef weight, LinearNumbers numbers, View residual);
    View norm(View x, NormNumbers numbers, View residual);
    View rope(View x, const RopeNumbers& rope);
    View add(View a, View b);
    void write_kv(View k, View v, LayerSlot slot);
    View attend(View q, int kv_heads, int head_size, LayerSlot slot, AttendNumbers numbers);
    View logits(View x, MatrixRef weight, float softcap);

    // The program that gives `output`, which may be none. top_columns: of logits, also the largest of so many columns.
    // kept: what stays in the workspace until the next run, or none. The tape is empty afterwards.
    // std::logic_error where the pool or a matrix has a shape alone.
    std::unique_ptr<Program> compile(View output, int top_columns, View kept);
    // Bytes that the program would hold; takes none of them. The tape is empty afterwards.
    size_t measure(View output, View kept);

private:
    static constexpr int kLogits = -2;

    std::unique_ptr<Program> plan(View output, int top_columns, View kept);
    void use(const MatrixRef& weight) { shapes_only_ = shapes_only_ || !weight->filled(); }

    View add_slot(int columns);
    void check(View v, const char* what) const;
    void check_layer(LayerSlot slot) const;
    template <class T, class... A>
    void record(A&&... arguments) {
        recorded_.ops.push_back(std::make_unique<T>(std::forward<A>(arguments)...));
    }

    std::shared_ptr<Runtime> runtime_;
    KVPool pool_;
    StepLimits limits_;
    bool shapes_only_;
    Recording recorded_;
    std::map<std::pair<const Constant*, float>, View> angles_;
};

}  // namespace octavo
