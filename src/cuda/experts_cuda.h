// Experts on a GPU: one product over the experts of a mixture, each with the rows that go to it,
// and what their words add up to.
//
// A value has the bits that ordered_gemm (device/gemm_cuda.h) gives it, of rounded and of wide
// weights too: they depend on its row and its expert alone, not on who else goes there (I13). So it
// is with every CudaGemm beside it: the vendor's library has no such product that knows its extents
// on the device only.
//
// Thread:     as CudaStream.
// Memory:     none; addresses are the device's.
// Cost:       of few visits of each expert the time to read the matrices of those experts that have
//             any, once; of many about two thirds of what mma.sync can do. Tiles without visits
//             cost the launch of a team that ends at once.
// Not here:   who goes where (expert_choice_cuda), what is between the products (rows_cuda).
#pragma once

#include <cstdint>

#include "cuda/expert_choice_cuda.h"
#include "device/cuda_device.h"
#include "device/rounded_strips.h"
#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

// y[y_rows[v]] = x[x_rows[v]] w[expert of v]ᵀ for every sorted visit v.
struct ExpertProduct {
  const void* x = nullptr;               // [.., k], of `type`
  const void* w = nullptr;               // [experts, n, k], of `type`, or f32
  void* y = nullptr;                     // [.., n], of `type`, or f32
  const std::int32_t* x_rows = nullptr;  // [visits]; nullptr: v itself
  const std::int32_t* y_rows = nullptr;  // [visits]; nullptr: v itself
  const ExpertTile* tiles = nullptr;     // [tiles_count], of at most tile_visits visits
  std::int64_t tiles_count = 0;
  std::int64_t tile_visits = 0;  // as expert_tile_visits says
  std::int64_t n = 0;
  std::int64_t k = 0;  // a multiple of 8
  WeightType type = WeightType::kBf16;
  bool f32_out = false;
  bool f32_w = false;  // w is f32 where `type` is one of 16 bits (device/wide_tiles_cuda.h)
  // Of w in strips (device/rounded_strips.h): n is a multiple of 8 where there are some.
  CodeForm codes = CodeForm::kNone;
};
// kInvalidArgument for extents or a height of tiles that there is not; launch's errors.
Status multiply_experts(CudaStream& stream, const ExpertProduct& params);

// The height of tiles for so many visits of so many experts, on a device of which a team can have
// so much shared memory (CudaTraits).
std::int64_t expert_tile_visits(std::int64_t visits, std::int64_t experts, WeightType type,
                                std::int64_t team_shared_bytes_max);

// out[row] = before[row] + Σ weights[visit] × said[visit] over the row's visits, in their order.
struct AddExperts {
  const float* said = nullptr;     // [rows, row_experts, hidden]
  const float* weights = nullptr;  // [rows, row_experts]
  const float* before = nullptr;   // [rows, hidden]; nullptr: zeros. May be `out`
  float* out = nullptr;            // [rows, hidden]
  std::int64_t rows = 0;
  std::int64_t row_experts = 0;
  std::int64_t hidden = 0;         // a multiple of 8
  std::int64_t before_stride = 0;  // values from one row to the next
};
Status add_experts(CudaStream& stream, const AddExperts& params);

}  // namespace stemma
