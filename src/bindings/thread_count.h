// How many threads a caller may ask for: each has a stack of its own, and of more than a machine
// has processors none is of use.
//
// Thread:     any.
// Memory:     none.
// Cost:       none.
// Not here:   threads (base/thread_pool).
#pragma once

#include <string>

#include "stemma/result.h"

namespace stemma {

inline Status check_threads(int threads) {
  constexpr int kThreadsMax = 1024;
  if (threads >= 1 && threads <= kThreadsMax) return {};
  return Error{ErrorCode::kInvalidArgument,
               "threads must be from 1 to 1024 (got " + std::to_string(threads) + ")"};
}

}  // namespace stemma
