// Turning on a GPU: the heads of q, k and v of new rows, from what the projections gave to what
// attention compares and the pool keeps: biases, norms of heads, RoPE, and, where the pool's
// elements are plain, storing k and v in the same pass.
//
// A head is a warp's, so its bits depend on its row alone (I13).
//
// Thread:     as CudaStream.
// Memory:     none; addresses are the device's.
// Cost:       one pass over q, k and v; bound by the launch for few rows.
// Not here:   pools of scaled elements (their own store reads what is left in qkv), the table of
//             angles (rope_table).
#pragma once

#include <cstdint>

#include "device/cuda_device.h"
#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

// A layer of a pool of plain elements. The row of K of slot s, head h begins at element
// (s / page_size) × page_stride + (s % page_size) × token_stride + h × head_dim of `k`; V likewise.
struct TurnTarget {
  void* k = nullptr;  // nullptr: k and v stay in qkv, where another kernel finds them
  void* v = nullptr;
  WeightType type = WeightType::kBf16;
  std::int64_t slots = 0;  // of the pool
  std::int64_t page_size = 0;
  std::int64_t page_stride = 0;  // in elements, even
  std::int64_t token_stride = 0;
};

struct TurnRows {
  // [rows, query_heads + 2 kv_heads, head_dim]: q, k, v. What is not stored otherwise, k and v
  // without a target, is written back.
  float* qkv = nullptr;
  const float* bias = nullptr;              // [query_heads + 2 kv_heads, head_dim]; nullptr: none
  const float* query_norm = nullptr;        // [head_dim]; nullptr: heads are not normalised
  const float* key_norm = nullptr;          // [head_dim]
  const float* angles = nullptr;            // cosine and sine    [positions, head_dim / 2, 2]
  const std::int32_t* positions = nullptr;  // [rows]
  void* query = nullptr;                    // [rows, query_heads, head_dim], of query_type
  WeightType query_type = WeightType::kBf16;
  std::int64_t rows = 0;
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  // a multiple of 8, up to 256
  float epsilon = 0;          // of the norms

  // Where k and v are stored, at `slots`; rows whose slot is not the pool's are not.
  TurnTarget target = {};
  const std::int32_t* slots = nullptr;  // [rows]
};

// kInvalidArgument for a head_dim or strides that it cannot do.
Status turn_rows(CudaStream& stream, const TurnRows& params);

}  // namespace stemma
