// CudaLatent: latent attention on a GPU, but for the attention itself (DeepSeek-V2, arXiv
// 2405.04434): the rows of q and of the pool before it, the heads' values after it.
//
// Always in the absorbed form, as on a CPU (model/latent_attention): q · (W_UK c) is (W_UKᵀ q) · c,
// so queries are brought to the latent row's columns, attention runs over latent rows as they lie
// in the pool, and W_UV turns what it gives into values. Products of all heads are one launch. The
// latent row and the compressed q are f32 until they are normalised; what products read is of the
// type of rows (cuda_weights.h).
//
// Thread:     as the stream.                           Invariants: I13 (docs/INVARIANTS.md).
// Memory:     on the device, at creation: scratch for the largest batch.
// Cost:       decode reads the weights once; prefill about two operations a weight and row.
// Not here:   kernels (latent_rows_cuda), products (CudaGemm), attention (CudaAttention), stores of
//             pools of scaled elements (CudaPool).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "cuda/cuda_adapters.h"
#include "cuda/cuda_matrix.h"
#include "cuda/latent_rows_cuda.h"
#include "device/cuda_device.h"
#include "device/cuda_gemm.h"
#include "device/weight_type.h"
#include "model/config.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

// Of one layer: addresses of the device, aligned to 256 bytes. What the model does not have is
// null or empty.
struct CudaLatentWeights {
  CudaMatrix down = {};                // of q if it has a rank, then of the latent row
                                       // [query_rank + rank + rope_dim, hidden]
  const float* down_bias = nullptr;    // [query_rank + rank + rope_dim]
  const float* query_norm = nullptr;   // [query_rank]
  const float* latent_norm = nullptr;  // [rank]
  CudaMatrix query_up = {};            // [query_heads × query_head_dim, query_rank or hidden]
  // W_UKᵀ of each head, then W_UV of each. As all matrices in strips where they are rounded.
  CudaMatrix heads_up = {};  // [query_heads, rank, plain_dim], [.., value_dim, rank]
};

// The file's matrix [heads × (plain_dim + value_dim), rank], row-major, as heads_up has them.
std::vector<std::byte> parted_heads(std::span<const std::byte> matrix, WeightType type,
                                    const LatentConfig& config, ThreadPool& threads);

// Everything but the threads must outlive it.
struct CudaLatentParts {
  const ModelConfig& config;
  WeightType type;  // of the rows that products read
  std::int64_t rows_max = 0;
  CudaDevice& device;
  CudaStream& stream;
  CudaGemm& gemm;  // of `stream`
  CudaAdapters& adapters;
};

// Rows of a step on their way through one layer; addresses of the device.
struct CudaLatentRows {
  const std::byte* normed = nullptr;        // [rows, hidden], of the type of rows
  const float* angles = nullptr;            // [positions, rope_dim / 2, 2]
  const std::int32_t* positions = nullptr;  // [rows]
  TurnTarget target = {};                   // none: the pool's own store takes stored_rows
  const std::int32_t* slots = nullptr;      // [rows]
  std::byte* query = nullptr;               // [rows, query_heads, row_dim], of the type of rows
  std::int64_t rows = 0;
  AdaptedLayer adapted = {};
};

class CudaLatent {
  struct Key {};

 public:
  // kOutOfMemory if the scratch cannot be had. REQUIRES: check_computable(config) is ok.
  static Result<std::unique_ptr<CudaLatent>> create(const CudaLatentParts& parts);
  CudaLatent(Key, const CudaLatentParts& parts);  // for create

  // Queues `rows.query`, the rows that attention compares, and stores those that the pool keeps.
  // REQUIRES: rows.rows <= rows_max.
  Status write_rows(const CudaLatentWeights& weights, const CudaLatentRows& rows);

  // Where write_rows without a target leaves the rows that the pool keeps.
  KvRows stored_rows(std::int64_t rows) const;

  // Where attention puts what it gives.    [rows_max, query_heads, rank]
  std::byte* attended() const noexcept { return attended_.bytes(); }

  // Queues the heads' values, from what attention gave.    values: [rows, query_heads, value_dim]
  Status write_values(const CudaLatentWeights& weights, std::int64_t rows, std::byte* values,
                      const AdaptedLayer& adapted = {});

 private:
  Status allocate(CudaDevice& device);
  Status write_queries(const CudaLatentWeights& weights, const CudaLatentRows& rows);
  Status adapt_down(const CudaLatentRows& rows);
  Status adapt_heads(const CudaLatentRows& rows);
  Status adapt_absorbed(const CudaLatentRows& rows);
  CudaMatrix values_of(const CudaMatrix& heads_up) const;
  Status multiply(CudaGemmParams params, const CudaMatrix& matrix);

  const ModelConfig& config_;
  const LatentConfig& latent_;
  WeightType type_;
  std::int64_t rows_max_;
  std::int64_t down_columns_;
  CudaStream& stream_;
  CudaGemm& gemm_;
  CudaAdapters& adapters_;

  CudaMemory down_;        // f32                 [rows_max, query_rank + rank + rope_dim]
  CudaMemory query_down_;  //                     [rows_max, query_rank]
  CudaMemory heads_;       // before they turn    [rows_max, query_heads, query_head_dim]
  CudaMemory attended_;    //                     [rows_max, query_heads, rank]
};

}  // namespace stemma
