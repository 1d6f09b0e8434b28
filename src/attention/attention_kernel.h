// Attention kernel: what one task of the CPU attention computes. Used by cpu_attention alone.
//
// Thread:     a pure function of its task; each thread has its own scratch.
// Memory:     AttentionScratch, sized by its owner.
// Cost:       2 × (head_dim + value_dim) operations a query, key and head, and reading K and V
//             once.
// Not here:   how a batch is cut into tasks (attention_plan), scratch memory (cpu_attention).
#pragma once

#include <cstdint>
#include <numbers>

#include "attention/attention.h"
#include "base/math.h"

namespace stemma {

// Keys a partition. A power of two; part of the arithmetic: other values give other bits.
inline constexpr std::int64_t kPartitionKeys = 128;

// Scores are computed times this, so that a softmax takes powers of two.
inline constexpr float kLog2E = std::numbers::log2e_v<float>;

// Partitions of a section, whose sums are folded before they are merged with other sections'. A
// query of latent rows has so many sums that it matters how many are kept where a walk is split;
// other walks have sections of one partition. Part of the arithmetic too.
inline constexpr std::int64_t section_partitions(const AttentionShape& shape) {
  return shape.latent_dim > 0 ? 8 : 1;
}

// Queries (rows × query heads of one KV head) that share one packing of K and V.
inline constexpr std::int64_t kTileQueries = 96;

// Columns that every target's panels divide: two vectors.
inline constexpr std::int64_t kPanelColumnsMax = 32;

// Kernels may read this many queries beyond a task's last one, and ignore what comes of it.
inline constexpr std::int64_t kQueryPadding = 8;

// Queries and widened rows of K are padded with zeros to whole steps of every target.
inline constexpr std::int64_t kPackedDims = 64;
inline constexpr std::int64_t packed_dim(std::int64_t head_dim) {
  return round_up(head_dim, kPackedDims);
}

// Widened rows of K lie so many floats further apart than they are long: an odd number of cache
// lines, so that the same place of neighbouring rows lies in different sets of the nearest cache.
inline constexpr std::int64_t widened_row(std::int64_t head_dim) {
  return packed_dim(head_dim) + 16;
}

// A query's sum over some keys, not yet divided: value_dim weighted values (padded to whole
// panels), then the largest score (in base 2) and the sum of the weights.
inline constexpr std::int64_t padded_columns(std::int64_t value_dim) {
  return round_up(value_dim, kPanelColumnsMax);
}
inline constexpr std::int64_t partial_floats(std::int64_t value_dim) {
  return padded_columns(value_dim) + 16;
}

// Widened latent rows lie this far apart, and scores of one key and the next: an odd number of
// cache lines, so that what is read together lies in different sets of the first-level cache.
inline constexpr std::int64_t kLatentHeadDimMax = 1024;
inline constexpr std::int64_t kLatentRowFloats = kLatentHeadDimMax + 16;
inline constexpr std::int64_t padded_queries(std::int64_t queries) {
  return round_up(queries, kPanelColumnsMax);
}
inline constexpr std::int64_t latent_scores_stride(std::int64_t queries) {
  return padded_queries(queries) + 16;
}

// Query heads of latent rows that are computed together at least, where their number allows: whole
// vectors of every target.
inline constexpr std::int64_t kLatentGroup = 32;

// Arrays of what is known of each query of latent rows (latent_softmax-inl.h).
inline constexpr std::int64_t kQueryStates = 5;

// One thread's working memory, all of it rounded up to whole cache lines. queries: the most that
// one task has, all its KV heads together. For latent rows they are padded to whole panels, in
// `queries` too; what only the other kernel uses is null.
struct AttentionScratch {
  float* queries = nullptr;         // [queries + padding, packed_dim], scaled
  float* sums = nullptr;            // [queries, partial_floats]
  float* keys = nullptr;            // [kPartitionKeys, widened_row]
  float* values = nullptr;          // [kPartitionKeys, widened_row]
  float* scores = nullptr;          // [queries + kQueryPadding, kPartitionKeys]; of latent rows
                                    // [kPartitionKeys, latent_scores_stride]
  float* key_scores = nullptr;      // [kPartitionKeys, kPanelColumnsMax]
  float* partition_sums = nullptr;  // [queries, partial_floats]
  float* rows = nullptr;            // latent: [kPartitionKeys, kLatentRowFloats]
  float* states = nullptr;          // latent: [kQueryStates, queries]
  std::int64_t* offsets = nullptr;  // [2, kPartitionKeys]
};

// Consecutive rows of one request, some KV heads, some partitions.
struct AttentionTask {
  const KvLayerView* layer = nullptr;
  const AttentionShape* shape = nullptr;
  const std::int32_t* pages = nullptr;  // of the request
  const float* q = nullptr;             // its first row   [rows, query_heads, head_dim]
  float* out = nullptr;
  std::int64_t rows = 0;
  std::int64_t first_position = 0;  // of the first row; the others follow
  std::int64_t first_kv_head = 0;
  std::int64_t kv_heads = 0;
  std::int64_t first_partition = 0;
  std::int64_t partitions = 0;
  // Where the sections' sums go instead of `out`, which then is not written; null if the task has
  // all partitions. One row, one KV head and whole sections only.
  // [sections, queries, partial_floats]
  float* partials_or_null = nullptr;
  // Of rows that lie apart, which ones of q they are; null: they follow each other. All of them see
  // all keys of the partitions.
  const std::int32_t* rows_or_null = nullptr;
  // Sums of the partitions before these, from which the fold goes on; null: there are none. Where
  // the sums are left, instead of `out`; null if they are complete.
  // [rows, query_heads, partial_floats]
  const float* before_or_null = nullptr;
  float* after_or_null = nullptr;
  // The only keys that are walked, ascending positions; null: all. Of one row and one KV head,
  // whose first_position then is their number less one: it counts places in this list.
  const std::int32_t* keys_or_null = nullptr;
};

// Sections' sums of one query, merged left to right into `out`.
struct MergeTask {
  const AttentionShape* shape = nullptr;
  const float* partials = nullptr;  // [sections, partial_floats], partials_stride apart
  std::int64_t partials_stride = 0;
  std::int64_t sections = 0;
  const float* before_or_null = nullptr;  // as of the task that was split   [partial_floats]
  float* out = nullptr;                   // [value_dim]
  float* sums = nullptr;                  // scratch   [partial_floats]
};

struct AttentionKernels {
  void (*attend)(const AttentionTask&, const AttentionScratch&) = nullptr;
  void (*merge)(const MergeTask&) = nullptr;
};

// Those of the chosen SIMD target; those for latent rows.
AttentionKernels attention_kernels();
AttentionKernels latent_attention_kernels();

}  // namespace stemma
