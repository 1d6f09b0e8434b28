// Online softmax with a query in each lane: weights of one partition, and the factors with which
// its sums are folded into what the earlier ones of its section gave. Each query by itself (I13).
//
// Included by latent_attention_cpu.cc after Highway, once for each SIMD target; by nothing else.
#if defined(STEMMA_ATTENTION_LATENT_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_LATENT_SOFTMAX_INL_H_
#undef STEMMA_ATTENTION_LATENT_SOFTMAX_INL_H_
#else
#define STEMMA_ATTENTION_LATENT_SOFTMAX_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "attention/attention_kernel.h"
#include "attention/key_scales-inl.h"
#include "attention/online_softmax-inl.h"
#include "attention/widen_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// What is known of each query of a task, an array each.   [queries, padded]
struct QueryState {
  QueryState(float* memory, std::int64_t queries_padded)
      : largest(memory),
        totals(largest + queries_padded),
        kept(totals + queries_padded),
        added(kept + queries_padded),
        keys_seen(added + queries_padded) {}

  // Before the first partition of a section.
  void clear(std::int64_t queries_padded) const {
    std::fill_n(largest, queries_padded, -std::numeric_limits<float>::infinity());
    std::fill_n(totals, queries_padded, 0.0f);
  }

  float* largest;    // score so far
  float* totals;     // of the weights so far
  float* kept;       // by what earlier sums are multiplied
  float* added;      // by what the partition's sums are multiplied
  float* keys_seen;  // of the partition, where not all queries see all
};

// Scales of a partition's rows, as K and as V, and by what sums of codes are multiplied
// (CodeFactors).
struct RowScales {
  SideScales sides;
  float sum_factor = 1;
};

// One vector of queries, from `first` on: scores of `keys` keys become weights 2^(score − max), 0
// for a key that a query does not see. kSome: not all see all. kScaled: each score is multiplied by
// its key's scale first, and each weight, once summed, last.
template <bool kSome, bool kScaled>
HWY_INLINE void weigh_queries(float* HWY_RESTRICT scores, std::int64_t scores_stride,
                              std::int64_t keys, const RowScales& scales, const QueryState& state,
                              std::int64_t first) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr FloatTag d;
  const Floats lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const Floats seen = kSome ? hn::LoadU(d, state.keys_seen + first) : lowest;
  const auto is_seen = [&](std::int64_t key)
                           HWY_ATTR { return hn::Lt(hn::Set(d, static_cast<float>(key)), seen); };
  scores += first;
  Floats largest = lowest;
  for (std::int64_t key = 0; key < keys; ++key) {
    float* const place = scores + key * scores_stride;
    Floats score = hn::LoadU(d, place);
    if constexpr (kScaled) {
      score = hn::Mul(score, hn::Set(d, scales.sides.k.of(key)));
      hn::StoreU(score, d, place);
    }
    largest = hn::Max(largest, kSome ? hn::IfThenElse(is_seen(key), score, lowest) : score);
  }
  Floats total = hn::Zero(d);
  for (std::int64_t key = 0; key < keys; ++key) {
    float* const place = scores + key * scores_stride;
    Floats weight = exp2_negative(d, hn::Sub(hn::LoadU(d, place), largest));
    if (kSome) weight = hn::IfThenElseZero(is_seen(key), weight);
    total = hn::Add(total, weight);
    if constexpr (kScaled) weight = hn::Mul(weight, hn::Set(d, scales.sides.v.of(key)));
    hn::StoreU(weight, d, place);
  }
  const Floats largest_before = hn::LoadU(d, state.largest + first);
  const Floats max = hn::Max(largest_before, largest);
  const Floats kept = exp2_negative(d, hn::Sub(largest_before, max));
  const Floats added = exp2_negative(d, hn::Sub(largest, max));
  const Floats total_kept = hn::Mul(hn::LoadU(d, state.totals + first), kept);
  hn::StoreU(hn::Add(total_kept, hn::Mul(total, added)), d, state.totals + first);
  hn::StoreU(max, d, state.largest + first);
  hn::StoreU(kept, d, state.kept + first);
  hn::StoreU(hn::Mul(added, hn::Set(d, scales.sum_factor)), d, state.added + first);
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
