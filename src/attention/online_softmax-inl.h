// Online softmax: weights of one partition, and partitions folded left to right. Scores and maxima
// are in base 2 (queries are scaled by log2 e).
//
// Included by the kernel files after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_ONLINE_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_ONLINE_SOFTMAX_INL_H_
#undef STEMMA_ATTENTION_ONLINE_SOFTMAX_INL_H_
#else
#define STEMMA_ATTENTION_ONLINE_SOFTMAX_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <limits>

#include "attention/attention_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// 2^x for x <= 0, each lane alone; relative error below 3e-7; 0 below 2^-126; NaN stays NaN.
// 2^x = 2^n · 2^f with n the nearest integer; 2^f on [−½, ½] is the minimax polynomial of degree 6
// through (0, 1) (relative error 2e-9 before rounding). Adding 1.5 × 2^23 rounds x to n and leaves
// n in the low bits, from where it is shifted into the exponent.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V exp2_negative(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> du;
  const V rounder = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::Add(x, rounder);
  const V f = hn::Sub(x, hn::Sub(shifted, rounder));
  V power = hn::Set(d, 1.5353361134442606e-4f);
  power = hn::MulAdd(power, f, hn::Set(d, 1.339887489097308e-3f));
  power = hn::MulAdd(power, f, hn::Set(d, 9.618437364728548e-3f));
  power = hn::MulAdd(power, f, hn::Set(d, 5.550332469614112e-2f));
  power = hn::MulAdd(power, f, hn::Set(d, 2.402264791351091e-1f));
  power = hn::MulAdd(power, f, hn::Set(d, 6.931472028560239e-1f));
  power = hn::MulAdd(power, f, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  const V scale = hn::BitCast(d, hn::Add(exponent, hn::Set(du, 0x3F800000u)));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Zero(d), hn::Mul(power, scale));
}

// score = cap × tanh(score / cap), of all scores of a partition, those beyond its keys too.
HWY_INLINE void cap_scores(float* HWY_RESTRICT scores, float cap) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto limit = hn::Set(d, cap);
  for (std::int64_t i = 0; i < kPartitionKeys; i += lanes) {
    const auto share = hn::Div(hn::LoadU(d, scores + i), limit);
    hn::StoreU(hn::Mul(limit, hn::Tanh(d, share)), d, scores + i);
  }
}

// What the keys of a partition are multiplied by; null: 1. A score by its scale before it is
// compared, a weight after it was added up.   [kPartitionKeys], aligned
struct ScoreScales {
  const float* k_or_null = nullptr;
  const float* v_or_null = nullptr;
};

// Turns the scores of the first `keys` of a partition into weights 2^(score − max), in place, and
// notes max and the weights' sum. Lane l sums keys l, l + lanes, …; then the lanes are summed in
// the target's fixed tree. Keys beyond add an exact 0.
// REQUIRES: 1 <= keys <= kPartitionKeys; `scores` has kPartitionKeys places.
template <bool kScalesK, bool kScalesV>
HWY_INLINE void softmax_partition(float* HWY_RESTRICT scores, std::int64_t keys,
                                  const ScoreScales& scales, float* max_and_sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto largest = lowest;
  const auto score_at = [&](std::int64_t i) HWY_ATTR {
    const auto score = hn::LoadU(d, scores + i);
    return kScalesK ? hn::Mul(score, hn::Load(d, scales.k_or_null + i)) : score;
  };
  const std::int64_t whole = round_down(keys, lanes);
  const std::int64_t end = round_up(keys, lanes);
  for (std::int64_t i = 0; i < whole; i += lanes) {
    const auto score = score_at(i);
    if (kScalesK) hn::StoreU(score, d, scores + i);
    largest = hn::Max(largest, score);
  }
  // Scores beyond the last key are made to weigh nothing, so that the rest needs no tail.
  if (whole != end) {
    const auto seen = hn::FirstN(d, static_cast<std::size_t>(keys - whole));
    const auto score = hn::IfThenElse(seen, score_at(whole), lowest);
    hn::StoreU(score, d, scores + whole);
    largest = hn::Max(largest, score);
  }
  largest = hn::MaxOfLanes(d, largest);
  auto total = hn::Zero(d);
  for (std::int64_t i = 0; i < end; i += lanes) {
    const auto weight = exp2_negative(d, hn::Sub(hn::LoadU(d, scores + i), largest));
    total = hn::Add(total, weight);
    const auto scaled = kScalesV ? hn::Mul(weight, hn::Load(d, scales.v_or_null + i)) : weight;
    hn::StoreU(scaled, d, scores + i);
  }
  max_and_sum[0] = hn::GetLane(largest);
  max_and_sum[1] = hn::GetLane(hn::SumOfLanes(d, total));
}

// An empty sum: merging a partition into it gives that partition's sums, bit for bit.
HWY_INLINE void clear_sums(float* sums, std::int64_t columns) {
  for (std::int64_t i = 0; i < columns; ++i) sums[i] = 0;
  sums[columns] = -std::numeric_limits<float>::infinity();
  sums[columns + 1] = 0;
}

// Weighted values times a power of two; maximum and sum of weights stay.
HWY_INLINE void multiply_sums(float* sums, std::int64_t columns, float factor) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factors = hn::Set(d, factor);
  for (std::int64_t i = 0; i < columns; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, sums + i), factors), d, sums + i);
  }
}

// into = into + from, both rescaled to the larger maximum, weighted values of `from` times
// `factor`, a power of two, too. The order of calls is the left fold. `columns` is padded_columns:
// maximum and sum of weights follow it.
HWY_INLINE void merge_sums(float* HWY_RESTRICT into, const float* HWY_RESTRICT from,
                           std::int64_t columns, float factor = 1) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto max_into = hn::Set(d, into[columns]);
  const auto max_from = hn::Set(d, from[columns]);
  const auto max = hn::Max(max_into, max_from);
  const auto scale_into = exp2_negative(d, hn::Sub(max_into, max));
  const auto scale_from = exp2_negative(d, hn::Sub(max_from, max));
  const auto values_from = hn::Mul(scale_from, hn::Set(d, factor));
  for (std::int64_t i = 0; i < columns; i += lanes) {
    const auto kept = hn::Mul(hn::LoadU(d, into + i), scale_into);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, from + i), values_from, kept), d, into + i);
  }
  const float kept = into[columns + 1] * hn::GetLane(scale_into);
  into[columns] = hn::GetLane(max);
  into[columns + 1] = kept + from[columns + 1] * hn::GetLane(scale_from);
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
