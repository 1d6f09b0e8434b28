// WorkThread: runs work in the order in which it came, on a thread of its own: what would hold the
// I/O thread up, such as parsing and tokenising.
//
// Thread:     try_post from any.
// Memory:     a queue of works_max.
// Cost:       one lock a piece of work.
// Not here:   work that waits (ServingLoop), many threads at one piece (base/thread_pool).
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "base/bounded_queue.h"

namespace stemma {

class WorkThread {
 public:
  explicit WorkThread(std::int64_t works_max) : works_(works_max), thread_([this] { run(); }) {}
  // Runs what waits, then ends.
  ~WorkThread() { works_.close(); }
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // False if works_max wait.
  [[nodiscard]] bool try_post(std::function<void()> work) {
    return works_.try_push(std::move(work));
  }

 private:
  void run() {
    while (auto work = works_.pop()) (*work)();
  }

  BoundedQueue<std::function<void()>> works_;
  std::jthread thread_;
};

}  // namespace stemma
