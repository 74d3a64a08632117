#include "core/pool.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {

namespace {

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins, and yields the core now and then: with more threads than cores the awaited thread may need this one.
template <class Ready>
void spin_until(Ready ready) {
    for (uint32_t i = 1; !ready(); ++i) {
        pause();
        if (i % 4096 == 0) std::this_thread::yield();
    }
}

void pin_to_core([[maybe_unused]] std::thread& thread, [[maybe_unused]] int core) {
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    int seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || seen++ != core) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(thread.native_handle(), sizeof one, &one);
        return;
    }
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads, bool pin) {
    for (int t = 1; t < threads; ++t) {
        workers_.emplace_back([this, t] { work(t); });
        if (pin) pin_to_core(workers_.back(), t);
    }
}

ThreadPool::~ThreadPool() {
    stop_.store(true, std::memory_order_relaxed);
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(Job job, void* context) {
    if (workers_.empty()) {
        job(context, 0);
        return;
    }
    job_ = job;
    context_ = context;
    running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    // Sequentially consistent with work(): either a worker's sleep sees the new generation, or we see the sleeper.
    generation_.fetch_add(1);
    if (sleepers_.load() > 0) generation_.notify_all();
    job(context, 0);
    spin_until([this] { return running_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::work(int thread) {
    uint32_t seen = 0;
    for (;;) {
        for (int i = 0; i < kSpin && generation_.load(std::memory_order_acquire) == seen; ++i) pause();
        if (generation_.load(std::memory_order_acquire) == seen) {
            sleepers_.fetch_add(1);
            generation_.wait(seen);
            sleepers_.fetch_sub(1);
        }
        seen = generation_.load(std::memory_order_acquire);
        if (stop_.load(std::memory_order_relaxed)) return;
        job_(context_, thread);
        running_.fetch_sub(1, std::memory_order_acq_rel);
    }
}

void ThreadPool::barrier() {
    const int all = threads();
    if (all == 1) return;
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == all) {
        arrived_.store(0, std::memory_order_relaxed);
        phase_.store(phase + 1, std::memory_order_release);
        return;
    }
    spin_until([this, phase] { return phase_.load(std::memory_order_acquire) != phase; });
}

}  // namespace octavo
