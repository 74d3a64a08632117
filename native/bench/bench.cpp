// Times kernels against what this machine can do, measured in the same run: reading memory, 8-bit products, f32.
// octavo_bench [threads] [storage type [cold]]: linear layers.  octavo_bench [threads] attention [name]: paged attention.
#include "bench/attention.h"
#include "bench/limits.h"
#include "core/isa.h"
#include "core/linear.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace octavo;

namespace {

std::vector<uint8_t> random_rows(Source s, int n, int k, std::mt19937& rng) {
    const SourceInfo& i = info(s);
    std::vector<uint8_t> data(static_cast<size_t>(n) * static_cast<size_t>(k / i.block) * static_cast<size_t>(i.bytes));
    for (uint8_t& b : data) b = static_cast<uint8_t>(rng());
    if (i.block == 1) {
        std::fill(data.begin(), data.end(), 0x3c);
        return data;
    }
    for (size_t at = 0; at + static_cast<size_t>(i.bytes) <= data.size(); at += static_cast<size_t>(i.bytes)) {
        const uint16_t half = 0x1c00;
        std::memcpy(&data[at], &half, 2);
        if (s == Source::Q4_1 || s == Source::Q4_K || s == Source::Q5_K || s == Source::Q5_1) std::memcpy(&data[at + 2], &half, 2);
    }
    return data;
}

// The tenth percentile of many short runs: the least is at the mercy of the clock's own glitches, the mean of neighbours.
double time_linear(LinearCall& call, ThreadPool& pool, const std::vector<Matrix*>& copies) {
    std::vector<double> times;
    size_t next = 0;
    const double stop = bench_now(pool) + 0.15;
    while (bench_now(pool) < stop || times.size() < 10) {
        call.weight = copies[next++ % copies.size()];
        const double t = bench_now(pool);
        run_linear(call, pool);
        times.push_back(bench_now(pool) - t);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 10];
}

struct NamedCase {
    const char* name;
    AttentionCase what;
};

AttentionCase attention_case(int sequences, int context, int fresh, int layers, bool scattered = true) {
    AttentionCase c;
    c.sequences = sequences;
    c.context = context;
    c.fresh = fresh;
    c.layers = layers;
    c.scattered = scattered;
    if (!scattered) c.block_size = (context + 15) / 16 * 16;
    return c;
}

// Of the default model: 9 heads on 3, of 64. "contiguous": one block a sequence. "hot" stays in the caches of one core.
void bench_attention(const Kernels& kernels, ThreadPool& pool, const std::string& only) {
    const double read = read_bandwidth(pool);
    const double f32 = peak_rate(pool, kernels.peak_f32);
    std::printf("%s, %d threads: read %.1f GB/s, f32 %.0f GFLOP/s\n", isa_name(kernels.isa), pool.threads(), read / 1e9, f32 / 1e9);
    const NamedCase cases[] = {
        {"decode 8 x 1024", attention_case(8, 1024, 1, 30)},
        {"  contiguous", attention_case(8, 1024, 1, 30, false)},
        {"decode 64 x 256", attention_case(64, 256, 1, 30)},
        {"  contiguous", attention_case(64, 256, 1, 30, false)},
        {"decode 64 x 48", attention_case(64, 48, 1, 30)},
        {"  contiguous", attention_case(64, 48, 1, 30, false)},
        {"decode 1 x 8192", attention_case(1, 8192, 1, 30)},
        {"  contiguous", attention_case(1, 8192, 1, 30, false)},
        {"decode hot 2 x 128", attention_case(2, 128, 1, 1)},
        {"prompt 1 x 512", attention_case(1, 512, 512, 4)},
        {"prompt 1 x 1024", attention_case(1, 1024, 1024, 4)},
        {"prompt 64 x 128", attention_case(64, 128, 128, 4)},
        {"chunk 512 of 1024", attention_case(1, 1024, 512, 4)},
    };
    for (const NamedCase& c : cases) {
        if (!only.empty() && std::string(c.name).find(only) == std::string::npos) continue;
        const AttentionTime t = time_attention(kernels, pool, c.what, 0.8);
        std::printf("%-20s %8.3f ms (%.3f-%.3f, %d)  %5.1f GB/s %3.0f%%  %6.1f GFLOP/s %3.0f%%\n", c.name, 1e3 * t.seconds, 1e3 * t.least,
                    1e3 * t.most, t.runs, t.bytes / t.seconds / 1e9, 100 * t.bytes / t.seconds / read,
                    t.operations / t.seconds / 1e9, 100 * t.operations / t.seconds / f32);
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
    const Source source = [&] {
        for (int s = 0; argc > 2 && s < 13; ++s)
            if (std::string(argv[2]) == info(static_cast<Source>(s)).name) return static_cast<Source>(s);
        return Source::Q4_1;
    }();
    const bool cold = argc > 3 && std::string(argv[3]) == "cold";
    const Kernels* kernels = &best_kernels();
    if (const char* isa = std::getenv("OCTAVO_ISA")) {
        for (Isa i : {Isa::Portable, Isa::Avx2, Isa::Avx512})
            if (std::string(isa) == isa_name(i)) kernels = kernels_for(i);
    }
    if (kernels == nullptr) return 1;
    ThreadPool pool(threads);
    if (argc > 2 && std::string(argv[2]) == "attention") {
        bench_attention(*kernels, pool, argc > 3 ? argv[3] : "");
        return 0;
    }
    std::mt19937 rng(1);
    const MachineLimits limits = measure_limits(*kernels, pool);
    std::printf("%s, %d threads, %s; read %.1f GB/s\n", isa_name(kernels->isa), threads, info(source).name, limits.read_bytes / 1e9);
    std::printf("peak int8 %.0f GOP/s, exact int8 %.0f, bf16 %.0f GFLOP/s, f32 %.0f\n", limits.int8 / 1e9, limits.exact_int8 / 1e9,
                limits.bf16 / 1e9, limits.f32 / 1e9);
    std::printf("fork-join %.2f us\n", limits.fork_join * 1e6);
    const int shapes[][2] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}, {3072, 2048}, {16384, 2048}, {2048, 8192}};
    const int row_counts[] = {1, 2, 4, 8, 16, 32, 64, 512};
    for (const auto& shape : shapes) {
        const int n = shape[0];
        const int k = shape[1];
        const std::vector<uint8_t> data = random_rows(source, n, k, rng);
        const size_t need = cold ? std::max<size_t>(1, (size_t{128} << 20) / data.size()) : 1;
        Arena arena;
        std::vector<Matrix> owned;
        for (size_t i = 0; i < need; ++i) owned.emplace_back(*kernels, std::vector<Part>{{source, data.data(), n}}, k, pool, arena);
        std::vector<Matrix*> copies;
        for (Matrix& m : owned) copies.push_back(&m);
        std::printf("%6d x %5d:", n, k);
        for (int rows : row_counts) {
            if (static_cast<double>(rows) * n * k > 2e10) continue;
            std::vector<float> x(static_cast<size_t>(rows * k));
            std::normal_distribution<float> normal;
            for (float& v : x) v = normal(rng);
            std::vector<float> out(static_cast<size_t>(rows) * static_cast<size_t>(n));
            Buffer scratch(scratch_bytes(owned[0], rows));
            LinearCall call;
            call.weight = &owned[0];
            call.x = x.data();
            call.x_stride = k;
            call.rows = rows;
            call.out = out.data();
            call.out_stride = n;
            call.scratch = scratch.data();
            const double t = time_linear(call, pool, copies);
            const double gops = 2.0 * rows * n * k / t / 1e9;
            if (rows == 1) std::printf(" [1] %.1f GB/s", static_cast<double>(owned[0].bytes()) / t / 1e9);
            else std::printf(" [%d] %.0f", rows, gops);
        }
        std::printf(" GOP/s\n");
        std::fflush(stdout);
    }
    return 0;
}
