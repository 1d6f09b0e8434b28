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
#include "attention/tile_rows-inl.h"
#include "attention/value_columns-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// Queries of a head that decode sums at once.
constexpr std::int64_t kDecodeSumQueries = kManyRegisters ? 8 : 4;

// Vectors of dimensions that are summed at once: a power of two, so many that sums, a row of V and
// a weight fill the registers.
constexpr int value_vectors(int queries) {
  int vectors = 8;
  while (vectors > 1 && queries * vectors > 2 * kTileRows) vectors /= 2;
  return vectors;
}

// What is asked for while rows are read: nothing, if it has been; all of it into the second-level
// cache; or `again`, rows that are read soon, into the nearest one.
enum class ValueAsks { kNothing, kFar, kNear };

// V of some keys of a partition, one head.
struct ValueKeys {
  const std::byte* const* begins = nullptr;  // of the rows
  // While row i is read, first_time[i] is asked for, and again[i] once more (ValueAsks).
  const std::byte* const* first_time = nullptr;
  const std::byte* const* again = nullptr;
  std::int64_t keys = 0;
  bool first = true;                  // of the partition: sums begin at 0 and not where they are
  std::int64_t head_bytes = 0;        // from a row's begin
  std::int64_t first_time_bytes = 0;  // the same of the rows that are asked for
  std::int64_t again_bytes = 0;
  std::int64_t head_dim = 0;
  std::int64_t queries = 0;  // at most as many as the kernel computes; only theirs are kept
};

// sums[query][dim] += weights[query] · v[.][dim] for the kVectors vectors of dimensions from
// `column` on. Tag: a whole vector or half of one.
template <typename T, int kQueries, int kVectors, ValueAsks kAsks, class Tag>
HWY_INLINE void sum_columns(const ValueKeys& part, std::int64_t column, const float* weights,
                            float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Part = Columns<T, kVectors, Tag>;
  constexpr Tag d;
  constexpr auto kElementBytes = static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t kRowBytes = kVectors * Part::kStep * kElementBytes;
  const std::int64_t stride = partial_floats(part.head_dim);
  to += column;
  typename Part::Vectors sums[std::size_t{kQueries}];
  STEMMA_UNROLL
  for (int query = 0; query < kQueries; ++query) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[query][v] = hn::Zero(d);
    if (!part.first && query < part.queries) Part::load_sums(to + query * stride, sums[query]);
  }
  const std::int64_t from = part.head_bytes + column * kElementBytes;
  const bool asks = kAsks != ValueAsks::kNothing &&
                    (kRowBytes >= kLineBytes || column * kElementBytes % kLineBytes == 0);
  for (std::int64_t key = 0; key < part.keys; ++key) {
    STEMMA_UNROLL
    for (std::int64_t i = 0; asks && i < kRowBytes; i += kLineBytes) {
      const std::int64_t line = column * kElementBytes + i;
      constexpr int kNearness = kAsks == ValueAsks::kNear ? 3 : 2;
      __builtin_prefetch(part.first_time[key] + part.first_time_bytes + line, 0, 2);
      __builtin_prefetch(part.again[key] + part.again_bytes + line, 0, kNearness);
    }
    typename Part::Vectors right;
    Part::load_row(reinterpret_cast<const T*>(part.begins[key] + from), right);
    STEMMA_UNROLL
    for (int query = 0; query < kQueries; ++query) {
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
template <typename T, int kQueries, ValueAsks kAsks>
HWY_NOINLINE void sum_row(const ValueKeys& part, const float* weights, float* sums) {
  constexpr int kVectors = value_vectors(kQueries);
  const std::int64_t head_dim = part.head_dim;
  std::int64_t column = 0;
  for (; column + kVectors * kLanes <= head_dim; column += kVectors * kLanes) {
    sum_columns<T, kQueries, kVectors, kAsks, FloatTag>(part, column, weights, sums);
  }
  for (; column + kLanes <= head_dim; column += kLanes) {
    sum_columns<T, kQueries, 1, kAsks, FloatTag>(part, column, weights, sums);
  }
  if constexpr (kLanes > 8) {  // half a vector: head_dim is a multiple of 8
    if (column < head_dim) {
      using HalfTag = hwy::HWY_NAMESPACE::Half<FloatTag>;
      sum_columns<T, kQueries, 1, kAsks, HalfTag>(part, column, weights, sums);
    }
  }
}

// Of at most as many queries as a tile has rows.
template <typename T, ValueAsks kAsks>
void sum_row(const ValueKeys& part, const float* weights, float* sums) {
  if (part.queries > 8) return sum_row<T, kTileRows, kAsks>(part, weights, sums);
  if (part.queries > 4) return sum_row<T, std::min(kTileRows, 8), kAsks>(part, weights, sums);
  if (part.queries > 2) return sum_row<T, 4, kAsks>(part, weights, sums);
  if (part.queries > 1) return sum_row<T, 2, kAsks>(part, weights, sums);
  sum_row<T, 1, kAsks>(part, weights, sums);
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
