// --ghost-rate: the share of page uses that ghosts watch, as it is typed.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       none.
// Not here:   ghosts (ghost/), which watch one page use in so many.
#pragma once

#include <cmath>
#include <cstdint>

#include "stemma/result.h"

namespace stemma {

// kInvalidArgument, naming the flag, unless 0 < rate <= 1.
inline Status check_ghost_rate(double rate) {
  if (rate > 0 && rate <= 1) return {};
  return Error{ErrorCode::kInvalidArgument, "--ghost-rate must be above 0 and at most 1"};
}

// One page in how many. REQUIRES: check_ghost_rate(rate) is ok.
inline std::int64_t pages_per_sample_of(double rate) {
  return std::llround(1 / rate);
}

}  // namespace stemma
