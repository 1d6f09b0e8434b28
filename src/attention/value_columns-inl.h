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

#include "attention/row_vectors-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// kVectors vectors of consecutive dimensions. Elements that share a word are taken apart together
// where there are vectors enough, bf16 in pairs (the even dimensions and the odd ones), codes in
// fours: one load and no shuffle for all of them.
template <typename T, int kVectors, class Tag>
struct Columns {
  using Vec = hwy::HWY_NAMESPACE::Vec<Tag>;
  using Vectors = Vec[std::size_t{kVectors}];
  static constexpr auto kStep = static_cast<std::int64_t>(hwy::HWY_NAMESPACE::MaxLanes(Tag()));
  static constexpr bool kApart = !std::is_same_v<T, Float16> && std::is_same_v<Tag, FloatTag> &&
                                 kVectors % kWordElements<T> == 0;
  static constexpr int kTogether = kApart ? kWordElements<T> : 1;

  static HWY_INLINE void load_row(const T* from, Vectors& out) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; v += kTogether) {
      if constexpr (kTogether > 1) {
        const auto* const words = reinterpret_cast<const std::uint32_t*>(from + v * kStep);
        Words apart = hwy::HWY_NAMESPACE::LoadU(WordTag(), words);
        load_once(apart);
        Floats parts[std::size_t{kTogether}];
        widen_words(apart, from, parts);
        STEMMA_UNROLL
        for (int part = 0; part < kTogether; ++part) out[v + part] = parts[part];
      } else {
        out[v] = load_f32(Tag(), from + v * kStep);
      }
    }
  }

  static HWY_INLINE void load_sums(const float* from, Vectors& out) {
    namespace hn = hwy::HWY_NAMESPACE;
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; v += kTogether) {
      if constexpr (kTogether == 4) {
        hn::LoadInterleaved4(Tag(), from + v * kStep, out[v], out[v + 1], out[v + 2], out[v + 3]);
      } else if constexpr (kTogether == 2) {
        hn::LoadInterleaved2(Tag(), from + v * kStep, out[v], out[v + 1]);
      } else {
        out[v] = hn::LoadU(Tag(), from + v * kStep);
      }
    }
  }

  static HWY_INLINE void store_sums(const Vectors& sums, float* to) {
    namespace hn = hwy::HWY_NAMESPACE;
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; v += kTogether) {
      if constexpr (kTogether == 4) {
        hn::StoreInterleaved4(sums[v], sums[v + 1], sums[v + 2], sums[v + 3], Tag(),
                              to + v * kStep);
      } else if constexpr (kTogether == 2) {
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
