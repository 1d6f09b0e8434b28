// ThreadPool: fork–join for the data plane. One caller at a time hands out tasks and waits for all
// of them.
//
// Thread:     `run` is called by one thread at a time (the engine thread).
// Memory:     fixed at construction; `run` does not allocate.
// Cost:       a few microseconds to fork and join; workers spin for a bounded time, then sleep, and
//             nobody waits for a worker that has no task: a busy core never makes them collapse.
// Not here:   queues, priorities, futures. Which task does what is the caller's plan, so results do
// not depend on it (I13).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace stemma {

// Whether each worker stays on one CPU.
enum class ThreadPinning : std::uint8_t {
  kOff,
  // Where the process may use exactly as many CPUs as the pool has threads, worker i keeps to the
  // i-th; the first is left to the caller, who goes where the system puts it. Anywhere else as
  // kOff: with fewer CPUs threads would wait for each other, and with more of them two programs
  // that pin would meet on the first ones. A worker that lost its CPU to another program amid a
  // task, while the caller waits for it, finishes the task on the caller's CPU; a caller that did
  // finishes it on the CPU of worker 1, and stays there for a while.
  kWorkers,
};

// One bit for each CPU, as the system counts them; none where it does not say.
struct CpuMask {
  std::array<std::uint64_t, 16> bits{};
};

// CPUs that the process may use: what its affinity leaves of the machine's. At least 1.
int usable_cpus();

class ThreadPool {
 public:
  // task: 0 … tasks−1; worker: 0 … threads−1, for scratch memory of one's own (the caller is worker
  // 0).
  using Task = FunctionRef<void(std::int64_t task, int worker)>;

  // Starts threads − 1 workers; the caller of `run` is the remaining one. REQUIRES: threads >= 1.
  explicit ThreadPool(int threads, ThreadPinning pinning = ThreadPinning::kOff);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return static_cast<int>(workers_.size()) + 1; }
  // Whether workers keep to a CPU each.
  bool pinned() const noexcept { return pinned_; }

  // Calls task(i, worker) once for each i in [0, tasks), spread over the threads, and returns when
  // all are done. What they wrote is visible to the caller. Tasks must not call `run`, nor wait for
  // each other: one thread may have to do them all.
  void run(std::int64_t tasks, Task task);

  // The same with a task for each thread, all at once: these may wait for each other.
  void run_on_all(Task task);

 private:
  // What threads know of each other where workers are pinned.
  struct Seat {
    std::atomic<bool> inside{false};  // it takes tasks of the run
    std::atomic<bool> away{false};    // it was fetched
    int cpu = 0;                      // its own; the caller's: where no worker is
    std::int64_t cpu_ns = -1;         // what it had computed when somebody last looked
  };
  using Handle = std::jthread::native_handle_type;

  Seat& seat_of(int worker) noexcept { return seats_[static_cast<std::size_t>(worker)]; }
  void work(const std::stop_token& stop, int worker);
  bool try_join();
  void leave();
  void drain(const Task& task, int worker);
  void spread(std::int64_t tasks, Task task);
  void wait_for_workers();
  bool sleep_until_run(const std::stop_token& stop, std::uint64_t seen, int worker);
  void fetch_workers();
  void fetch_caller();
  bool is_stalled(Seat& seat, Handle thread);
  void go_home(int worker);
  void free_caller();
  bool caller_is_displaced();
  void bring_caller_home();

  std::atomic<std::int64_t> next_task_{0};
  std::int64_t tasks_ = 0;
  const Task* task_ = nullptr;
  std::atomic<std::uint64_t> generation_{0};  // raised by each run; workers wait for it to change
  std::atomic<std::uint32_t> party_{0};       // workers in the run, and whether more may join
  std::mutex sleep_mutex_;
  std::condition_variable_any wake_;
  std::condition_variable done_;

  bool pinned_ = false;
  std::vector<Seat> seats_;  // the caller's, then the workers'; none where they are not pinned
  std::atomic<Handle> caller_{};
  std::atomic<bool> in_run_{false};
  CpuMask caller_cpus_;                               // that it may use, before it was fetched
  std::atomic<bool> displaced_{false};                // the caller computes on the CPU of worker 1
  std::chrono::steady_clock::time_point home_again_;  // when it tries its own
  std::vector<std::jthread> workers_;
};

}  // namespace stemma
