// Decode: one row's queries of one KV head against a partition, straight from the pool. The same
// sums in the same order as packing and multiplying (pack_kv-inl.h, multiply_panels-inl.h), but
// each element of K and V meets its few queries in a register and is never written back.
//
// Included by attention_cpu.cc after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_DECODE_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_DECODE_ROW_INL_H_
#undef STEMMA_ATTENTION_DECODE_ROW_INL_H_
#else
#define STEMMA_ATTENTION_DECODE_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "attention/attention_kernel.h"
#include "attention/pack_kv-inl.h"
#include "attention/row_prefetch.h"
#include "device/load_f32-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// The most queries that are computed this way; others are padded to 1, 2, 4 or 8.
constexpr std::int64_t kDecodeQueries = 8;

// Keys whose rows are read, all KV heads of a task, before the next ones: a stretch of memory that
// the nearest caches hold while the next stretch is asked for.
constexpr std::int64_t kDecodeKeys = 32;
static_assert(kDecodeKeys % (2 * kLanes) == 0 && kPartitionKeys % kDecodeKeys == 0);

// 16 accumulators at most, so that they, a step of K and a broadcast stay in registers.
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;
constexpr int groups_together(int queries) {
  return kManyRegisters && queries <= 4 ? 2 : 1;
}
constexpr int value_vectors(int queries) {
  return queries <= 2 ? 4 : (kManyRegisters ? 16 : 8) / queries;
}

// Up to kDecodeKeys keys of a partition.
struct DecodeKeys {
  RowSource source;
  std::int64_t keys = 0;
  bool first = true;         // of the partition: sums begin at 0 and not where they are
  std::int64_t queries = 0;  // at most as many as the kernel computes; only theirs are kept
};

// scores[query][key] = q[query] · k[key].   q [queries, head_dim], scores [queries, kPartitionKeys]
// Reads and writes padded queries too.
template <typename T, int kQueries>
HWY_NOINLINE void score_row(const DecodeKeys& part, const float* q, float* scores,
                            RowPrefetch& prefetch) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kGroups = groups_together(kQueries);
  constexpr FloatTag d;
  const std::int64_t head_dim = part.source.head_dim;
  for (std::int64_t key = 0; key < part.keys; key += kGroups * kLanes) {
    const T* rows[static_cast<std::size_t>(kGroups * kLanes)];
    Floats sums[std::size_t{kGroups}][std::size_t{kQueries}];
    STEMMA_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      find_rows(part.source, key + group * kLanes, part.keys, rows + group * kLanes);
      STEMMA_UNROLL
      for (int query = 0; query < kQueries; ++query) sums[group][query] = hn::Zero(d);
    }
    for (std::int64_t i = 0; i < head_dim; i += kDimsInStep<T>) {
      prefetch.step(kGroups * std::max<std::int64_t>(1, kLanes / 4));
      Floats dims[std::size_t{kGroups}][kDimsInStep<T>];
      STEMMA_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        load_dims(rows + group * kLanes, i, dims[group]);
      }
      STEMMA_UNROLL
      for (int dim = 0; dim < kDimsInStep<T>; ++dim) {
        STEMMA_UNROLL
        for (int query = 0; query < kQueries; ++query) {
          const Floats left = hn::Set(d, q[query * head_dim + i + dim]);
          STEMMA_UNROLL
          for (int group = 0; group < kGroups; ++group) {
            sums[group][query] = hn::MulAdd(left, dims[group][dim], sums[group][query]);
          }
        }
      }
    }
    STEMMA_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      STEMMA_UNROLL
      for (int query = 0; query < kQueries; ++query) {
        hn::StoreU(sums[group][query], d, scores + query * kPartitionKeys + key + group * kLanes);
      }
    }
  }
}

// sums[query][dim] += weights[query] · v[.][dim] for the kVectors vectors of dimensions from
// `column` on. Tag: a whole vector or half of one.
template <typename T, int kQueries, int kVectors, class Tag>
HWY_INLINE void sum_columns(const DecodeKeys& part, std::int64_t column, const float* weights,
                            float* to, RowPrefetch& prefetch) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr Tag d;
  constexpr auto kStep = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
  // Of four stretches of V, one is asked for while keys are weighed: three quarters remain.
  constexpr std::int64_t kLines =
      std::max<std::int64_t>(1, kVectors * kStep * static_cast<std::int64_t>(sizeof(T)) / 64);
  const std::int64_t stride = partial_floats(part.source.head_dim);
  to += column;
  hn::Vec<Tag> sums[std::size_t{kQueries}][std::size_t{kVectors}];
  STEMMA_UNROLL
  for (int query = 0; query < kQueries; ++query) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const bool begins = part.first || query >= part.queries;
      sums[query][v] = begins ? hn::Zero(d) : hn::LoadU(d, to + query * stride + v * kStep);
    }
  }
  for (std::int64_t key = 0; key < part.keys; ++key) {
    prefetch.step(key % 2 == 0 ? kLines : kLines / 2);
    const T* const from =
        reinterpret_cast<const T*>(part.source.head + part.source.offsets[key]) + column;
    hn::Vec<Tag> right[std::size_t{kVectors}];
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) right[v] = load_f32(d, from + v * kStep);
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
    if (query >= part.queries) break;
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[query][v], d, to + query * stride + v * kStep);
    }
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
void score_row(const DecodeKeys& part, const float* q, float* scores, RowPrefetch& prefetch) {
  if (part.queries > 4) return score_row<T, 8>(part, q, scores, prefetch);
  if (part.queries > 2) return score_row<T, 4>(part, q, scores, prefetch);
  if (part.queries > 1) return score_row<T, 2>(part, q, scores, prefetch);
  score_row<T, 1>(part, q, scores, prefetch);
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
