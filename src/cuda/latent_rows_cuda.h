// Rows of latent attention on a GPU: what lies between its products. From the products down to the
// compressed q and the latent row: biases, norms, RoPE of the part that turns, and, where the
// pool's elements are plain, the store; and the turned part of each head's q.
//
// Neighbours (x[2 i], x[2 i + 1]) are turned together, as this family stores them. A row's bits
// depend on that row alone: sums run over a team in an order that the widths decide (I13).
//
// Thread:     as CudaStream.
// Memory:     none; addresses are the device's.
// Cost:       one pass over what is named; bound by the launch for few rows.
// Not here:   products (device/cuda_gemm), attention, pools of scaled elements (their own store
//             reads what is left in `down`), who calls these (cuda_latent).
#pragma once

#include <cstdint>

#include "cuda/turn_cuda.h"
#include "device/cuda_device.h"
#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

// Of row i: query[i] = x / rms(x) × query_norm, of the first query_rank values x of down[i]; and
// the row that the pool keeps: the next `rank` values normalised likewise, and the rope_dim values
// behind them turned to positions[i].
struct LatentRows {
  // [rows, query_rank + rank + rope_dim]. Without a target, the pool's row is written back.
  float* down = nullptr;
  const float* bias = nullptr;              // [query_rank + rank + rope_dim]; nullptr: none
  const float* query_norm = nullptr;        // [query_rank]
  const float* latent_norm = nullptr;       // [rank]
  const float* angles = nullptr;            // cosine and sine    [positions, rope_dim / 2, 2]
  const std::int32_t* positions = nullptr;  // [rows]
  void* query = nullptr;                    // [rows, query_rank], of query_type
  WeightType query_type = WeightType::kBf16;
  std::int64_t rows = 0;
  std::int64_t query_rank = 0;  // a multiple of 8; 0: q is made otherwise
  std::int64_t rank = 0;        // a multiple of 8
  std::int64_t rope_dim = 0;    // a multiple of 8
  float epsilon = 0;            // of the norms

  // Where the rows are stored, at `slots`: its `v` is not read, strides are multiples of 8. Rows
  // whose slot is not the pool's are not stored.
  TurnTarget target = {};
  const std::int32_t* slots = nullptr;  // [rows]
};

// kInvalidArgument for extents or strides that it cannot do.
Status latent_rows(CudaStream& stream, const LatentRows& params);

// query[.., rank + i] = turned heads[.., plain_dim + i], for i below rope_dim.
struct LatentQueries {
  const void* heads = nullptr;              // [rows, query_heads, plain_dim + rope_dim], of `type`
  const float* angles = nullptr;            // as above
  const std::int32_t* positions = nullptr;  // [rows]
  void* query = nullptr;                    // [rows, query_heads, rank + rope_dim], of `type`
  std::int64_t rows = 0;
  std::int64_t query_heads = 0;
  std::int64_t plain_dim = 0;  // a multiple of 8, as the others
  std::int64_t rope_dim = 0;
  std::int64_t rank = 0;
  WeightType type = WeightType::kBf16;
};
Status turn_latent_queries(CudaStream& stream, const LatentQueries& params);

}  // namespace stemma
