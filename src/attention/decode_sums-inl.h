// Decode, the second half: sums of V under one row's weights, straight from the pool; as
// decode_scores-inl.h does it with K.
//
// Included by attention_cpu.cc after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_DECODE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_DECODE_SUMS_INL_H_
#undef STEMMA_ATTENTION_DECODE_SUMS_INL_H_
#else
#define STEMMA_ATTENTION_DECODE_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "attention/attention_kernel.h"
#include "attention/decode_scores-inl.h"
#include "attention/row_prefetch.h"
#include "attention/value_columns-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// Vectors of dimensions that are summed at once.
constexpr int value_vectors(int queries) {
  return queries <= 2 ? 4 : (kManyRegisters ? 16 : 8) / queries;
}

// V of up to kDecodeKeys keys of a partition, one head.
struct DecodeKeys {
  RowSource source;
  std::int64_t keys = 0;
  bool first = true;         // of the partition: sums begin at 0 and not where they are
  std::int64_t queries = 0;  // at most as many as the kernel computes; only theirs are kept
};

// sums[query][dim] += weights[query] · v[.][dim] for the kVectors vectors of dimensions from
// `column` on. Tag: a whole vector or half of one.
template <typename T, int kQueries, int kVectors, class Tag>
HWY_INLINE void sum_columns(const DecodeKeys& part, std::int64_t column, const float* weights,
                            float* to, RowPrefetch& prefetch) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Part = Columns<T, kVectors, Tag>;
  constexpr Tag d;
  // Of four stretches of V, one is asked for while keys are weighed: three quarters remain.
  constexpr std::int64_t kLines =
      std::max<std::int64_t>(1, kVectors * Part::kStep * static_cast<std::int64_t>(sizeof(T)) / 64);
  const std::int64_t stride = partial_floats(part.source.head_dim);
  to += column;
  typename Part::Vectors sums[std::size_t{kQueries}];
  STEMMA_UNROLL
  for (int query = 0; query < kQueries; ++query) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[query][v] = hn::Zero(d);
    if (!part.first && query < part.queries) Part::load_sums(to + query * stride, sums[query]);
  }
  PrefetchCursor cursor(prefetch);
  for (std::int64_t key = 0; key < part.keys; ++key) {
    typename Part::Vectors right;
    Part::load_row(reinterpret_cast<const T*>(part.source.head + part.source.offsets[key]) + column,
                   right);
    STEMMA_UNROLL
    for (int query = 0; query < kQueries; ++query) {
      cursor.step_share(kLines / 2, query, kQueries);
      if (key % 2 == 0) {
        cursor.step_share(kLines - kLines / 2, (query + kQueries / 2) % kQueries, kQueries);
      }
      const auto left = hn::Set(d, weights[query * kPartitionKeys + key]);
      STEMMA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[query][v] = hn::MulAdd(left, right[v], sums[query][v]);
      }
    }
  }
  STEMMA_UNROLL
  for (int query = 0; query < kQueries; ++query) {
    if (query < part.queries) Part::store_sums(sums[query], to + query * stride);
  }
}

// weights [queries, kPartitionKeys], sums [queries, partial_floats].
template <typename T, int kQueries>
HWY_NOINLINE void sum_row(const DecodeKeys& part, const float* weights, float* sums,
                          RowPrefetch& prefetch) {
  constexpr int kVectors = value_vectors(kQueries);
  const std::int64_t head_dim = part.source.head_dim;
  std::int64_t column = 0;
  for (; column + kVectors * kLanes <= head_dim; column += kVectors * kLanes) {
    sum_columns<T, kQueries, kVectors, FloatTag>(part, column, weights, sums, prefetch);
  }
  for (; column + kLanes <= head_dim; column += kLanes) {
    sum_columns<T, kQueries, 1, FloatTag>(part, column, weights, sums, prefetch);
  }
  if constexpr (kLanes > 8) {  // half a vector: head_dim is a multiple of 8
    if (column < head_dim) {
      using HalfTag = hwy::HWY_NAMESPACE::Half<FloatTag>;
      sum_columns<T, kQueries, 1, HalfTag>(part, column, weights, sums, prefetch);
    }
  }
}

template <typename T>
void sum_row(const DecodeKeys& part, const float* weights, float* sums, RowPrefetch& prefetch) {
  if (part.queries > 4) return sum_row<T, 8>(part, weights, sums, prefetch);
  if (part.queries > 2) return sum_row<T, 4>(part, weights, sums, prefetch);
  if (part.queries > 1) return sum_row<T, 2>(part, weights, sums, prefetch);
  sum_row<T, 1>(part, weights, sums, prefetch);
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
