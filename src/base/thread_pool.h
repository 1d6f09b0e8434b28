// ThreadPool: fork–join for the data plane. One caller at a time hands out tasks and waits for all
// of them.
//
// Thread:     `run` is called by one thread at a time (the engine thread).
// Memory:     fixed at construction; `run` does not allocate.
// Cost:       a few microseconds to fork and join; workers spin for a bounded time, then sleep (a
// busy core never makes
//             them collapse).
// Not here:   queues, priorities, futures. Which task does what is the caller's plan, so results do
// not depend on it (I13).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace stemma {

class ThreadPool {
 public:
  // task: 0 … tasks−1; worker: 0 … threads−1, for scratch memory of one's own (the caller is worker
  // 0).
  using Task = FunctionRef<void(std::int64_t task, int worker)>;

  // Starts threads − 1 workers; the caller of `run` is the remaining one. REQUIRES: threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(i, worker) once for each i in [0, tasks), spread over the threads, and returns when
  // all are done. What they wrote is visible to the caller. Tasks must not call `run`.
  void run(std::int64_t tasks, Task task);

 private:
  void work(const std::stop_token& stop, int worker);
  void drain(const Task& task, int worker);

  std::atomic<std::int64_t> next_task_{0};
  std::int64_t tasks_ = 0;
  const Task* task_ = nullptr;
  std::atomic<std::uint64_t> generation_{0};  // raised by each run; workers wait for it to change
  std::atomic<int> busy_workers_{0};
  std::mutex sleep_mutex_;
  std::condition_variable_any wake_;
  std::condition_variable done_;
  std::vector<std::jthread> workers_;
};

}  // namespace stemma
