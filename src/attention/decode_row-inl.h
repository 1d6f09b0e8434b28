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
#include "attention/value_columns-inl.h"
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

// The rows of K of up to kDecodeKeys keys, found once for all heads. A key that does not exist has
// the row of the last one that does: its scores are never used.
struct KeyRows {
  KeyRows(const std::byte* first_head, const std::int64_t* offsets, std::int64_t keys_there)
      : keys(std::min(kDecodeKeys, keys_there)) {
    for (std::int64_t key = 0; key < kDecodeKeys; ++key) {
      begins[key] = first_head + offsets[std::min(key, keys - 1)];
    }
  }

  std::int64_t keys = 0;
  const std::byte* begins[std::size_t{kDecodeKeys}];  // where the task's first head begins
};

// One head of them.
struct HeadKeys {
  const KeyRows& rows;
  std::int64_t head_bytes = 0;  // from a row's begin
  std::int64_t head_dim = 0;
  std::int64_t queries = 0;  // at most as many as the kernel computes
};

// V of up to kDecodeKeys keys of a partition, one head.
struct DecodeKeys {
  RowSource source;
  std::int64_t keys = 0;
  bool first = true;         // of the partition: sums begin at 0 and not where they are
  std::int64_t queries = 0;  // at most as many as the kernel computes; only theirs are kept
};

// The optimiser may not carry `rows` in registers from before this point to after it. There are
// more of them than general registers; without this, GCC parks them in vector registers, and each
// use then costs a move through the port that the multiplications need.
HWY_INLINE void leave_in_memory(const std::byte* const* rows) {
  asm volatile("" : : "r"(rows) : "memory");
}

// The lines of `rows` that follow the one that holds dimension `dim`, from the second-level cache
// into the first. The processor cannot see that so many rows are each read in order.
template <typename T>
HWY_INLINE void bring_near(const T* const* rows, int count, std::int64_t dim) {
  for (int row = 0; row < count; ++row) {
    __builtin_prefetch(reinterpret_cast<const std::byte*>(rows[row] + dim) + kLineBytes, 0, 3);
  }
}

// sums += q · k for kWords words of each of kGroups × kLanes rows, from dimension `dim` of the head
// on, which begins at dimension `first_dim` of the row.
template <typename T, int kWords, int kGroups, int kQueries>
HWY_INLINE void score_words(const T* const* rows, std::int64_t first_dim, const float* q,
                            std::int64_t head_dim, std::int64_t dim,
                            Floats (&sums)[std::size_t{kGroups}][std::size_t{kQueries}],
                            PrefetchCursor& cursor) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kElements = static_cast<int>(4 / sizeof(T));
  constexpr int kRows = static_cast<int>(kGroups * kLanes);
  constexpr int kNearRows = kRows / kWords;  // brought near with each word
  const bool line_begins =
      (first_dim + dim) * static_cast<std::int64_t>(sizeof(T)) % kLineBytes == 0;
  Words words[std::size_t{kGroups}][std::size_t{kWords}];
  STEMMA_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    load_words(rows + group * kLanes, first_dim + dim, words[group]);
  }
  STEMMA_UNROLL
  for (int word = 0; word < kWords; ++word) {
    // As many lines as one word of every row fills.
    STEMMA_UNROLL
    for (int line = word * kRows / 16; line < (word + 1) * kRows / 16; ++line) cursor.step();
    if (line_begins) bring_near(rows + word * kNearRows, kNearRows, first_dim + dim);
    Floats dims[std::size_t{kGroups}][std::size_t{kElements}];
    STEMMA_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      widen_words(words[group][word], rows[0], dims[group]);
    }
    STEMMA_UNROLL
    for (int element = 0; element < kElements; ++element) {
      STEMMA_UNROLL
      for (int query = 0; query < kQueries; ++query) {
        const Floats left =
            hn::Set(FloatTag(), q[query * head_dim + dim + word * kElements + element]);
        STEMMA_UNROLL
        for (int group = 0; group < kGroups; ++group) {
          sums[group][query] = hn::MulAdd(left, dims[group][element], sums[group][query]);
        }
      }
    }
  }
}

// scores[query][key] = q[query] · k[key].   q [queries, head_dim], scores [queries, kPartitionKeys]
// Reads and writes padded queries too.
template <typename T, int kQueries>
HWY_NOINLINE void score_row(const HeadKeys& part, const float* q, float* scores,
                            RowPrefetch& prefetch) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kGroups = groups_together(kQueries);
  constexpr FloatTag d;
  constexpr std::int64_t kDims = kWordsTogether * static_cast<int>(4 / sizeof(T));
  const std::int64_t head_dim = part.head_dim;
  const std::int64_t first_dim = part.head_bytes / static_cast<std::int64_t>(sizeof(T));
  PrefetchCursor cursor(prefetch);
  for (std::int64_t key = 0; key < part.rows.keys; key += kGroups * kLanes) {
    const T* const* const rows = reinterpret_cast<const T* const*>(part.rows.begins + key);
    Floats sums[std::size_t{kGroups}][std::size_t{kQueries}];
    STEMMA_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      STEMMA_UNROLL
      for (int query = 0; query < kQueries; ++query) sums[group][query] = hn::Zero(d);
    }
    std::int64_t dim = 0;
    for (; dim + kDims <= head_dim; dim += kDims) {
      leave_in_memory(part.rows.begins);
      score_words<T, kWordsTogether, kGroups, kQueries>(rows, first_dim, q, head_dim, dim, sums,
                                                        cursor);
    }
    for (; dim < head_dim; dim += kDimsInStep<T>) {
      score_words<T, 4, kGroups, kQueries>(rows, first_dim, q, head_dim, dim, sums, cursor);
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
    STEMMA_UNROLL
    for (int line = 0; line < kLines / 2; ++line) cursor.step();
    if (key % 2 == 0) {
      STEMMA_UNROLL
      for (int line = kLines / 2; line < kLines; ++line) cursor.step();
    }
    typename Part::Vectors right;
    Part::load_row(reinterpret_cast<const T*>(part.source.head + part.source.offsets[key]) + column,
                   right);
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
void score_row(const HeadKeys& part, const float* q, float* scores, RowPrefetch& prefetch) {
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
