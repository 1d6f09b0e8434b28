// HeldLanes: lanes for tests, on which nothing moves and jobs end when the test says so.
//
// Thread:     one.
// Memory:     two lists of jobs.
// Cost:       none.
// Not here:   lanes that move bytes (transfer_lanes).
#pragma once

#include <chrono>
#include <deque>

#include "base/clock.h"
#include "tier/transfer_lanes.h"

namespace stemma {

class HeldLanes : public TransferLanes {
 public:
  void post(Transfer& job) override { posted.push_back(&job); }
  Transfer* try_take_done_or_null() override {
    if (done.empty()) return nullptr;
    Transfer* job = done.front();
    done.pop_front();
    return job;
  }
  void wait_done(std::chrono::microseconds time) override {
    if (clock_or_null != nullptr) clock_or_null->advance_us(time.count());
    while (ends_when_waited_for && !posted.empty()) end_next(PageVerdict::kDone);
  }
  bool wait_layer(Transfer&, std::int64_t) override { return false; }
  void stop() override {
    while (!posted.empty()) end_next();
  }

  // Ends the job that was posted first, its pages as they were left, or all with this verdict.
  void end_next() {
    done.push_back(posted.front());
    posted.pop_front();
  }
  void end_next(PageVerdict verdict) {
    posted.front()->verdicts.assign(posted.front()->keys.size(), verdict);
    end_next();
  }

  bool ends_when_waited_for = false;
  FakeClock* clock_or_null = nullptr;  // on which waiting takes as long as it may
  std::deque<Transfer*> posted;
  std::deque<Transfer*> done;
};

}  // namespace stemma
