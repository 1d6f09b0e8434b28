// Decode, the first half: scores of one row's queries against a stretch of K, straight from the
// pool. Rows of K are read in order, as they lie: nothing is transposed but the sums.
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
#include <cstring>

#include "attention/attention_kernel.h"
#include "attention/row_prefetch.h"
#include "attention/row_vectors-inl.h"
#include "attention/tile_rows-inl.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

// The most queries of a KV head that are computed this way.
constexpr std::int64_t kDecodeQueries = 8;

// How a partition is read: so many keys, all KV heads of them, before the next ones; and how many
// keys ahead of its use a row is asked for, the same bytes of it. Memory and arithmetic then
// overlap, whatever the page size. Where there is little arithmetic, rows are best read nearly in
// order; where there is more, K of one head stays in the nearest cache while it meets the next, and
// narrow vectors, which read each line of V by halves, find it there a second time.
//
// Each row is asked for twice: processors drop some of what is asked for while memory is busy, and
// a row that was dropped is asked for again in time.
struct DecodePace {
  std::int64_t keys = 0;
  std::int64_t ahead = 0;
  std::int64_t again = 0;

  static DecodePace of(std::int64_t queries) {
    return queries == 1 ? DecodePace{4, 16, 4} : DecodePace{kManyRegisters ? 32 : 16, 32, 20};
  }
};
constexpr std::int64_t kAheadKeysMax = 32;
static_assert(kPartitionKeys % kTileKeys == 0);

// Rows of K or of V of one partition, where the task's first head begins, and what is asked for
// while each of them is read. A key that does not exist has the row of the last one that does.
struct DecodeRows {
  // Where rows begin: those of `keys` keys.
  struct Source {
    const std::byte* first = nullptr;  // of page 0, slot 0
    const std::int64_t* offsets = nullptr;
    std::int64_t keys = 0;

    const std::byte* row(std::int64_t key) const {
      return first + offsets[std::min(key, keys - 1)];
    }
  };

  // after: what is read after these rows. REQUIRES: these are at least one.
  DecodeRows(const Source& these, const Source& after, const DecodePace& pace)
      : first_time(pace.ahead - pace.again) {
    const std::int64_t keys = round_up(these.keys, std::int64_t{kTileKeys});
    for (std::int64_t key = 0; key < keys; ++key) begins[key] = these.row(key);
    for (std::int64_t i = 0; i < keys + first_time; ++i) {
      const std::int64_t key = i + pace.again;
      const bool behind = key >= these.keys && after.keys > 0;
      later[i] = behind ? after.row(key - these.keys) : these.row(key);
    }
  }

  const std::byte* begins[std::size_t{kPartitionKeys}];
  // While row i is read, later[i + first_time] is asked for, and later[i] again.
  std::int64_t first_time;
  const std::byte* later[static_cast<std::size_t>(kPartitionKeys + kAheadKeysMax)];
};

// One head of some of them, or a few heads beside each other.
struct HeadKeys {
  const std::byte* const* begins = nullptr;  // of the rows, to a whole tile
  const std::byte* const* later = nullptr;   // from the first of them on (DecodeRows)
  std::int64_t first_time = 0;
  std::int64_t keys = 0;
  std::int64_t head_bytes = 0;       // from a row's begin
  std::int64_t next_head_bytes = 0;  // from one head to the next
  std::int64_t head_dim = 0;
  std::int64_t queries = 0;  // of a head
};

// Rows of a tile of one head, and those that are asked for meanwhile.
template <typename T>
struct TileRows {
  const T* now[std::size_t{kTileKeys}];
  const T* ahead[std::size_t{kTileKeys}];
  const T* again[std::size_t{kTileKeys}];

  // Those of the keys from `first` on, from byte `bytes` of the rows on.
  TileRows(const HeadKeys& part, std::int64_t first, std::int64_t bytes) {
    STEMMA_UNROLL
    for (int i = 0; i < kTileKeys; ++i) {
      const std::int64_t key = first + i;
      now[i] = reinterpret_cast<const T*>(part.begins[key] + bytes);
      ahead[i] = reinterpret_cast<const T*>(part.later[key + part.first_time] + bytes);
      again[i] = reinterpret_cast<const T*>(part.later[key] + bytes);
    }
  }
};

// A tile's sums of some queries of one head.
template <int kQueries>
using HeadSums = Floats[std::size_t{kQueries}][std::size_t{kTileKeys}];

// Whether the step at `dim` begins a cache line, counted from the row's begin; steps of narrow
// vectors share one.
template <typename T>
constexpr bool begins_line(std::int64_t dim) {
  constexpr std::int64_t kLineDims = kLineBytes / static_cast<std::int64_t>(sizeof(T));
  return RowVectors<T>::kDims >= kLineDims || dim % kLineDims == 0;
}

template <typename T, bool kAsks>
HWY_INLINE void ask_for_step(const TileRows<T>& rows, std::int64_t dim) {
  STEMMA_UNROLL
  for (int key = 0; kAsks && key < kTileKeys; ++key) {
    __builtin_prefetch(rows.ahead[key] + dim, 0, 2);
    __builtin_prefetch(rows.again[key] + dim, 0, 2);
  }
}

// sums[query][key] += q · k for one step of the rows: `dims` of the dimensions from `dim` on. q in
// packed order, queries q_stride apart.
template <typename T, int kQueries, bool kAsks>
HWY_INLINE void score_step(const TileRows<T>& rows, std::int64_t dim, std::int64_t dims,
                           const float* q, std::int64_t q_stride, HeadSums<kQueries>& sums) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Row = RowVectors<T>;
  if (begins_line<T>(dim)) ask_for_step<T, kAsks>(rows, dim);
  Floats left[std::size_t{kQueries}][std::size_t{Row::kVectors}];
  STEMMA_UNROLL
  for (int query = 0; query < kQueries; ++query) {
    STEMMA_UNROLL
    for (int v = 0; v < Row::kVectors; ++v) {
      left[query][v] = hn::LoadU(FloatTag(), q + query * q_stride + dim + v * kLanes);
    }
  }
  STEMMA_UNROLL
  for (int key = 0; key < kTileKeys; ++key) {
    Floats row[std::size_t{Row::kVectors}];
    if (dims == Row::kDims) {
      Row::load(rows.now[key] + dim, row);
    } else {
      Row::load_some(rows.now[key] + dim, dims, row);
    }
    STEMMA_UNROLL
    for (int v = 0; v < Row::kVectors; ++v) {
      STEMMA_UNROLL
      for (int query = 0; query < kQueries; ++query) {
        sums[query][key] = hn::MulAdd(left[query][v], row[v], sums[query][key]);
      }
    }
  }
}

// sums[query][key] += q · one vector of each key.
template <int kQueries>
HWY_INLINE void score_vector(const Floats (&keys)[std::size_t{kTileKeys}], const float* q,
                             std::int64_t q_stride, HeadSums<kQueries>& sums) {
  namespace hn = hwy::HWY_NAMESPACE;
  STEMMA_UNROLL
  for (int query = 0; query < kQueries; ++query) {
    const Floats left = hn::LoadU(FloatTag(), q + query * q_stride);
    STEMMA_UNROLL
    for (int key = 0; key < kTileKeys; ++key) {
      sums[query][key] = hn::MulAdd(left, keys[key], sums[query][key]);
    }
  }
}

// The same of codes: all elements of a tile's words do not fit the registers, so they are taken
// apart one after another.
template <typename T, int kQueries, bool kAsks>
HWY_INLINE void score_code_step(const TileRows<T>& rows, std::int64_t dim, const float* q,
                                std::int64_t q_stride, HeadSums<kQueries>& sums) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (begins_line<T>(dim)) ask_for_step<T, kAsks>(rows, dim);
  Words words[std::size_t{kTileKeys}];
  STEMMA_UNROLL
  for (int key = 0; key < kTileKeys; ++key) {
    words[key] = hn::LoadU(WordTag(), reinterpret_cast<const std::uint32_t*>(rows.now[key] + dim));
    load_once(words[key]);
  }
  STEMMA_UNROLL
  for (int v = 0; v < RowVectors<T>::kVectors; ++v) {
    Floats keys[std::size_t{kTileKeys}];
    STEMMA_UNROLL
    for (int key = 0; key < kTileKeys; ++key) {
      keys[key] = widen_one(words[key], rows.now[key], v);
    }
    score_vector<kQueries>(keys, q + dim + v * kLanes, q_stride, sums);
  }
}

template <typename T, int kQueries, bool kAsks>
HWY_INLINE void score_rows(const TileRows<T>& rows, std::int64_t head_dim, const float* q,
                           std::int64_t q_stride, HeadSums<kQueries>& sums) {
  constexpr std::int64_t kDims = RowVectors<T>::kDims;
  STEMMA_UNROLL
  for (auto& of_query : sums) {
    STEMMA_UNROLL
    for (Floats& sum : of_query) sum = hwy::HWY_NAMESPACE::Zero(FloatTag());
  }
  std::int64_t dim = 0;
  for (; dim + kDims <= head_dim; dim += kDims) {
    if constexpr (sizeof(T) == 1) {
      score_code_step<T, kQueries, kAsks>(rows, dim, q, q_stride, sums);
    } else {
      score_step<T, kQueries, kAsks>(rows, dim, kDims, q, q_stride, sums);
    }
  }
  if (dim < head_dim) {
    score_step<T, kQueries, kAsks>(rows, dim, head_dim - dim, q, q_stride, sums);
  }
}

// Totals of one tile: a vector [heads, queries][keys]. Lanes beyond kHeads × kQueries are 0.
template <typename T, int kHeads, int kQueries, bool kAsks>
HWY_INLINE Floats score_heads_tile(const HeadKeys& part, std::int64_t key, const float* q,
                                   std::int64_t q_stride) {
  TileSums sums;
  STEMMA_UNROLL
  for (int i = kHeads * kQueries; i < kTileScoreQueries; ++i) {
    STEMMA_UNROLL
    for (Floats& sum : sums[i]) sum = hwy::HWY_NAMESPACE::Zero(FloatTag());
  }
  STEMMA_UNROLL
  for (int head = 0; head < kHeads; ++head) {
    const TileRows<T> rows(part, key, part.head_bytes + head * part.next_head_bytes);
    HeadSums<kQueries> own;
    score_rows<T, kQueries, kAsks>(rows, part.head_dim, q + head * part.queries * q_stride,
                                   q_stride, own);
    STEMMA_UNROLL
    for (int query = 0; query < kQueries; ++query) {
      STEMMA_UNROLL
      for (int i = 0; i < kTileKeys; ++i) sums[head * kQueries + query][i] = own[query][i];
    }
  }
  return sum_lanes(sums);
}

// scores[query][key] = q[query] · k[key] of kHeads heads, kQueries queries of each at a time; the
// last ones may be queries that do not exist, whose scores are not written.
//   q [heads, queries, packed head_dim], scores [heads, queries, kPartitionKeys]
template <typename T, int kHeads, int kQueries>
HWY_NOINLINE void score_row(const HeadKeys& part, const float* q, float* scores) {
  static_assert(kHeads * kQueries <= kTileScoreQueries);
  const std::int64_t stride = RowVectors<T>::packed(part.head_dim);
  for (std::int64_t key = 0; key < part.keys; key += kTileKeys) {
    for (std::int64_t query = 0; query < part.queries; query += kQueries) {
      const float* const from = q + query * stride;
      const Floats totals =
          query == 0 ? score_heads_tile<T, kHeads, kQueries, true>(part, key, from, stride)
                     : score_heads_tile<T, kHeads, kQueries, false>(part, key, from, stride);
      HWY_ALIGN float lanes[static_cast<std::size_t>(kLanes)];
      hwy::HWY_NAMESPACE::Store(totals, FloatTag(), lanes);
      const std::int64_t count = std::min<std::int64_t>(kQueries, part.queries - query);
      for (std::int64_t head = 0; head < kHeads; ++head) {
        for (std::int64_t i = 0; i < count; ++i) {
          float* const to = scores + (head * part.queries + query + i) * kPartitionKeys + key;
          std::memcpy(to, lanes + (head * kQueries + i) * kTileKeys, kTileKeys * sizeof(float));
        }
      }
    }
  }
}

// Scores a few of `heads` heads, as many as fill a tile; returns how many.
template <typename T>
std::int64_t score_heads(const HeadKeys& part, std::int64_t heads, const float* q, float* scores) {
  if constexpr (kTileScoreQueries >= 4) {
    if (part.queries > 2) return score_row<T, 1, 4>(part, q, scores), 1;
    if (part.queries == 1 && heads >= 4) return score_row<T, 4, 1>(part, q, scores), 4;
    if (part.queries == 2 && heads >= 2) return score_row<T, 2, 2>(part, q, scores), 2;
  }
  if constexpr (kTileScoreQueries >= 2) {
    if (part.queries >= 2) return score_row<T, 1, 2>(part, q, scores), 1;
    if (heads >= 2) return score_row<T, 2, 1>(part, q, scores), 2;
  }
  return score_row<T, 1, 1>(part, q, scores), 1;
}

}  // namespace
}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
