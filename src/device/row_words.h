// Row words: 16 bytes of a row at a time, widened to f32 and narrowed again, for kernels.
//
// Thread:     functions of kernels.
// Memory:     registers.
// Cost:       one access of 16 bytes for eight values of 16 bits, two for eight of f32.
// Not here:   kernels.
#pragma once

#include "device/cuda_dialect.h"

namespace stemma {

inline constexpr int kRowStep = 8;  // values that a thread takes at a time

// Eight values from `from`. REQUIRES: aligned to 16 bytes.
STEMMA_ON_DEVICE void load_values(const float* from, float (&values)[kRowStep]) {
  const Words low = load_words(from);
  const Words high = load_words(from + 4);
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) {
    values[i] = word_as_float(low.w[i]);
    values[4 + i] = word_as_float(high.w[i]);
  }
}

template <typename T>
STEMMA_ON_DEVICE void load_values(const T* from, float (&values)[kRowStep]) {
  const Words words = load_words(from);
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = widen(T{static_cast<std::uint16_t>(words.w[i])});
    values[2 * i + 1] = widen(T{static_cast<std::uint16_t>(words.w[i] >> 16)});
  }
}

STEMMA_ON_DEVICE void store_values(float* to, const float (&values)[kRowStep]) {
  Words low;
  Words high;
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) {
    low.w[i] = float_as_word(values[i]);
    high.w[i] = float_as_word(values[4 + i]);
  }
  store_words(to, low);
  store_words(to + 4, high);
}

template <typename T>
STEMMA_ON_DEVICE void store_values(T* to, const float (&values)[kRowStep]) {
  Words words;
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) words.w[i] = narrow_pair<T>(values[2 * i], values[2 * i + 1]);
  store_words(to, words);
}

}  // namespace stemma
