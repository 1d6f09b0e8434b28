// How many threads a caller may ask for: each has a stack of its own, and of more than a machine
// has CPUs none is of use.
//
// Thread:     any.
// Memory:     none.
// Cost:       none.
// Not here:   threads (thread_pool).
#pragma once

#include <fmt/format.h>

#include "stemma/result.h"

namespace stemma {

inline constexpr int kThreadsMax = 1024;

inline Status check_threads(int threads) {
  if (threads >= 1 && threads <= kThreadsMax) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("threads must be from 1 to {} (got {})", kThreadsMax, threads)};
}

}  // namespace stemma
