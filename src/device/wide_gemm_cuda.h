// Wide products on a GPU, in a fixed order: y = x wᵀ, w being f32 and x of 16 bits: what a model
// has in another type than the rest, as a router in f32.
//
// A value of y has the bits of ordered_gemm's f32 product of the rows widened before, rounded if y
// is of x's type, whatever m is, wherever its row lies and whichever tile computes it (I13). The
// vendor's library has no such product: this one serves every CudaGemm.
//
// Thread:     as CudaStream.
// Memory:     none.
// Cost:       of few rows the time to read w, of many that of f32 units, which do a fifteenth of
//             what tensor cores do: by counting (docs/GPU.md).
// Not here:   checks and slices (gemm_cuda), over the experts of a mixture (cuda/).
#pragma once

#include <cstdint>

#include "device/cuda_device.h"
#include "device/gemm_cuda.h"
#include "stemma/result.h"

namespace stemma {

// Whether the product is a wide one.
constexpr bool is_wide(const CudaGemmParams& params) {
  return params.f32_w && params.type != WeightType::kF32 && params.codes == CodeForm::kNone;
}

// Queues the product, or its slices of so many columns, 0: none. Errors are launch's.
// REQUIRES: is_wide; the strides are set and check_gemm is ok.
Status wide_gemm(CudaStream& stream, const CudaGemmParams& params, std::int64_t slice_columns);

}  // namespace stemma
