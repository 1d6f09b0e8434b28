// Codes of rounded weights become numbers that tensor cores multiply.
//
// A code is a whole number of at most 8 bits, which is exact in bf16 and in f16: a word of it is
// put behind the leading digits of a power of two, which is taken off again.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels.
// Memory:     registers.
// Cost:       of 4 bits 11 instructions for 8 codes, of 8 bits 7 for 4.
// Not here:   where codes lie (rounded_strips.h), what they are multiplied with
// (rounded_tiles_cuda).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_dialect.h"
#include "device/rounded_strips.h"

namespace stemma {

template <typename T>
struct CodeConstants;
template <>
struct CodeConstants<BFloat16> {
  static constexpr std::uint32_t kOnes = 0x43004300u;    // 128, whose last bit counts ones
  static constexpr std::uint32_t kEights = 0x43084308u;  // 136
};
template <>
struct CodeConstants<Float16> {
  static constexpr std::uint32_t kOnes = 0x64006400u;    // 1024
  static constexpr std::uint32_t kEights = 0x64086408u;  // 1032
};

// kOnes in a register, of whose value the compiler does not know: with two constants in it an
// instruction that puts codes behind ones would become two. `inputs`: as many as no matrix has
// 2^62.
template <typename T>
STEMMA_ON_DEVICE std::uint32_t ones_of(std::int64_t inputs) {
  return CodeConstants<T>::kOnes + static_cast<std::uint32_t>(inputs >> 62);
}

// Two codes of 4 bits, at bits 0 and 16.
template <typename T>
STEMMA_ON_DEVICE std::uint32_t widen_int4(std::uint32_t codes, std::uint32_t ones) {
  return subtract_pairs<T>((codes & 0x000F000Fu) | ones, CodeConstants<T>::kEights);
}

// The same of 8 bits. Seven of them are what a bf16 has behind its first one: what the eighth takes
// off is taken off by itself.
template <typename T>
STEMMA_ON_DEVICE std::uint32_t widen_int8(std::uint32_t codes, std::uint32_t ones);
template <>
STEMMA_ON_DEVICE std::uint32_t widen_int8<BFloat16>(std::uint32_t codes, std::uint32_t ones) {
  return subtract_pairs<BFloat16>((codes & 0x007F007Fu) | ones, (codes & 0x00800080u) | ones);
}
template <>
STEMMA_ON_DEVICE std::uint32_t widen_int8<Float16>(std::uint32_t codes, std::uint32_t ones) {
  return subtract_pairs<Float16>(((codes & 0x00FF00FFu) | ones) ^ 0x00800080u, 0x64806480u);
}

// Of 32 bits, that a thread has of a group's codes of one output.
template <int kBits>
inline constexpr std::size_t kCodeWords = std::size_t{kBits} / 2;

// What a thread has of a group's codes of one output, and of them what step `step` multiplies: two
// of the first eight inputs, two of the others.
template <typename T, int kBits>
STEMMA_ON_DEVICE void widen_step(const std::uint32_t (&codes)[kCodeWords<kBits>], int step,
                                 std::uint32_t ones, std::uint32_t& first, std::uint32_t& second) {
  if constexpr (kBits == 8) {
    first = widen_int8<T>(codes[step], ones);
    second = widen_int8<T>(codes[step] >> 8, ones);
  } else {
    const std::uint32_t own = codes[step / 2] >> (8 * (step % 2));
    first = widen_int4<T>(own, ones);
    second = widen_int4<T>(own >> 4, ones);
  }
}

// From `from` on.
template <int kBits>
STEMMA_ON_DEVICE void load_codes(const std::byte* from, std::uint32_t (&codes)[kCodeWords<kBits>]) {
  if constexpr (kBits == 8) {
    const Words words = load_words(from);
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) codes[i] = words.w[i];
  } else {
    const TwoWords words = *reinterpret_cast<const TwoWords*>(from);
    codes[0] = words.w[0];
    codes[1] = words.w[1];
  }
}

// The scale of one output of a group of 4 bits.
STEMMA_ON_DEVICE float int4_scale(const std::byte* group, int output) {
  const std::byte* const scales = group + RoundedStrips::code_bytes(4);
  return widen(reinterpret_cast<const BFloat16*>(scales)[output]);
}
// What one value's sum becomes with the next group's.
template <int kBits>
STEMMA_ON_DEVICE float with_group(float sum, float group, float scale) {
  return kBits == 8 ? sum + group : fused(group, scale, sum);
}

// Codes one by one: that of input `input` of a matrix whose strips begin at `strips`, as f32, and
// its scale.
template <int kBits>
STEMMA_ON_DEVICE float code_at(const std::byte* strips, std::int64_t k, std::int64_t output,
                               std::int64_t input) {
  constexpr int kRowBytes = RoundedStrips::kGroup * kBits / 8;
  const int within = static_cast<int>(input % RoundedStrips::kGroup);
  const std::byte* const row =
      strips + output / RoundedStrips::kOutputs * RoundedStrips::strip_bytes(kBits, k) +
      RoundedStrips::begin_bytes(kBits) +
      input / RoundedStrips::kGroup * RoundedStrips::group_bytes(kBits) +
      output % RoundedStrips::kOutputs * kRowBytes;
  if constexpr (kBits == 8) {
    return widen(static_cast<std::int8_t>(row[RoundedStrips::int8_place(within)]));
  }
  const int place = RoundedStrips::int4_place(within);
  const int code = static_cast<int>(row[place / 2]) >> (place % 2 * 4) & 0xF;
  return static_cast<float>(code - 8);
}

// Of codes of 8 bits.
STEMMA_ON_DEVICE float scale_of(const std::byte* strips, std::int64_t k, std::int64_t output) {
  const std::byte* const strip =
      strips + output / RoundedStrips::kOutputs * RoundedStrips::strip_bytes(8, k);
  return reinterpret_cast<const float*>(strip)[output % RoundedStrips::kOutputs];
}

}  // namespace stemma
