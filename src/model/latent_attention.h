// Latent attention: what surrounds attention where all heads share one latent row a token
// (DeepSeek-V2, arXiv 2405.04434): the rows of q and of the pool before it, the heads' values
// after.
//
// Always in the absorbed form: q · (W_UK c) is (W_UKᵀ q) · c, so queries are brought to the latent
// row's columns, attention runs over latent rows as they lie in the pool, and W_UV turns what it
// gives into values. Prefill and decode compute alike, each row by itself (I13).
//
// Thread:     one batch at a time; the work is spread over the ThreadPool.
// Memory:     scratch for the largest batch, at construction; nothing allocates later.
// Cost:       about two operations a weight and row, as the products of ordinary attention.
// Not here:   the attention itself (attention/), storing rows (KvPool), loading (weights).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "device/packed_weights.h"
#include "device/weight_type.h"
#include "model/activation_rows.h"
#include "model/adapter_pass.h"
#include "model/latent_config.h"
#include "model/weight_rounding.h"
#include "stemma/result.h"

namespace stemma {

// Of one layer. What the model does not have is empty.
struct LatentWeights {
  PackedWeights query_down;  // [query_rank, hidden], if q has a rank
  std::vector<float> query_down_bias;
  std::vector<float> query_norm;  // [query_rank]
  PackedWeights query_up;         // [heads × query_head_dim, query_rank or hidden]
  PackedWeights latent_down;      // [row_dim, hidden]
  std::vector<float> latent_down_bias;
  std::vector<float> latent_norm;       // [rank]
  std::vector<PackedWeights> key_up;    // of each head W_UK, transposed: [rank, plain_dim]
  std::vector<PackedWeights> value_up;  // of each head W_UV: [value_dim, rank]
};

// Packs the file's `matrix` [rows, columns], row-major, as its transpose [columns, rows].
Result<PackedWeights> pack_transposed(std::span<const std::byte> matrix, WeightType type,
                                      std::int64_t rows, std::int64_t columns,
                                      const MatrixPacker& packer);

// Cuts W_UK and W_UV of every head out of the file's `matrix`
// [heads × (plain_dim + value_dim), rank], row-major, and packs them.
Status split_heads(std::span<const std::byte> matrix, WeightType type, const LatentConfig& config,
                   const MatrixPacker& packer, LatentWeights& weights);

struct LatentParts {
  LatentConfig config;
  std::int64_t heads = 0;
  std::int64_t rows_max = 0;
  ThreadPool& threads;
};

class LatentAttention {
  struct Key {};

 public:
  // Cosines and sines of each row's pairs.   [rows, rope_dim / 2]
  struct Angles {
    const Rows& cosines;
    const Rows& sines;
  };

  // kOutOfMemory if the scratch cannot be had.
  static Result<std::unique_ptr<LatentAttention>> create(const LatentParts& parts);
  LatentAttention(Key, const LatentParts& parts);  // for create

  // The rows that attention compares, from `in` [rows, hidden].   [rows, heads, row_dim]
  void write_queries(const LatentWeights& weights, const Rows& in, std::int64_t rows,
                     const Angles& angles, const Rows& queries, const LayerAdapters& adapters = {});

  // The rows that the pool keeps.   [rows, row_dim]
  void write_keys(const LatentWeights& weights, const Rows& in, std::int64_t rows,
                  const Angles& angles, const Rows& keys, const LayerAdapters& adapters = {});

  // The heads' values, from what attention gave [rows, heads, rank]; valid until the next call.
  // [rows, heads, value_dim]
  const Rows& values(const LatentWeights& weights, const Rows& attended, std::int64_t rows,
                     const LayerAdapters& adapters = {});

 private:
  Status allocate_scratch();

  LatentConfig config_;
  std::int64_t heads_;
  std::int64_t rows_max_;
  ThreadPool& threads_;

  Buffer scratch_;
  Rows query_down_;  // [rows_max, query_rank]
  Rows query_;       // [rows_max, heads × query_head_dim]
  Rows values_;      // [rows_max, heads × value_dim]
};

}  // namespace stemma
