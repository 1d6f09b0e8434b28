// Math: the integer arithmetic of pages.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       a division.
// Not here:   anything with floating point.
#pragma once

#include <concepts>

namespace stemma {

// ceil(n / d). REQUIRES: n >= 0, d > 0.
template <std::integral T>
constexpr T ceil_div(T n, T d) noexcept {
  return static_cast<T>(n / d + (n % d != 0 ? 1 : 0));
}

// The largest multiple of d that is <= n. REQUIRES: n >= 0, d > 0.
template <std::integral T>
constexpr T round_down(T n, T d) noexcept {
  return static_cast<T>(n - n % d);
}

// The smallest multiple of d that is >= n. REQUIRES: n >= 0, d > 0.
template <std::integral T>
constexpr T round_up(T n, T d) noexcept {
  return static_cast<T>(ceil_div(n, d) * d);
}

}  // namespace stemma
