// What the kernels of attention read: a batch cut into work (the image that a plan uploads), and
// where the layer, the queries and the outputs lie.
//
// The image is one piece of memory: an AttentionHeader, then the arrays that it names. A *pair* is
// a row of the batch and one of the query heads that share a KV head; pairs are counted row by row.
// An item is some pairs of rows that follow each other, and some tiles of keys that all of them
// read; it is computed for every KV head.
//
// Thread:     values.
// Memory:     of the device; owned by whoever launches.
// Cost:       none.
// Not here:   how a batch is cut.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stemma/kv_shape.h"

namespace stemma {

// Keys that are multiplied at once, and tiles that a partition has. Part of the arithmetic.
inline constexpr int kCudaTileKeys = 64;
inline constexpr int kCudaPartitionTiles = 8;

// Lists of items, by the kernel that computes them.
enum AttentionList : int {
  kSinglePairs = 0,  // at most 16 pairs: decode
  kSharedPairs = 1,  // at most 64: rows of a request, rows of several requests
  kChunkPairs = 2,   // at most 128: rows of long chunks
  kChosenPairs = 3,  // at most 16, of one row that attends to tokens that were chosen for it
};
inline constexpr int kAttentionLists = 4;
inline constexpr int kListPairs[kAttentionLists] = {16, 64, 128, 16};

// Columns of rows of K and V, and of latent rows and their values, that there are kernels for.
inline constexpr std::int64_t kPlainDimMax = 256;
inline constexpr std::int64_t kLatentDimMax = 576;
inline constexpr std::int64_t kLatentValueDimMax = 512;

// Whether there are kernels for rows of a pool. Those of more than kPlainDimMax columns must be
// latent rows.
constexpr bool has_kernel_of_rows(std::int64_t head_dim, std::int64_t value_dim) {
  if (head_dim < 1 || head_dim % 8 != 0 || value_dim % 2 != 0) return false;
  if (head_dim <= kPlainDimMax) return true;
  return head_dim <= kLatentDimMax && value_dim < head_dim && value_dim <= kLatentValueDimMax;
}

// Whether they are multiplied on tensor cores, 16 bytes of them at a time.
constexpr bool has_tensor_kernel(DType kv_dtype, std::int64_t head_dim, std::int64_t value_dim) {
  if (kv_dtype == DType::kF32 || (is_scaled(kv_dtype) && head_dim % 16 != 0)) return false;
  return has_kernel_of_rows(head_dim, value_dim);
}

struct AttentionItem {
  std::int32_t table_begin = 0;  // where the request's pages begin in the table
  std::int32_t keys = 0;         // that exist, of those that its last row sees
  std::int32_t first_row = 0;    // of the batch; of a run, in the shared rows
  std::int32_t first_pair = 0;   // counted from that row's first
  std::int32_t pairs = 0;
  std::int32_t first_tile = 0;
  std::int32_t end_tile = 0;
  std::int32_t run = 0;  // 1: rows of several requests
  std::int32_t choice =
      0;  // of kChosenPairs: its row's, of the batch's; keys count what was chosen
};

// A row of the batch that attends to a choice of its tokens. Choices are made and used in waves of
// AttentionParams::wave_choices, one wave after another, for which there is memory at once.
struct ChoosingRow {
  std::int32_t row = 0;          // of the batch
  std::int32_t table_begin = 0;  // where the request's pages begin in the table
  std::int32_t tokens = 0;       // that it sees
  std::int32_t kept_tokens = 0;  // that it attends to
};

// A row of the batch. What its items give is folded into sums, in the order of their keys: the item
// whose first partition is p goes to the sum max(0, p − split_at) of them. A row of one sum is done
// by its item; one of more by merge_sums.
struct AttentionRow {
  std::int32_t position = 0;  // of a row with a choice: of the last that was chosen, in the choice
  std::int32_t first_sum = 0;
  std::int32_t sums = 1;
  std::int32_t split_at = 0;
};

// Offsets from the begin of the image, in sixteen bytes.
struct AttentionHeader {
  std::int32_t items[kAttentionLists] = {};  // how many
  std::int32_t merged_rows = 0;              // how many
  std::int32_t items_at[kAttentionLists] = {};
  std::int32_t rows_at = 0;         // AttentionRow   [rows]
  std::int32_t shared_rows_at = 0;  // std::int32_t: rows of the batch that runs have
  std::int32_t merged_rows_at = 0;  // std::int32_t: rows of the batch
  std::int32_t table_at = 0;        // std::int32_t: pages; below 0: none
  std::int32_t choices = 0;         // how many
  std::int32_t choices_at = 0;      // ChoosingRow
  std::int32_t waves_at = 0;  // std::int32_t: where the items of kChosenPairs of each wave begin,
                              // and where those of the last end
};

struct AttentionParams {
  const std::byte* image = nullptr;

  // The layer; strides in bytes.
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  DType kv_dtype = DType::kBF16;
  std::int32_t page_size = 0;
  // Of codes: what those of a row are multiplied by, strides in floats (KvLayerView).
  const float* k_scales = nullptr;
  const float* v_scales = nullptr;
  std::int64_t scale_page_stride = 0;
  std::int64_t scale_head_stride = 0;

  // The shape.
  std::int32_t query_heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t value_dim = 0;
  std::uint32_t window = 0;  // keys that a query sees at most
  float scale = 0;
  float score_cap = 0;

  const void* q = nullptr;
  void* out = nullptr;
  DType row_dtype = DType::kBF16;

  // Sums of partitions, not yet divided: of sum i and query head h, value_dim values at
  // sum_values[(i × query_heads + h) × value_dim], and the largest score (in base 2) and the sum of
  // the weights at sum_weights[(i × query_heads + h) × 2].
  float* sum_values = nullptr;
  float* sum_weights = nullptr;

  // What teams of chunk_attention have of partitions before: chunk_attention_team_bytes each.
  std::byte* chunk_sums = nullptr;

  // The choices of a wave: of its choice i and KV head h, the slots of the tokens that were chosen,
  // in the order of their positions, at chosen[(i × kv_heads + h) × chosen_max].
  std::int32_t* chosen = nullptr;
  std::int32_t chosen_max = 0;
  std::int32_t wave = 0;
  std::int32_t wave_choices = 0;  // of a wave, at most
};

}  // namespace stemma
