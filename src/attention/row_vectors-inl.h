// RowVectors: a row of K in registers, as scores read it. The dimensions of a row are spread over
// vectors; a score is, for each lane by itself, one chain of multiply-adds over the row's vectors
// in order, and then the sum of the lanes in one fixed tree (sum_lanes.h says which). Whatever
// computes a score does it in this order (I13).
//
// Elements that share a word of 32 bits are taken apart together, bf16 in pairs (the even
// dimensions and then the odd ones), codes in fours: one load and no shuffle for all their vectors.
// f32 and f16 are taken as they lie. "Packed" order is that of the vectors, padded with zeros to
// whole steps.
//
// Included by attention_cpu.cc after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_ROW_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_ROW_VECTORS_INL_H_
#undef STEMMA_ATTENTION_ROW_VECTORS_INL_H_
#else
#define STEMMA_ATTENTION_ROW_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

#include "attention/attention_kernel.h"
#include "attention/widen_words-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// `words` is loaded once. Compilers else fold the load into each instruction that uses it, and
// loads are what there are too few places for.
HWY_INLINE void load_once([[maybe_unused]] Words& words) {
#if defined(__GNUC__) && HWY_TARGET == HWY_AVX3
  asm("" : "+v"(words.raw));
#elif defined(__GNUC__) && HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  asm("" : "+x"(words.raw));
#endif
}

template <typename T>
struct RowVectors {
  // Vectors that are loaded together, and the dimensions they hold: as many as elements share a
  // word, but for f16, which are best converted side by side.
  static constexpr int kVectors = std::is_same_v<T, Float16> ? 1 : kWordElements<T>;
  static constexpr std::int64_t kDims = kVectors * kLanes;
  static_assert(kPackedDims % kDims == 0);

  // head_dim, padded to whole steps.
  static constexpr std::int64_t packed(std::int64_t head_dim) { return round_up(head_dim, kDims); }

  static HWY_INLINE void load(const T* from, Floats (&out)[std::size_t{kVectors}]) {
    if constexpr (!std::is_same_v<T, Float16>) {
      Words words =
          hwy::HWY_NAMESPACE::LoadU(WordTag(), reinterpret_cast<const std::uint32_t*>(from));
      load_once(words);
      widen_words(words, from, out);
    } else {
      out[0] = load_f32(FloatTag(), from);
    }
  }

  // The first `dims` of them; what lies behind the row is not read, and 0 stands for it.
  static HWY_INLINE void load_some(const T* from, std::int64_t dims,
                                   Floats (&out)[std::size_t{kVectors}]) {
    T row[static_cast<std::size_t>(kDims)] = {};
    std::memcpy(row, from, static_cast<std::size_t>(dims) * sizeof(T));
    load(row, out);
  }

  // Where a dimension of a row stands in packed order.
  static constexpr std::int64_t place_of(std::int64_t dim) {
    const std::int64_t within = dim % kDims;
    return dim - within + within % kVectors * kLanes + within / kVectors;
  }
};

// The lanes of kLanes sums, added up: a vector of totals. Sums come as [queries][4 keys] (or as one
// sum, where a vector has one lane), and so do the totals. The tree: lanes half a vector apart are
// added, then those a quarter apart, down to neighbours.
constexpr int kTileKeys = kLanes >= 4 ? 4 : 1;
constexpr int kTileScoreQueries = static_cast<int>(kLanes / kTileKeys);
using TileSums = Floats[std::size_t{kTileScoreQueries}][std::size_t{kTileKeys}];

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE Floats sum_lanes(const TileSums& sums) {
  return sums[0][0];
}

#else

// In each 16 bytes one query's sums of one key, still 4 lanes.
HWY_INLINE Floats sum_to_quads(const TileSums& sums, int key) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET == HWY_AVX3
  constexpr FloatTag d;
  Floats halves[2];
  STEMMA_UNROLL
  for (int pair = 0; pair < 2; ++pair) {
    const Floats a = sums[2 * pair][key];
    const Floats b = sums[2 * pair + 1][key];
    halves[pair] = hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  }
  return hn::Add(Floats{_mm512_shuffle_f32x4(halves[0].raw, halves[1].raw, 0x88)},
                 Floats{_mm512_shuffle_f32x4(halves[0].raw, halves[1].raw, 0xDD)});
#elif HWY_TARGET == HWY_AVX2
  constexpr FloatTag d;
  const Floats a = sums[0][key];
  const Floats b = sums[1][key];
  return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
#else
  return sums[0][key];
#endif
}

HWY_INLINE Floats sum_lanes(const TileSums& sums) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr FloatTag d;
  const hn::RepartitionToWide<FloatTag> d64;
  const auto sum_pairs = [&](Floats a, Floats b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto even = hn::BitCast(d64, sum_pairs(sum_to_quads(sums, 0), sum_to_quads(sums, 1)));
  const auto odd = hn::BitCast(d64, sum_pairs(sum_to_quads(sums, 2), sum_to_quads(sums, 3)));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, even, odd)),
                 hn::BitCast(d, hn::InterleaveUpper(d64, even, odd)));
}

#endif  // HWY_SCALAR

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
