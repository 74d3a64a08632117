// Runs every format, row count and instruction set once, without Python: what sanitizers watch. Checks that rows do not
// depend on their neighbours or on threads; values are checked by the Python tests.
#include "core/isa.h"
#include "core/linear.h"

#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

using namespace octavo;

namespace {

std::vector<uint8_t> random_rows(Source s, int n, int k, std::mt19937& rng) {
    const SourceInfo& i = info(s);
    std::vector<uint8_t> data(static_cast<size_t>(n) * static_cast<size_t>(k / i.block) * static_cast<size_t>(i.bytes));
    // Bytes below 0x38 keep every float16 and float32 finite, wherever a block has its scales.
    for (uint8_t& b : data) b = static_cast<uint8_t>(rng() % 0x38);
    return data;
}

std::vector<float> run(const Matrix& w, const std::vector<float>& x, int first, int rows, bool gated, ThreadPool& pool) {
    const int n = gated ? w.n() / 2 : w.n();
    std::vector<float> out(static_cast<size_t>(rows) * static_cast<size_t>(n));
    const Buffer scratch(scratch_bytes(w, rows));
    LinearCall call;
    call.weight = &w;
    call.gated = gated;
    call.x = x.data() + static_cast<ptrdiff_t>(first) * w.k();
    call.x_stride = w.k();
    call.rows = rows;
    call.out = out.data();
    call.out_stride = n;
    call.activation = gated ? Activation::Silu : Activation::None;
    call.scratch = scratch.data();
    run_linear(call, pool);
    return out;
}

int check(const Kernels& kernels, Source source, ThreadPool& one, ThreadPool& three) {
    constexpr int kN = 74;
    constexpr int kK = 512;
    constexpr int kRows = 70;
    std::mt19937 rng(7);
    const std::vector<uint8_t> data = random_rows(source, kN, kK, rng);
    Arena arena;
    const Matrix w(kernels, {{source, data.data(), kN}}, kK, three, arena);
    std::vector<float> x(static_cast<size_t>(kRows) * kK);
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(rng);
    int wrong = 0;
    for (const bool gated : {false, true}) {
        const std::vector<float> all = run(w, x, 0, kRows, gated, three);
        const size_t n = all.size() / kRows;
        for (const int rows : {1, 2, 3, 4, 5, 7, 8, 9, 33}) {
            const std::vector<float> some = run(w, x, 11, rows, gated, one);
            if (std::memcmp(some.data(), all.data() + 11 * n, some.size() * sizeof(float)) != 0) ++wrong;
        }
    }
    std::vector<float> row(kK);
    for (int r = 0; r < kN; ++r) w.row(r, 1.0F, row.data());
    if (wrong > 0) std::printf("%s %s: %d row counts differ\n", isa_name(kernels.isa), info(source).name, wrong);
    return wrong;
}

}  // namespace

int main() {
    ThreadPool one(1);
    ThreadPool three(3);
    int wrong = 0;
    for (const Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512}) {
        const Kernels* kernels = kernels_for(isa);
        if (kernels == nullptr) continue;
        for (int s = 0; s <= static_cast<int>(Source::Q6_K); ++s) wrong += check(*kernels, static_cast<Source>(s), one, three);
        std::printf("%s: checked\n", isa_name(isa));
    }
    return wrong == 0 ? 0 : 1;
}
