// Decode, the first half: scores of one row's queries against a stretch of K, straight from the
// pool. The same sums in the same order as packing and multiplying (pack_kv-inl.h,
// multiply_panels-inl.h), but each element of K meets its few queries in a register and is never
// written back.
//
// Included by attention_cpu.cc after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_DECODE_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_DECODE_SCORES_INL_H_
#undef STEMMA_ATTENTION_DECODE_SCORES_INL_H_
#else
#define STEMMA_ATTENTION_DECODE_SCORES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "attention/attention_kernel.h"
#include "attention/pack_kv-inl.h"
#include "attention/row_prefetch.h"
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

// Groups of kLanes rows of K that are computed together.
constexpr int groups_together(int queries) {
  return kManyRegisters && queries <= 4 ? 2 : 1;
}

// What the next group is: the next keys of the same head, or the same keys of the next head; where
// keys are scattered there is none, for the reason that follows. Two
// heads of 16 keys lie in twice as many sets of the first-level cache as one head of 32 keys: where
// rows are a power of two apart, as they mostly are, the latter would push each other's lines out
// before their second half is read.
enum class NextGroup { kKeys, kHead, kNone };

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
  std::int64_t head_bytes = 0;       // from a row's begin
  std::int64_t next_head_bytes = 0;  // from one head to the next
  std::int64_t head_dim = 0;
  std::int64_t queries = 0;  // of a head; at most as many as the kernel computes
  bool scattered = false;    // keys do not follow each other
};

// The optimiser may not carry `rows` in registers from before this point to after it. There are
// more of them than general registers; without this, GCC parks them in vector registers, and each
// use then costs a move through the port that the multiplications need.
HWY_INLINE void leave_in_memory(const std::byte* const* rows) {
  asm volatile("" : : "r"(rows) : "memory");
}

// Where score_row stands, and how far it is from one group to the next.
template <typename T>
struct ScorePlace {
  const T* const* rows = nullptr;
  std::int64_t first_dim = 0;  // of the rows, where the head begins
  std::int64_t dim = 0;        // of the head
  const float* q = nullptr;    // [queries, head_dim]
  std::int64_t head_dim = 0;
  const T* const* rows_after = nullptr;  // what is scored next
  std::int64_t first_dim_after = 0;

  std::int64_t group_rows = 0;
  std::int64_t group_dims = 0;
  std::int64_t group_q = 0;
};

// The next line of row `row`, all groups' rows counted, from the second-level cache into the first:
// the processor cannot see that so many rows are each read in order.
template <typename T>
HWY_INLINE void bring_near(const ScorePlace<T>& at, int row) {
  constexpr auto kLineDims = kLineBytes / static_cast<std::int64_t>(sizeof(T));
  const bool last = at.dim + kLineDims >= at.head_dim;
  const T* const* const rows = last ? at.rows_after : at.rows;
  const std::int64_t dim = last ? at.first_dim_after : at.first_dim + at.dim + kLineDims;
  const std::int64_t group = row / kLanes;
  __builtin_prefetch(rows[group * at.group_rows + row % kLanes] + dim + group * at.group_dims, 0,
                     3);
}

// sums += q · k for kWords words of each row of kGroups groups.
template <typename T, int kWords, int kGroups, int kQueries>
HWY_INLINE void score_words(const ScorePlace<T>& at,
                            Floats (&sums)[std::size_t{kGroups}][std::size_t{kQueries}],
                            PrefetchCursor& cursor) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kElements = static_cast<int>(4 / sizeof(T));
  constexpr int kRows = static_cast<int>(kGroups * kLanes);
  const std::int64_t dim = at.first_dim + at.dim;
  const bool line_begins = dim * static_cast<std::int64_t>(sizeof(T)) % kLineBytes == 0;
  Words words[std::size_t{kGroups}][std::size_t{kWords}];
  STEMMA_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    load_words(at.rows + group * at.group_rows, dim + group * at.group_dims, words[group]);
  }
  STEMMA_UNROLL
  for (int word = 0; word < kWords; ++word) {
    if (line_begins) {
      STEMMA_UNROLL
      for (int i = 0; i < kRows / kWords; ++i) bring_near(at, word * (kRows / kWords) + i);
    }
    Floats dims[std::size_t{kGroups}][std::size_t{kElements}];
    STEMMA_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      widen_words(words[group][word], at.rows[0], dims[group]);
    }
    STEMMA_UNROLL
    for (int element = 0; element < kElements; ++element) {
      // As many lines as the words of every row fill.
      cursor.step_share(kWords * kRows / 16, word * kElements + element, kWords * kElements);
      const float* const q = at.q + at.dim + word * kElements + element;
      STEMMA_UNROLL
      for (int query = 0; query < kQueries; ++query) {
        STEMMA_UNROLL
        for (int group = 0; group < kGroups; ++group) {
          const Floats left = hn::Set(FloatTag(), q[query * at.head_dim + group * at.group_q]);
          sums[group][query] = hn::MulAdd(left, dims[group][element], sums[group][query]);
        }
      }
    }
  }
}

// scores[query][key] = q[query] · k[key] of one head, or of two if the next group is a head.
//   q [heads, queries, head_dim], scores [heads, queries, kPartitionKeys]
// Reads and writes padded queries too; those of a first head before the second one's.
template <typename T, int kQueries, NextGroup kNext>
HWY_NOINLINE void score_row(const HeadKeys& part, const float* q, float* scores,
                            RowPrefetch& prefetch) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr bool kHeads = kNext == NextGroup::kHead;
  constexpr int kGroups = kNext == NextGroup::kNone ? 1 : groups_together(kQueries);
  constexpr std::int64_t kKeys = kHeads ? kLanes : kGroups * kLanes;
  constexpr FloatTag d;
  constexpr std::int64_t kDims = kWordsTogether * static_cast<int>(4 / sizeof(T));
  constexpr auto kElementBytes = static_cast<std::int64_t>(sizeof(T));
  const auto rows_of = [&](std::int64_t key) HWY_ATTR {
    return reinterpret_cast<const T* const*>(part.rows.begins + key);
  };
  const std::int64_t next_head_dims = part.next_head_bytes / kElementBytes;
  const std::int64_t group_scores = kHeads ? part.queries * kPartitionKeys : kLanes;
  ScorePlace<T> at;
  at.first_dim = part.head_bytes / kElementBytes;
  at.q = q;
  at.head_dim = part.head_dim;
  at.group_rows = kHeads ? 0 : kLanes;
  at.group_dims = kHeads ? next_head_dims : 0;
  at.group_q = kHeads ? part.queries * part.head_dim : 0;
  PrefetchCursor cursor(prefetch);
  for (std::int64_t key = 0; key < part.rows.keys; key += kKeys) {
    const bool more = key + kKeys < part.rows.keys;
    at.rows = rows_of(key);
    at.rows_after = rows_of(more ? key + kKeys : 0);
    at.first_dim_after = at.first_dim + (more ? 0 : (kHeads ? kGroups : 1) * next_head_dims);
    Floats sums[std::size_t{kGroups}][std::size_t{kQueries}];
    STEMMA_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      STEMMA_UNROLL
      for (int query = 0; query < kQueries; ++query) sums[group][query] = hn::Zero(d);
    }
    for (at.dim = 0; at.dim + kDims <= part.head_dim; at.dim += kDims) {
      leave_in_memory(part.rows.begins);
      score_words<T, kWordsTogether, kGroups, kQueries>(at, sums, cursor);
    }
    for (; at.dim < part.head_dim; at.dim += kDimsInStep<T>) {
      score_words<T, 4, kGroups, kQueries>(at, sums, cursor);
    }
    STEMMA_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      STEMMA_UNROLL
      for (int query = 0; query < kQueries; ++query) {
        hn::StoreU(sums[group][query], d,
                   scores + query * kPartitionKeys + key + group * group_scores);
      }
    }
  }
}

// Scores one head, or two where there are two and that is better; returns how many.
template <typename T, int kQueries>
std::int64_t score_heads(const HeadKeys& part, std::int64_t heads, const float* q, float* scores,
                         RowPrefetch& prefetch) {
  if constexpr (groups_together(kQueries) == 2) {
    if (heads >= 2) {
      score_row<T, kQueries, NextGroup::kHead>(part, q, scores, prefetch);
      return 2;
    }
  }
  if (part.scattered) {
    score_row<T, kQueries, NextGroup::kNone>(part, q, scores, prefetch);
  } else {
    score_row<T, kQueries, NextGroup::kKeys>(part, q, scores, prefetch);
  }
  return 1;
}

template <typename T>
std::int64_t score_heads(const HeadKeys& part, std::int64_t heads, const float* q, float* scores,
                         RowPrefetch& prefetch) {
  if (part.queries > 4) return score_heads<T, 8>(part, heads, q, scores, prefetch);
  if (part.queries > 2) return score_heads<T, 4>(part, heads, q, scores, prefetch);
  if (part.queries > 1) return score_heads<T, 2>(part, heads, q, scores, prefetch);
  return score_heads<T, 1>(part, heads, q, scores, prefetch);
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
