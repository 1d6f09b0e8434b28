// Codes of rounded weights become numbers that tensor cores multiply.
//
// A code is a whole number of at most 8 bits, which is exact in bf16 and in f16: a word of it is
// put behind the leading digits of a power of two, which is taken off again.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels.
// Memory:     registers.
// Cost:       of 4 bits 11 instructions for 8 codes, of 8 bits 7 for 4; a shift two for a group.
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
  static constexpr std::uint32_t kOnes = 0x43004300u;  // 128, whose last bit counts ones
};
template <>
struct CodeConstants<Float16> {
  static constexpr std::uint32_t kOnes = 0x64006400u;  // 1024
};

// kOnes in a register, of whose value the compiler does not know: with two constants in it an
// instruction that puts codes behind ones would become two. `inputs`: as many as no matrix has
// 2^62.
template <typename T>
STEMMA_ON_DEVICE std::uint32_t ones_of(std::int64_t inputs) {
  return CodeConstants<T>::kOnes + static_cast<std::uint32_t>(inputs >> 62);
}

// What is taken off codes of 4 bits behind ones: these, and as what zero is stored, which is 8 or,
// where groups have shifts, a number of the group and output.
template <typename T, CodeForm kForm>
STEMMA_ON_DEVICE std::uint32_t int4_zeros(const std::byte* group, int output) {
  if constexpr (kForm == CodeForm::kInt4Shifted) {
    const auto zero = static_cast<std::uint32_t>(group[RoundedStrips::zeros_at() + output]);
    return CodeConstants<T>::kOnes + zero * 0x00010001u;
  }
  return CodeConstants<T>::kOnes + 0x00080008u;
}

// Two codes of 4 bits, at bits 0 and 16.
template <typename T>
STEMMA_ON_DEVICE std::uint32_t widen_int4(std::uint32_t codes, std::uint32_t ones,
                                          std::uint32_t zeros) {
  return subtract_pairs<T>((codes & 0x000F000Fu) | ones, zeros);
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
template <CodeForm kForm>
inline constexpr std::size_t kCodeWords = std::size_t{bits_of(kForm)} / 2;

// What a thread has of a group's codes of one output, and of them what step `step` multiplies: two
// of the first eight inputs, two of the others. `zeros`: see int4_zeros.
template <typename T, CodeForm kForm>
STEMMA_ON_DEVICE void widen_step(const std::uint32_t (&codes)[kCodeWords<kForm>], int step,
                                 std::uint32_t ones, std::uint32_t zeros, std::uint32_t& first,
                                 std::uint32_t& second) {
  if constexpr (kForm == CodeForm::kInt8) {
    first = widen_int8<T>(codes[step], ones);
    second = widen_int8<T>(codes[step] >> 8, ones);
  } else {
    const std::uint32_t own = codes[step / 2] >> (8 * (step % 2));
    first = widen_int4<T>(own, ones, zeros);
    second = widen_int4<T>(own >> 4, ones, zeros);
  }
}

// From `from` on.
template <CodeForm kForm>
STEMMA_ON_DEVICE void load_codes(const std::byte* from, std::uint32_t (&codes)[kCodeWords<kForm>]) {
  if constexpr (kForm == CodeForm::kInt8) {
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
  const std::byte* const scales = group + RoundedStrips::code_bytes(CodeForm::kInt4);
  return widen(reinterpret_cast<const BFloat16*>(scales)[output]);
}
// What one value's sum becomes with the next group's.
template <CodeForm kForm>
STEMMA_ON_DEVICE float with_group(float sum, float group, float scale) {
  return kForm == CodeForm::kInt8 ? sum + group : fused(group, scale, sum);
}

// Codes one by one: that of input `input` of a matrix whose strips begin at `strips`, as f32, and
// its scale.
template <CodeForm kForm>
STEMMA_ON_DEVICE float code_at(const std::byte* strips, std::int64_t k, std::int64_t output,
                               std::int64_t input) {
  constexpr int kRowBytes = RoundedStrips::kGroup * bits_of(kForm) / 8;
  const int within = static_cast<int>(input % RoundedStrips::kGroup);
  const std::byte* const group =
      strips + output / RoundedStrips::kOutputs * RoundedStrips::strip_bytes(kForm, k) +
      RoundedStrips::begin_bytes(kForm) +
      input / RoundedStrips::kGroup * RoundedStrips::group_bytes(kForm);
  const int own_output = static_cast<int>(output % RoundedStrips::kOutputs);
  const std::byte* const row = group + own_output * kRowBytes;
  if constexpr (kForm == CodeForm::kInt8) {
    return widen(static_cast<std::int8_t>(row[RoundedStrips::int8_place(within)]));
  }
  const int place = RoundedStrips::int4_place(within);
  const int code = static_cast<int>(row[place / 2]) >> (place % 2 * 4) & 0xF;
  const int zero = kForm == CodeForm::kInt4Shifted
                       ? static_cast<int>(group[RoundedStrips::zeros_at() + own_output])
                       : 8;
  return static_cast<float>(code - zero);
}

// Of codes of 8 bits.
STEMMA_ON_DEVICE float scale_of(const std::byte* strips, std::int64_t k, std::int64_t output) {
  const std::byte* const strip =
      strips + output / RoundedStrips::kOutputs * RoundedStrips::strip_bytes(CodeForm::kInt8, k);
  return reinterpret_cast<const float*>(strip)[output % RoundedStrips::kOutputs];
}

}  // namespace stemma
