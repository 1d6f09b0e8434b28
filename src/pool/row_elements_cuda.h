// Elements of rows as store kernels move them: several neighbours in accesses of 16 bytes, or one.
//
// Thread:     a lane.
// Memory:     registers.
// Cost:       that of the accesses.
// Not here:   rounding and codes (device/cuda_dialect), which lane has what (store_cuda).
#pragma once

#include <cstdint>

#include "device/cuda_dialect.h"
#include "device/row_words.h"

namespace stemma {

STEMMA_ON_DEVICE std::uint32_t element_bits(float value) {
  return float_as_word(value);
}
STEMMA_ON_DEVICE std::uint32_t element_bits(std::int8_t value) {
  return static_cast<std::uint8_t>(value);
}
template <typename Element>
STEMMA_ON_DEVICE std::uint32_t element_bits(Element value) {
  return value.bits;
}

// How many elements a lane moves at a time.
template <int kCount>
struct RowUnit {
  static constexpr int kElements = kCount;
  static constexpr int kAtOnce = kCount == 1 ? 4 : 2;  // on their way
};

// REQUIRES: of more elements than one `from` is aligned to 16 bytes, and they fill such accesses.
template <typename Unit, typename Source>
STEMMA_ON_DEVICE void load_elements(const Source* from, float* to) {
  if constexpr (Unit::kElements == 1) {
    to[0] = widen(*from);
  } else {
    static_assert(Unit::kElements % kRowStep == 0);
    for (int first = 0; first < Unit::kElements; first += kRowStep) {
      float values[kRowStep];
      load_values(from + first, values);
      for (int i = 0; i < kRowStep; ++i) to[first + i] = values[i];
    }
  }
}

// REQUIRES: as load_elements, of `to`.
template <typename Unit, typename Target>
STEMMA_ON_DEVICE void store_elements(Target* to, const Target* from) {
  if constexpr (Unit::kElements == 1) {
    *to = from[0];
  } else {
    constexpr int kAnAccess = static_cast<int>(sizeof(Words) / sizeof(Target));
    constexpr int kAWord = kAnAccess / 4;
    constexpr int kElementBits = 32 / kAWord;
    static_assert(Unit::kElements % kAnAccess == 0);
    for (int first = 0; first < Unit::kElements; first += kAnAccess) {
      Words words;
      for (int word = 0; word < 4; ++word) {
        std::uint32_t bits = 0;
        for (int i = 0; i < kAWord; ++i) {
          bits |= element_bits(from[first + word * kAWord + i]) << (i * kElementBits);
        }
        words.w[word] = bits;
      }
      store_words(to + first, words);
    }
  }
}

// As codes. REQUIRES: as load_elements, of `to`.
template <typename Unit, typename Code>
STEMMA_ON_DEVICE void store_codes(Code* to, const float* from) {
  if constexpr (Unit::kElements == 1) {
    *to = narrow<Code>(from[0]);
  } else {
    static_assert(Unit::kElements == sizeof(Words));
    Words words;
    for (int word = 0; word < 4; ++word) {
      const float* const own = from + 4 * word;
      words.w[word] = narrow_codes<Code>({own[0], own[1], own[2], own[3]});
    }
    store_words(to, words);
  }
}

}  // namespace stemma
