#include "base/float16.h"

namespace stemma {

float to_float(Float16 value) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1Fu;
  const std::uint32_t mantissa = value.bits & 0x3FFu;
  if (exponent == 0x1Fu) {
    return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  }
  // Subnormal: mantissa × 2^-24, exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

Float16 to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return Float16{static_cast<std::uint16_t>(sign | 0x7E00u)};
  }
  if (magnitude >= 0x477FF000u) {  // 65520 and above round to infinity
    return Float16{static_cast<std::uint16_t>(sign | 0x7C00u)};
  }
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves magnitude × 2^24, rounded to nearest even, in the low mantissa
    // bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return Float16{
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u))};
  }
  const std::uint32_t rounding = 0xFFFu + ((magnitude >> 13) & 1u);
  return Float16{static_cast<std::uint16_t>(sign | ((magnitude + rounding - 0x38000000u) >> 13))};
}

}  // namespace stemma
