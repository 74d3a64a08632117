#include "core/linear.h"

namespace octavo {

namespace {

constexpr int kRowChunk = 64;

struct Forms {
    bool wanted[4] = {};
    size_t offset[4] = {};
    size_t bytes = 0;
};

// Floats are read where they are unless rows are picked by an index.
bool in_place(const LinearCall& call, ActKind kind) { return kind == ActKind::F32 && call.index == nullptr; }

Forms forms_of(const Matrix& w, int rows) {
    Forms f;
    for (const Segment& s : w.segments()) f.wanted[static_cast<int>(w.kernels().act_kind(s.format))] = true;
    for (int i = 0; i < 4; ++i) {
        f.offset[i] = f.bytes;
        if (f.wanted[i]) f.bytes += act_row_stride(static_cast<ActKind>(i), w.k()) * static_cast<size_t>(rows);
    }
    return f;
}

Operand bind(const LinearCall& call, const Forms& forms, const Segment& segment) {
    Operand o = call.weight->operand(segment);
    const ActKind kind = call.weight->kernels().act_kind(segment.format);
    if (in_place(call, kind)) {
        o.act = reinterpret_cast<const uint8_t*>(call.x);
        o.act_stride = sizeof(float) * static_cast<size_t>(call.x_stride);
    } else {
        o.act = call.scratch + forms.offset[static_cast<int>(kind)];
        o.act_stride = act_row_stride(kind, call.weight->k());
    }
    return o;
}

LinearTask task_for(const LinearCall& call, const Segment& s) {
    LinearTask t;
    t.gated = call.gated;
    t.rows = call.rows;
    t.n = s.n;
    t.k = call.weight->k();
    t.out = call.out + s.first;
    t.out_stride = call.out_stride;
    t.bias = call.bias == nullptr ? nullptr : call.bias + s.first;
    t.residual = call.residual == nullptr ? nullptr : call.residual + s.first;
    t.residual_stride = call.residual_stride;
    t.activation = call.activation;
    t.softcap = call.softcap;
    return t;
}

}  // namespace

size_t scratch_bytes(const Matrix& weight, int rows) { return forms_of(weight, rows).bytes; }

void convert_rows(const LinearCall& call, int thread, int threads) {
    const Forms forms = forms_of(*call.weight, call.rows);
    Range rows{};
    split(call.rows, thread, threads, rows.begin, rows.end);
    for (int i = 0; i < 4; ++i) {
        const auto kind = static_cast<ActKind>(i);
        if (!forms.wanted[i] || in_place(call, kind)) continue;
        call.weight->kernels().quantize(call.x, call.x_stride, call.index, rows, call.weight->k(), kind,
                                        call.scratch + forms.offset[i]);
    }
}

// Work is (chunk of rows, panel) pairs, chunk by chunk; a thread takes one consecutive range of them.
void multiply(const LinearCall& call, int thread, int threads) {
    const Forms forms = forms_of(*call.weight, call.rows);
    const std::vector<Segment>& segments = call.weight->segments();
    const size_t used = call.gated ? segments.size() / 2 : segments.size();
    int all = 0;
    for (size_t i = 0; i < used; ++i) all += panels(segments[i].n);
    const int chunks = (call.rows + kRowChunk - 1) / kRowChunk;
    int begin;
    int end;
    split(all * chunks, thread, threads, begin, end);
    while (begin < end) {
        const int chunk = begin / all;
        int from = begin - chunk * all;
        int to = end - chunk * all < all ? end - chunk * all : all;
        begin += to - from;
        const Range rows{static_cast<int>(static_cast<int64_t>(call.rows) * chunk / chunks),
                         static_cast<int>(static_cast<int64_t>(call.rows) * (chunk + 1) / chunks)};
        for (size_t i = 0; i < used && to > 0; ++i) {
            const int count = panels(segments[i].n);
            const int stop = to < count ? to : count;
            if (from < stop) {
                LinearTask t = task_for(call, segments[i]);
                t.w = bind(call, forms, segments[i]);
                if (call.gated) t.up = bind(call, forms, segments[used + i]);
                call.weight->kernels().linear(t, rows, {from, stop});
            }
            from = from > count ? from - count : 0;
            to -= count;
        }
    }
}

void run_linear(const LinearCall& call, ThreadPool& pool) {
    pool.run([&](int thread) {
        convert_rows(call, thread, pool.threads());
        pool.barrier();
        multiply(call, thread, pool.threads());
    });
}

bool splits_in_halves(const Matrix& weight) {
    const std::vector<Segment>& s = weight.segments();
    if (s.size() % 2 != 0) return false;
    const size_t half = s.size() / 2;
    for (size_t i = 0; i < half; ++i)
        if (s[i].n != s[half + i].n) return false;
    return half > 0;
}

}  // namespace octavo
