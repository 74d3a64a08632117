// Times linear layers against what this machine can do, measured in the same run: reading memory, 8-bit products, f32.
#include "core/isa.h"
#include "core/linear.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace octavo;

namespace {

// One thread is timed by the processor time it got, so that a busy machine does not blur the figures.
bool by_thread_time = false;

double now() {
    if (by_thread_time) {
        timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

double read_bandwidth(ThreadPool& pool) {
    Buffer b(size_t{512} << 20);
    std::memset(b.data(), 1, b.size());
    double best = 1e9;
    std::vector<uint64_t> sums(64);
    for (int i = 0; i < 5; ++i) {
        const double t = now();
        pool.run([&](int thread) {
            int begin;
            int end;
            split(static_cast<int>(b.size() >> 6), thread, pool.threads(), begin, end);
            const uint64_t* p = reinterpret_cast<const uint64_t*>(b.data());
            uint64_t s[8] = {};
            for (int j = begin; j < end; ++j)
                for (int l = 0; l < 8; ++l) s[l] += p[8 * static_cast<size_t>(j) + static_cast<size_t>(l)];
            for (uint64_t v : s) sums[static_cast<size_t>(thread)] += v;
        });
        best = std::min(best, now() - t);
    }
    return sums[0] == 7 ? 0 : static_cast<double>(b.size()) / best;
}

// Like the kernels' times a percentile, for the same reason: the best of many is a glitch of the clock.
double peak(ThreadPool& pool, double (*spin)(int)) {
    std::vector<double> rates;
    std::vector<double> ops(64);
    for (int i = 0; i < 200; ++i) {
        const double t = now();
        pool.run([&](int thread) { ops[static_cast<size_t>(thread)] = spin(20000); });
        rates.push_back(ops[0] * pool.threads() / (now() - t));
    }
    std::sort(rates.begin(), rates.end());
    return rates[rates.size() * 9 / 10];
}

// The tenth percentile of many short runs: the least is at the mercy of the clock's own glitches, the mean of neighbours.
double time_linear(LinearCall& call, ThreadPool& pool, const std::vector<Matrix*>& copies) {
    std::vector<double> times;
    size_t next = 0;
    const double stop = now() + 0.15;
    while (now() < stop || times.size() < 10) {
        call.weight = copies[next++ % copies.size()];
        const double t = now();
        run_linear(call, pool);
        times.push_back(now() - t);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 10];
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
    by_thread_time = threads == 1;
    std::mt19937 rng(1);
    std::printf("%s, %d threads, %s; read %.1f GB/s\n", isa_name(kernels->isa), threads, info(source).name, read_bandwidth(pool) / 1e9);
    double join = 1e9;
    for (int i = 0; i < 200; ++i) {
        const double t = now();
        for (int j = 0; j < 50; ++j) pool.run([](int) {});
        join = std::min(join, (now() - t) / 50);
    }
    std::printf("peak int8 %.0f GOP/s, f32 %.0f GFLOP/s\n", peak(pool, kernels->peak_int8) / 1e9, peak(pool, kernels->peak_f32) / 1e9);
    std::printf("fork-join %.2f us\n", join * 1e6);
    const int shapes[][2] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}, {3072, 2048}, {16384, 2048}, {2048, 8192}};
    const int row_counts[] = {1, 2, 4, 8, 16, 32, 64, 512};
    for (const auto& shape : shapes) {
        const int n = shape[0];
        const int k = shape[1];
        const std::vector<uint8_t> data = random_rows(source, n, k, rng);
        const size_t need = cold ? std::max<size_t>(1, (size_t{128} << 20) / data.size()) : 1;
        std::vector<Matrix> owned;
        for (size_t i = 0; i < need; ++i) owned.emplace_back(*kernels, std::vector<Part>{{source, data.data(), n}}, k, pool);
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
