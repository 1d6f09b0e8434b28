// WorkThread: runs work in the order in which it came, on a thread of its own: what would hold the
// I/O thread up, such as parsing, tokenising, and writing long answers.
//
// Thread:     any; the work runs on its own.
// Memory:     what waits, at most Limits of it.
// Cost:       one lock a piece of work; withdraw looks at all that waits.
// Not here:   work that waits (ServingLoop), many threads at one piece (base/thread_pool).
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "http/http_server.h"
#include "stemma/log.h"

namespace stemma {

class WorkThread {
 public:
  struct Limits {
    std::int64_t works = 0;  // that wait
    std::int64_t bytes = 0;  // that they keep
  };
  struct Work {
    ExchangeId whose;
    std::int64_t bytes = 0;  // that it keeps until it has run
    std::function<void()> run;
    // What a library throws at `run` costs this work alone: it is told what was thrown. May be
    // empty.
    std::function<void(std::string_view what)> failed = {};
  };

  explicit WorkThread(const Limits& limits) : limits_(limits), thread_([this] { run(); }) {}
  // What runs ends; what waits is dropped.
  ~WorkThread() { end(); }
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // False if it would be more than may wait, or after end().
  [[nodiscard]] bool try_post(Work&& work) {
    {
      const std::lock_guard lock(mutex_);
      const bool room =
          std::ssize(waiting_) < limits_.works && bytes_ + work.bytes <= limits_.bytes;
      if (ended_ || !room) return false;
      bytes_ += work.bytes;
      waiting_.push_back(std::move(work));
    }
    changed_.notify_one();
    return true;
  }

  // Nobody wants any more what waits of this exchange. False: nothing did; something may run.
  bool withdraw(ExchangeId whose) {
    std::vector<Work> dropped;  // outside of the lock
    const std::lock_guard lock(mutex_);
    const auto rest = std::stable_partition(waiting_.begin(), waiting_.end(),
                                            [&](const Work& work) { return work.whose != whose; });
    for (auto work = rest; work != waiting_.end(); ++work) {
      bytes_ -= work->bytes;
      dropped.push_back(std::move(*work));
    }
    waiting_.erase(rest, waiting_.end());
    return !dropped.empty();
  }

  // Runs nothing more; the destructor waits for what runs now.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
      if (ended_) return;
      Work work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      run_one(work);
      work.run = nullptr;  // with all that it keeps
      work.failed = nullptr;
      lock.lock();
      bytes_ -= work.bytes;
    }
  }

  // The edge of HTTP: no exception leaves it.
  static void run_one(const Work& work) {
    try {
      work.run();
    } catch (const std::exception& thrown) {
      STEMMA_LOG(kError, "server.work_threw", kv("what", thrown.what()));
      if (work.failed) work.failed(thrown.what());
    }
  }

  Limits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> waiting_;
  std::int64_t bytes_ = 0;  // of what waits or runs
  bool ended_ = false;
  std::jthread thread_;
};

}  // namespace stemma
