// Transposing: words of kLanes rows, a lane a row.
//
// Included by the kernel files after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_TRANSPOSE_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_TRANSPOSE_WORDS_INL_H_
#undef STEMMA_ATTENTION_TRANSPOSE_WORDS_INL_H_
#else
#define STEMMA_ATTENTION_TRANSPOSE_WORDS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "attention/attention_kernel.h"
#include "attention/widen_words-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// What stands for a key that does not exist: its scores are never used.
alignas(64) constexpr float kZeroRow[256] = {};

// Dimensions in 16 bytes of a row.
template <typename T>
constexpr int kDimsInStep = static_cast<int>(16 / sizeof(T));

#if HWY_TARGET == HWY_SCALAR

// The row's words from dimension `dim` on.
template <typename T>
HWY_INLINE void load_words(const T* const* rows, std::int64_t dim, Words (&out)[4]) {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(rows[0] + dim);
  for (int word = 0; word < 4; ++word) {
    out[word] = hwy::HWY_NAMESPACE::LoadU(WordTag(), words + word);
  }
}

#else

// 4 × 4 words in each 16 bytes of the vectors, transposed.
HWY_INLINE void transpose_words(Words (&words)[4]) {
  namespace hn = hwy::HWY_NAMESPACE;
  const WordTag d;
  const hn::RepartitionToWide<WordTag> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, words[0], words[1]));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, words[2], words[3]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, words[0], words[1]));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, words[2], words[3]));
  words[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  words[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  words[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  words[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}

// 16 bytes each of rows i, i + 4, i + 8, …, as many as a vector holds.
template <typename T>
HWY_INLINE Words load_every_fourth(const T* const* rows, std::int64_t dim) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Full128<std::uint32_t> d128;
  const auto quarter = [&](std::int64_t row) HWY_ATTR {
    return hn::LoadU(d128, reinterpret_cast<const std::uint32_t*>(rows[row] + dim));
  };
#if HWY_TARGET == HWY_AVX3
  const hn::Full256<std::uint32_t> d256;
  return hn::Combine(WordTag(), hn::Combine(d256, quarter(12), quarter(8)),
                     hn::Combine(d256, quarter(4), quarter(0)));
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(WordTag(), quarter(4), quarter(0));
#else
  return quarter(0);
#endif
}

// Word w of every row, from dimension `dim` on, in out[w]; a lane is a row.
template <typename T>
HWY_INLINE void load_words(const T* const* rows, std::int64_t dim, Words (&out)[4]) {
  STEMMA_UNROLL
  for (int i = 0; i < 4; ++i) out[i] = load_every_fourth(rows + i, dim);
  transpose_words(out);
}

#endif  // HWY_SCALAR

// Dimensions from `i` on of kLanes rows, one vector each.
template <typename T>
HWY_INLINE void load_dims(const T* const* rows, std::int64_t i, Floats (&out)[kDimsInStep<T>]) {
  constexpr int kElements = kWordElements<T>;
  Words words[4];
  load_words(rows, i, words);
  STEMMA_UNROLL
  for (int word = 0; word < 4; ++word) {
    Floats wide[std::size_t{kElements}];
    widen_words(words[word], rows[0], wide);
    STEMMA_UNROLL
    for (int element = 0; element < kElements; ++element) {
      out[word * kElements + element] = wide[element];
    }
  }
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
