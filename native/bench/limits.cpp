#include "bench/limits.h"

#include "core/buffer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <vector>

namespace octavo {

double bench_now(const ThreadPool& pool) {
#if defined(CLOCK_THREAD_CPUTIME_ID)
    if (pool.threads() == 1) {
        timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    }
#endif
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace {

// Adds up `count` lines of 64 bytes from `p` on, as `streams` runs side by side: the processor's prefetchers follow several
// streams at once, and one alone does not fill the way to memory.
uint64_t read_lines(const uint64_t* p, int count, int streams) {
    uint64_t lanes[8] = {};
    const int each = count / streams;
    for (int line = 0; line < each; ++line)
        for (int stream = 0; stream < streams; ++stream) {
            const uint64_t* at = p + 8 * (static_cast<size_t>(stream) * static_cast<size_t>(each) + static_cast<size_t>(line));
            for (int l = 0; l < 8; ++l) lanes[l] += at[l];
        }
    uint64_t sum = 0;
    for (const uint64_t v : lanes) sum += v;
    return sum;
}

}  // namespace

double read_bandwidth(ThreadPool& pool, int megabytes) {
    const Buffer buffer(static_cast<size_t>(megabytes) << 20);
    std::memset(buffer.data(), 1, buffer.size());
    std::vector<uint64_t> sums(static_cast<size_t>(pool.threads()));
    double best = 1e9;
    for (int i = 0; i < 9; ++i) {
        const int streams = 1 << (i % 3);  // 1, 2, 4
        const double start = bench_now(pool);
        pool.run([&](int thread) {
            int begin;
            int end;
            split(static_cast<int>(buffer.size() >> 6), thread, pool.threads(), begin, end);
            const uint64_t* p = reinterpret_cast<const uint64_t*>(buffer.data());
            sums[static_cast<size_t>(thread)] += read_lines(p + 8 * static_cast<size_t>(begin), end - begin, streams);
        });
        best = std::min(best, bench_now(pool) - start);
    }
    uint64_t total = 0;
    for (const uint64_t s : sums) total += s;
    return total == 0 ? 0.0 : static_cast<double>(buffer.size()) / best;  // never 0: keeps the sums alive
}

double peak_rate(ThreadPool& pool, double (*spin)(int)) {
    constexpr double kSeconds = 0.2;
    constexpr int kIterations = 20000;
    std::vector<double> rates;
    std::vector<double> operations(static_cast<size_t>(pool.threads()));
    const double stop = bench_now(pool) + kSeconds;
    while (rates.empty() || bench_now(pool) < stop) {
        const double start = bench_now(pool);
        pool.run([&](int thread) { operations[static_cast<size_t>(thread)] = spin(kIterations); });
        rates.push_back(operations[0] * pool.threads() / (bench_now(pool) - start));
    }
    std::sort(rates.begin(), rates.end());
    return rates[rates.size() * 49 / 50];
}

double fork_join_seconds(ThreadPool& pool) {
    constexpr int kJobs = 50;
    double best = 1e9;
    for (int i = 0; i < 200; ++i) {
        const double start = bench_now(pool);
        for (int j = 0; j < kJobs; ++j) pool.run([](int) {});
        best = std::min(best, (bench_now(pool) - start) / kJobs);
    }
    return best;
}

MachineLimits measure_limits(const Kernels& kernels, ThreadPool& pool) {
    MachineLimits limits;
    limits.int8 = peak_rate(pool, kernels.peak_int8);
    limits.exact_int8 = peak_rate(pool, kernels.peak_exact_int8);
    limits.bf16 = peak_rate(pool, kernels.peak_bf16);
    limits.f32 = peak_rate(pool, kernels.peak_f32);
    limits.read_bytes = read_bandwidth(pool);
    limits.fork_join = fork_join_seconds(pool);
    return limits;
}

}  // namespace octavo
