// A run raises the generation under the sleep mutex, so a worker either sees it while spinning or
// is woken from its sleep. Every worker takes part in every run (it may find no task left) and then
// lowers busy_workers_; the caller waits for zero, so `task_` is never read after run returns.
#include "base/thread_pool.h"

#include "base/check.h"

namespace stemma {

namespace {

// Bounded: about 20 µs of pauses, longer than the gap between two layers' kernels, shorter than a
// scheduler's slice.
constexpr int kSpinsMax = 2000;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  STEMMA_CHECK(threads >= 1, "a pool has at least the calling thread");
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker](const std::stop_token& stop) { work(stop, worker); });
  }
}

ThreadPool::~ThreadPool() {
  for (std::jthread& worker : workers_) worker.request_stop();
  workers_.clear();
}

void ThreadPool::run(std::int64_t tasks, Task task) {
  if (workers_.empty() || tasks <= 1) {
    for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
  {
    const std::lock_guard lock(sleep_mutex_);
    tasks_ = tasks;
    task_ = &task;
    next_task_.store(0, std::memory_order_relaxed);
    busy_workers_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  drain(task, 0);
  for (int spin = 0; spin < kSpinsMax; ++spin) {
    if (busy_workers_.load(std::memory_order_acquire) == 0) return;
    pause_cpu();
  }
  std::unique_lock lock(sleep_mutex_);
  done_.wait(lock, [this] { return busy_workers_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::work(const std::stop_token& stop, int worker) {
  std::uint64_t seen = 0;
  while (!stop.stop_requested()) {
    for (int spin = 0; spin < kSpinsMax && generation_.load(std::memory_order_acquire) == seen;
         ++spin) {
      pause_cpu();
    }
    if (generation_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(sleep_mutex_);
      const bool woken = wake_.wait(
          lock, stop, [&] { return generation_.load(std::memory_order_acquire) != seen; });
      if (!woken) return;
    }
    seen = generation_.load(std::memory_order_acquire);
    drain(*task_, worker);
    if (busy_workers_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const std::lock_guard lock(sleep_mutex_);
      done_.notify_one();
    }
  }
}

void ThreadPool::drain(const Task& task, int worker) {
  for (;;) {
    const std::int64_t i = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (i >= tasks_) return;
    task(i, worker);
  }
}

}  // namespace stemma
