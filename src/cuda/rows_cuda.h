// Rows on a GPU: everything a transformer does to one token's row besides products, attention and
// storing keys and values.
//
// The residual stream is f32; what products read is of the type of rows. A row's bits depend on
// that row alone: sums run over a team or a warp in an order that the row's width decides (I13).
//
// Thread:     as CudaStream.
// Memory:     none; addresses are the device's.
// Cost:       one pass over what is named, bound by bytes for many rows, by the launch for few.
// Not here:   products (device/cuda_gemm), q, k and v (turn_cuda), where the rows lie
//             (cuda_transformer).
#pragma once

#include <cstdint>

#include "device/cuda_device.h"
#include "device/rounded_strips.h"
#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

// residual[row] = scale × embeddings[tokens[row]]. A token -(i + 1) is sampled[i].
struct EmbedRows {
  const std::int32_t* tokens = nullptr;   // [rows]
  const std::int32_t* sampled = nullptr;  // of the step before; nullptr: no token is below 0
  const void* embeddings = nullptr;       // [vocab_tokens, hidden], of `type`, or in strips
  float* residual = nullptr;              // [rows, hidden]
  std::int64_t rows = 0;
  std::int64_t hidden = 0;  // a multiple of 8
  std::int64_t vocab_tokens = 0;
  float scale = 1;
  WeightType type = WeightType::kBf16;
  // Of embeddings in strips (device/rounded_strips.h): kInt8, or none.
  CodeForm codes = CodeForm::kNone;
};
Status embed_rows(CudaStream& stream, const EmbedRows& params);

// x = residual[from] + normed(branch[from] + bias); out[row] = x / rms(x) × norm, and, if told, x
// becomes residual[from]; `from` is row, or chosen[row]. Vectors are aligned to 16 bytes.
struct NormRows {
  float* residual = nullptr;             // [.., hidden]
  const float* branch = nullptr;         // [.., hidden]; nullptr: nothing is added
  const float* bias = nullptr;           // [hidden]; nullptr: none
  const float* branch_norm = nullptr;    // [hidden]; nullptr: the branch is added as it is
  const float* norm = nullptr;           // [hidden]
  const std::int32_t* chosen = nullptr;  // [rows]; nullptr: all, in order
  void* out = nullptr;                   // [rows, hidden], of `type`
  std::int64_t rows = 0;
  std::int64_t hidden = 0;  // a multiple of 8, up to 32,768
  float epsilon = 0;
  bool keep = true;  // x, in residual. REQUIRES: chosen rows differ then
  WeightType type = WeightType::kBf16;
};
Status norm_rows(CudaStream& stream, const NormRows& params);

// broken[row]: whether a value of residual[row] or branch[row] is infinite or no number, 1 or 0.
struct FindBrokenRows {
  const float* residual = nullptr;  // [rows, hidden]
  const float* branch = nullptr;    // [rows, hidden]
  std::int32_t* broken = nullptr;   // [rows]
  std::int64_t rows = 0;
  std::int64_t hidden = 0;  // a multiple of 8
};
Status find_broken_rows(CudaStream& stream, const FindBrokenRows& params);

// out[row] = activation(gate + gate_bias) × (up + up_bias).
struct GateRows {
  const void* gate_up = nullptr;  // [rows, 2, width], of `type`
  const float* bias = nullptr;    // [2, width]; nullptr: none
  void* out = nullptr;            // [rows, width], of `type`
  std::int64_t rows = 0;
  std::int64_t width = 0;  // a multiple of 8
  bool gelu = false;       // else silu
  WeightType type = WeightType::kBf16;
};
Status gate_rows(CudaStream& stream, const GateRows& params);

// tokens[row]: the place of the row's largest logit, the first one if there are several; -1 if none
// is a number above minus infinity. Before that logits become cap × tanh(logit / cap) if cap > 0.
struct TopRows {
  float* logits = nullptr;         // [rows, columns]
  std::int32_t* tokens = nullptr;  // [rows]
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float cap = 0;
};
Status top_rows(CudaStream& stream, const TopRows& params);

}  // namespace stemma
