// Float16: bf16 and IEEE f16 as storage types, converted to and from f32 one value at a time.
//
// Thread:     pure functions.
// Memory:     two bytes a value.
// Cost:       a few instructions; kernels convert whole vectors with Highway instead and agree with
//             these bit for bit.
// Not here:   arithmetic in 16 bits: everything is computed in f32.
#pragma once

#include <bit>
#include <cstdint>

namespace stemma {

// The upper half of an f32.
struct BFloat16 {
  std::uint16_t bits = 0;
};

// IEEE binary16.
struct Float16 {
  std::uint16_t bits = 0;
};

// Exact.
inline float to_float(BFloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN (quiet).
inline BFloat16 to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return BFloat16{static_cast<std::uint16_t>((bits >> 16) | 0x0040u)};
  }
  const std::uint32_t rounding = 0x7FFFu + ((bits >> 16) & 1u);
  return BFloat16{static_cast<std::uint16_t>((bits + rounding) >> 16)};
}

// Exact, subnormals included.
float to_float(Float16 value) noexcept;

// Rounds to nearest, ties to even; overflow gives infinity; NaN stays NaN.
Float16 to_float16(float value) noexcept;

}  // namespace stemma
