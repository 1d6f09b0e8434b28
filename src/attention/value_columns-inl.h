// Columns: a few vectors of a row of V in registers, and the sums that belong to them.
//
// Included by attention_cpu.cc after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_VALUE_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_VALUE_COLUMNS_INL_H_
#undef STEMMA_ATTENTION_VALUE_COLUMNS_INL_H_
#else
#define STEMMA_ATTENTION_VALUE_COLUMNS_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "attention/pack_kv-inl.h"
#include "attention/row_vectors-inl.h"
#include "device/load_f32-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// kVectors vectors of consecutive dimensions. Those of a row of bf16 are taken in pairs, the even
// dimensions and the odd ones: one load and no shuffle for two vectors.
template <typename T, int kVectors, class Tag>
struct Columns {
  using Vec = hwy::HWY_NAMESPACE::Vec<Tag>;
  using Vectors = Vec[std::size_t{kVectors}];
  static constexpr auto kStep = static_cast<std::int64_t>(hwy::HWY_NAMESPACE::MaxLanes(Tag()));
  static constexpr bool kPairs =
      std::is_same_v<T, BFloat16> && std::is_same_v<Tag, FloatTag> && kVectors % 2 == 0;

  static HWY_INLINE void load_row(const T* from, Vectors& out) {
    if constexpr (kPairs) {
      STEMMA_UNROLL
      for (int v = 0; v < kVectors; v += 2) {
        const auto* const words = reinterpret_cast<const std::uint32_t*>(from + v * kStep);
        Floats pair[2];
        Words pairs = hwy::HWY_NAMESPACE::LoadU(WordTag(), words);
        load_once(pairs);
        widen_words(pairs, from, pair);
        out[v] = pair[0];
        out[v + 1] = pair[1];
      }
    } else {
      STEMMA_UNROLL
      for (int v = 0; v < kVectors; ++v) out[v] = load_f32(Tag(), from + v * kStep);
    }
  }

  static HWY_INLINE void load_sums(const float* from, Vectors& out) {
    namespace hn = hwy::HWY_NAMESPACE;
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; v += kPairs ? 2 : 1) {
      if constexpr (kPairs) {
        hn::LoadInterleaved2(Tag(), from + v * kStep, out[v], out[v + 1]);
      } else {
        out[v] = hn::LoadU(Tag(), from + v * kStep);
      }
    }
  }

  static HWY_INLINE void store_sums(const Vectors& sums, float* to) {
    namespace hn = hwy::HWY_NAMESPACE;
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; v += kPairs ? 2 : 1) {
      if constexpr (kPairs) {
        hn::StoreInterleaved2(sums[v], sums[v + 1], Tag(), to + v * kStep);
      } else {
        hn::StoreU(sums[v], Tag(), to + v * kStep);
      }
    }
  }
};

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
