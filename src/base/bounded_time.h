// Times that callers give and that are added to a clock's.
//
// Thread:     pure.
// Memory:     none.
// Cost:       a comparison.
// Not here:   clocks (base/clock.h).
#pragma once

#include <algorithm>
#include <cstdint>

namespace stemma {

inline constexpr std::int64_t kYearUs = std::int64_t{365} * 24 * 3600 * 1'000'000;

// The time, or a year, which stands for any longer one: the sum with a clock's does not overflow.
constexpr std::int64_t bounded_us(std::int64_t us) noexcept {
  return std::min(us, kYearUs);
}

}  // namespace stemma
