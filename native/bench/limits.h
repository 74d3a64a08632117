// What this machine can do at best, measured: reading memory and arithmetic. Kernels are judged against these. Times nothing
// of octavo's own.
#pragma once

#include "core/pool.h"

namespace octavo {

// Seconds, from some moment on. A pool of one thread is timed by the processor time that it got, so that a busy machine does
// not blur the figures.
double bench_now(const ThreadPool& pool);

// Bytes a second of all threads together reading `megabytes` once, from memory where that is more than the caches hold: the
// best of several runs.
double read_bandwidth(ThreadPool& pool, int megabytes = 512);

// Operations a second of all threads together: spin is Kernels::peak_int8 or peak_f32. The ninetieth percentile of many
// runs: the best of many is a glitch of the clock.
double peak_rate(ThreadPool& pool, double (*spin)(int));

}  // namespace octavo
