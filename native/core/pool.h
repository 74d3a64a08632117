// A fork-join thread pool for regions of microseconds. Knows nothing of what it runs; one job at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace octavo {

// The caller is thread 0; `threads - 1` workers wait for it. A waiting worker spins for about `kSpin` pauses, long enough
// to bridge the gap between two regions of one step, then sleeps in the kernel, so that an idle engine burns no core.
class ThreadPool {
public:
    using Job = void (*)(void* context, int thread);

    explicit ThreadPool(int threads, bool pin = false);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Runs job(context, t) once for every t in [0, threads) and returns when all are done. Jobs must not throw.
    void run(Job job, void* context);

    template <class F>
    void run(F&& f) {
        run([](void* c, int t) { (*static_cast<std::remove_reference_t<F>*>(c))(t); }, const_cast<void*>(static_cast<const void*>(&f)));
    }

    // Inside a job: returns once all threads have called it. Everything written before is visible after.
    void barrier();

private:
    void work(int thread);

    static constexpr int kSpin = 20000;

    alignas(64) std::atomic<uint32_t> generation_{0};
    alignas(64) std::atomic<int> running_{0};
    alignas(64) std::atomic<int> arrived_{0};
    std::atomic<uint32_t> phase_{0};
    alignas(64) std::atomic<int> sleepers_{0};
    Job job_ = nullptr;
    void* context_ = nullptr;
    std::atomic<bool> stop_{false};
    std::vector<std::thread> workers_;
};

// The part of [0, count) that thread t of n takes: contiguous, in order, sizes differ by at most one.
inline void split(int count, int thread, int threads, int& begin, int& end) {
    begin = static_cast<int>(static_cast<int64_t>(count) * thread / threads);
    end = static_cast<int>(static_cast<int64_t>(count) * (thread + 1) / threads);
}

}  // namespace octavo
