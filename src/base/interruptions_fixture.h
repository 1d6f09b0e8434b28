// Interruptions: for tests: the thread that makes it gets a signal every fifth of a millisecond
// while it lives, as under a profiler, so that what it waits for with a limit of time is
// interrupted (signal(7)).
//
// Thread:     made and destroyed by the thread that it interrupts.
// Memory:     a timer of the system.
// Cost:       5,000 signals a second.
// Not here:   which calls are repeated then: who makes them.
#pragma once

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <thread>

#include "base/check.h"

namespace stemma {

class Interruptions {
 public:
  Interruptions() {
    ++living_;
    std::signal(SIGUSR2, [](int) { ++count_; });  // stays: one may come behind the timer's end
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGUSR2;
    event._sigev_un._tid = gettid();
    STEMMA_CHECK_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer_), 0);
    constexpr timespec kApart = {.tv_sec = 0, .tv_nsec = 200'000};
    const itimerspec times = {.it_interval = kApart, .it_value = kApart};
    STEMMA_CHECK_EQ(timer_settime(timer_, 0, &times, nullptr), 0);
  }
  ~Interruptions() {
    timer_delete(timer_);
    --living_;
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

  // Returns behind so many more, or when there are none any more. Another thread than the one that
  // they interrupt.
  static void await(int more) {
    const int until = count_ + more;
    while (living_ > 0 && count_ < until) std::this_thread::yield();
  }

 private:
  static inline std::atomic<int> count_ = 0;
  static inline std::atomic<int> living_ = 0;
  static_assert(std::atomic<int>::is_always_lock_free, "it counts amid anything");
  timer_t timer_ = {};
};

}  // namespace stemma
