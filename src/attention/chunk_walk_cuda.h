// What kernels of chunks have in common: the item that a team walks, what its queries do not see,
// and sums that outlive a partition.
//
// A warp has 16 F::kRows pairs of the item, warps one after another.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels.
// Memory:     a chunk lies in shared memory; sums of partitions before where the kernel says.
// Cost:       a fold of a partition is a load, a fused multiply-add and a store of every sum.
// Not here:   products and tiles (attention_products_cuda, attention_tiles_cuda), the walks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_products_cuda.h"
#include "attention/attention_rows_cuda.h"
#include "attention/attention_work_cuda.h"
#include "device/cuda_dialect.h"

namespace stemma {

inline constexpr int kChunkBytes = 128;

// An item and a KV head, in shared memory: registers are for sums.
struct Chunk {
  AttentionItem item;
  std::int32_t kv_head;
  std::int32_t positions[8][2];  // of each warp's first pair and of its last; −1: it has none

  STEMMA_ON_DEVICE int tiles() const { return item.end_tile - item.first_tile; }
  STEMMA_ON_DEVICE std::int32_t first_position() const { return positions[warp_index()][0]; }
  STEMMA_ON_DEVICE std::int32_t last_position() const { return positions[warp_index()][1]; }
};
static_assert(sizeof(Chunk) <= kChunkBytes);

// Items of the list, for every KV head.
STEMMA_ON_DEVICE std::int64_t chunks_of(const AttentionParams& params) {
  return static_cast<std::int64_t>(header_of(params).items[kChunkPairs]) * params.kv_heads;
}

// One of them.
struct ItemOfHead {
  AttentionItem item;
  std::int32_t kv_head;

  STEMMA_ON_DEVICE int tiles() const { return item.end_tile - item.first_tile; }
};
STEMMA_ON_DEVICE ItemOfHead item_of(const AttentionParams& params, std::int64_t work) {
  const AttentionItem* const items =
      array_of<AttentionItem>(params, header_of(params).items_at[kChunkPairs]);
  return {items[work / params.kv_heads], static_cast<std::int32_t>(work % params.kv_heads)};
}

// By the first lane of each warp; its own fields are there for the warp, all after a barrier.
template <typename F>
STEMMA_ON_DEVICE void load_chunk(Chunk& chunk, const AttentionParams& params, std::int64_t work) {
  if (lane_index() != 0) return;
  const auto [item, kv_head] = item_of(params, work);
  if (warp_index() == 0) {
    chunk.item = item;
    chunk.kv_head = kv_head;
  }
  const std::int32_t first = warp_index() * 16 * F::kRows;
  std::int32_t last = first + 16 * F::kRows - 1;
  if (last >= item.pairs) last = first < item.pairs ? item.pairs - 1 : last;
  chunk.positions[warp_index()][0] = position_of(params, pair_of(params, item, kv_head, first));
  chunk.positions[warp_index()][1] = position_of(params, pair_of(params, item, kv_head, last));
}

STEMMA_ON_DEVICE KeyPlace look_up(const AttentionParams& params, const Chunk& chunk, int step) {
  if (thread_index() >= kCudaTileKeys || step >= chunk.tiles()) return {-1, 0, 0};
  return place_of(params, chunk.item, chunk.kv_head,
                  (chunk.item.first_tile + step) * kCudaTileKeys + thread_index());
}

// Where all rows of the warp see all keys of a tile there is nothing to hide.
template <typename F>
STEMMA_ON_DEVICE void hide(const AttentionParams& params, const Chunk& chunk,
                           float (&s)[F::kRows][2 * F::kKeys][4], std::int32_t first_key) {
  const std::int32_t last_key = first_key + kCudaTileKeys - 1;
  const auto farthest = static_cast<std::uint32_t>(chunk.last_position() - first_key);
  if (last_key <= chunk.first_position() && farthest < params.window) return;
  std::int32_t positions[F::kRows][2];
  STEMMA_UNROLLED
  for (int i = 0; i < 2 * F::kRows; ++i) {
    const int pair = warp_index() * 16 * F::kRows + 8 * i + lane_index() / 4;
    positions[i / 2][i % 2] = position_of(params, pair_of(params, chunk.item, chunk.kv_head, pair));
  }
  hide_keys<F>(s, positions, first_key, params.window);
}

// ---- Sums of partitions before, in pieces of 16 bytes. Piece i of the thread's is this + i ×
// kPieceStride: its sums; then, of each of its rows, the largest score and the sum of the weights.

template <typename F>
STEMMA_ON_DEVICE std::byte* kept_pieces(std::byte* kept) {
  return kept + afresh(thread_index()) * kPieceBytes;
}
STEMMA_ON_DEVICE Words as_words(float a, float b, float c, float d) {
  return {{float_as_word(a), float_as_word(b), float_as_word(c), float_as_word(d)}};
}

// What was kept, and this partition, become the sums.
template <typename F>
STEMMA_ON_DEVICE void fold_kept(std::byte* kept_sums, Sums<F>& sums) {
  const std::byte* const pieces = kept_pieces<F>(kept_sums);
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) {
    const Words scalars = load_words(pieces + (F::kSumPieces + r) * F::kPieceStride);
    Fold folding[2];
    STEMMA_UNROLLED
    for (int half = 0; half < 2; ++half) {
      folding[half] = fold_of(word_as_float(scalars.w[2 * half]), sums.largest[r][half]);
      sums.largest[r][half] = folding[half].largest;
      sums.weights[r][2 * half] =
          fold(folding[half], word_as_float(scalars.w[2 * half + 1]), sums.weights[r][2 * half]);
    }
    STEMMA_UNROLLED
    for (int n = 0; n < 2 * F::kColumns; ++n) {
      const Words kept = load_words(pieces + (r * 2 * F::kColumns + n) * F::kPieceStride);
      STEMMA_UNROLLED
      for (int i = 0; i < 4; ++i) {
        sums.o[r][n][i] = fold(folding[i / 2], word_as_float(kept.w[i]), sums.o[r][n][i]);
      }
    }
  }
}
template <typename F>
STEMMA_ON_DEVICE void keep_sums(std::byte* kept_sums, const Sums<F>& sums) {
  std::byte* const pieces = kept_pieces<F>(kept_sums);
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) {
    store_words(
        pieces + (F::kSumPieces + r) * F::kPieceStride,
        as_words(sums.largest[r][0], sums.weights[r][0], sums.largest[r][1], sums.weights[r][2]));
    STEMMA_UNROLLED
    for (int n = 0; n < 2 * F::kColumns; ++n) {
      const float(&o)[4] = sums.o[r][n];
      store_words(pieces + (r * 2 * F::kColumns + n) * F::kPieceStride,
                  as_words(o[0], o[1], o[2], o[3]));
    }
  }
}

// The output of a row that has no other items; else what these are to be merged with.
template <typename F>
STEMMA_ON_DEVICE void end_row(const AttentionParams& params, const Chunk& chunk,
                              const Sums<F>& sums, int r, int half) {
  const int i = warp_index() * 16 * F::kRows + 16 * r + 8 * half + lane_index() / 4;
  const Pair pair = pair_of(params, chunk.item, chunk.kv_head, i);
  if (pair.row < 0) return;
  const AttentionRow& row = row_of(params, pair.row);
  const std::int64_t sum = sum_of(params, chunk.item, row, pair);
  const float weights = sums.weights[r][2 * half];
  const float inverse = inverse_of(weights);
  STEMMA_UNROLLED
  for (int n = 0; n < 2 * F::kColumns; ++n) {
    const int column = 8 * n + lane_index() % 4 * 2;
    if (column >= params.value_dim) continue;
    const float x = sums.o[r][n][2 * half];
    const float y = sums.o[r][n][2 * half + 1];
    if (row.sums == 1) {
      store_outputs(params, pair, column, output_of(x, inverse), output_of(y, inverse));
    } else {
      store_two(params.sum_values + sum * params.value_dim + column, {x, y});
    }
  }
  if (row.sums > 1 && lane_index() % 4 == 0) {
    params.sum_weights[2 * sum] = sums.largest[r][half];
    params.sum_weights[2 * sum + 1] = weights;
  }
}

}  // namespace stemma
