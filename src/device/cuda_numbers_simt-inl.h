// Stored types and f32 in the dialect of kernels, on the emulated GPU. cuda_dialect.h says what
// each function is.
//
// Thread:     see cuda_dialect.h.
// Memory:     none.
// Cost:       as on a CPU.
// Not here:   the same in CUDA C++ (cuda_numbers_native-inl.h).
#pragma once

#include <bit>
#include <cmath>

namespace stemma {

inline float widen(float value) {
  return value;
}
inline float widen(std::int8_t value) {
  return static_cast<float>(value);
}
template <typename T>
float widen(T value) {
  return to_float(value);
}

template <typename Code>
void codes_as_halves(std::uint32_t word, std::uint32_t (&to)[2]) {
  const auto half = [word](int i) {
    const float value = widen(std::bit_cast<Code>(static_cast<std::uint8_t>(word >> (8 * i))));
    return std::uint32_t{to_float16(value).bits};
  };
  for (int i = 0; i < 2; ++i) to[i] = half(2 * i) | half(2 * i + 1) << 16;
}
inline std::uint32_t swap_middle_bytes(std::uint32_t word) {
  return (word & 0xFF0000FFu) | (word & 0x0000FF00u) << 8 | (word & 0x00FF0000u) >> 8;
}

template <typename T>
T narrow(float value);
template <>
inline float narrow<float>(float value) {
  return value;
}
// A GPU has one NaN of each type to give.
template <>
inline BFloat16 narrow<BFloat16>(float value) {
  return std::isnan(value) ? BFloat16{0x7FFF} : to_bfloat16(value);
}
template <>
inline Float16 narrow<Float16>(float value) {
  return std::isnan(value) ? Float16{0x7FFF} : to_float16(value);
}
template <>
inline Float8E4M3 narrow<Float8E4M3>(float value) {
  return std::isnan(value) ? Float8E4M3{0x7F} : to_float8<Float8E4M3>(value);
}
template <>
inline Float8E5M2 narrow<Float8E5M2>(float value) {
  return std::isnan(value) ? Float8E5M2{0x7F} : to_float8<Float8E5M2>(value);
}
template <>
inline std::int8_t narrow<std::int8_t>(float value) {
  return static_cast<std::int8_t>(std::nearbyint(std::fmin(std::fmax(value, -127.0f), 127.0f)));
}

template <typename Code>
std::uint32_t narrow_codes(const float (&values)[4]) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    word |= std::uint32_t{std::bit_cast<std::uint8_t>(narrow<Code>(values[i]))} << (8 * i);
  }
  return word;
}

template <typename T>
std::uint32_t narrow_pair(float low, float high) {
  return static_cast<std::uint32_t>(narrow<T>(low).bits) |
         static_cast<std::uint32_t>(narrow<T>(high).bits) << 16;
}

template <typename T>
std::uint32_t subtract_pairs(std::uint32_t a, std::uint32_t b) {
  const auto half = [](std::uint32_t word, int i) {
    return to_float(T{static_cast<std::uint16_t>(word >> (16 * i))});
  };
  return narrow_pair<T>(half(a, 0) - half(b, 0), half(a, 1) - half(b, 1));
}

}  // namespace stemma
