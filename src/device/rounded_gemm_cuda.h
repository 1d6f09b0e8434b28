// Products with rounded weights on a GPU, in a fixed order: y = x wᵀ, w being codes and scales in
// strips (rounded_strips.h).
//
// The same codes and scales as on a CPU meet other activations: there whole numbers of 16 bits,
// here x as it is, of 16 bits that are 8 or 11 digits, or f32. Its products with codes are exact,
// and their sums f32; what is rounded, and when, is in rounded_tiles_cuda.h. A value of y has the
// same bits whatever m is, wherever its row lies and whichever tile computes it (I13). The vendor's
// library has no such product: this one serves every CudaGemm.
//
// Thread:     as CudaStream.
// Memory:     none.
// Cost:       of few rows the time to read codes and scales; of many that of ordered_gemm.
// Not here:   how weights are rounded (packed_weights), over the experts of a mixture (cuda/).
#pragma once

#include "device/cuda_device.h"
#include "device/gemm_cuda.h"
#include "stemma/result.h"

namespace stemma {

// Queues the product, of w with params.codes. Errors are those of check_gemm and launch.
Status rounded_gemm(CudaStream& stream, const CudaGemmParams& params);

}  // namespace stemma
