// Float8: the two 8-bit floating-point formats of the Open Compute Project (OFP8) as storage types,
// converted to and from f32 one value at a time. Both have subnormals; e4m3 has no infinity.
//
// Thread:     pure functions.
// Memory:     one byte a value.
// Cost:       a few instructions; kernels convert whole vectors with Highway instead and agree with
//             these bit for bit.
// Not here:   scales (pool/), arithmetic in 8 bits: everything is computed in f32.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "base/float16.h"

namespace stemma {

// Sign, 4 bits of exponent (bias 7), 3 of mantissa; all ones is NaN.
struct Float8E4M3 {
  static constexpr int kMantissaBits = 3;
  static constexpr int kBias = 7;
  static constexpr float kMax = 448;
  std::uint8_t bits = 0;
};

// The upper half of an f16.
struct Float8E5M2 {
  static constexpr int kMantissaBits = 2;
  static constexpr int kBias = 15;
  static constexpr float kMax = 57344;
  std::uint8_t bits = 0;
};

// Exact.
inline float to_float(Float8E5M2 value) noexcept {
  return to_float(Float16{static_cast<std::uint16_t>(value.bits << 8)});
}

inline float to_float(Float8E4M3 value) noexcept {
  const std::uint32_t magnitude = value.bits & 0x7Fu;
  if (magnitude == 0x7Fu) return std::numeric_limits<float>::quiet_NaN();
  // The exponent's field where that of an f32 is, subnormals too: off by the difference of biases.
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x80u) << 24;
  return std::bit_cast<float>(sign | (magnitude << 20)) * 0x1p120f;
}

// Rounds to nearest, ties to even; what is larger than the largest becomes that. REQUIRES: not NaN.
template <typename Float8>
Float8 to_float8(float value) noexcept {
  constexpr int kShift = 23 - Float8::kMantissaBits;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (std::bit_cast<float>(magnitude) > Float8::kMax) {
    magnitude = std::bit_cast<std::uint32_t>(Float8::kMax);
  }
  if (magnitude < static_cast<std::uint32_t>(128 - Float8::kBias) << 23) {
    // Subnormal: after adding 2^23 times the least value, the low bits count such values.
    constexpr auto kCounting =
        static_cast<std::uint32_t>(127 + 24 - Float8::kBias - Float8::kMantissaBits) << 23;
    const float counted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kCounting);
    return {static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(counted) - kCounting))};
  }
  const std::uint32_t rebased = magnitude - (static_cast<std::uint32_t>(127 - Float8::kBias) << 23);
  const std::uint32_t rounding = (1u << (kShift - 1)) - 1 + ((magnitude >> kShift) & 1u);
  return {static_cast<std::uint8_t>(sign | ((rebased + rounding) >> kShift))};
}

}  // namespace stemma
