// For tests: whether the system has io_uring, and allows it.
//
// Thread:     any.
// Memory:     none.
// Cost:       a ring.
// Not here:   calls that are refused (base/refused_calls).
#pragma once

#include "base/clock.h"
#include "store/uring_queue.h"

namespace stemma {

inline bool has_io_uring() {
  const MonotonicClock clock;
  return UringQueue::open(clock, {.depth = 1, .piece_bytes = 4096}).ok();
}

}  // namespace stemma
