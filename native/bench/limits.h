// What this machine can do at best, measured: reading memory and arithmetic. Kernels are judged against these. Times nothing
// of octavo's own.
#pragma once

#include "core/kernels.h"
#include "core/pool.h"

namespace octavo {

// Seconds, from some moment on. A pool of one thread is timed by the processor time that it got, so that a busy machine does
// not blur the figures.
double bench_now(const ThreadPool& pool);

// Bytes a second of all threads together reading `megabytes` once, from memory where that is more than the caches hold: the
// best of several runs with one, two and four streams a thread.
double read_bandwidth(ThreadPool& pool, int megabytes = 512);

// Operations a second of all threads together: spin is one of Kernels' peaks. The 98th percentile of many short runs: the
// best is a glitch of the clock, and most may meet other work.
double peak_rate(ThreadPool& pool, double (*spin)(int));

// Seconds of a job that does nothing, on all threads.
double fork_join_seconds(ThreadPool& pool);

// Rates a second, of all the pool's threads together.
struct MachineLimits {
    double read_bytes = 0.0;
    double int8 = 0.0;
    double exact_int8 = 0.0;
    double bf16 = 0.0;
    double f32 = 0.0;
    double fork_join = 0.0;  // seconds
};

// Takes about a second, and half a gigabyte.
MachineLimits measure_limits(const Kernels& kernels, ThreadPool& pool);

}  // namespace octavo
