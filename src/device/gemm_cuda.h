// Products on a GPU in a fixed order: y = x wᵀ, each value summed over k from front to back.
//
// A value of y has the same bits whatever m is, wherever its row lies and whichever tile computes
// it (gemm_tiles_cuda.h; I13).
//
// Thread:     as CudaStream.
// Memory:     none.
// Cost:       of few rows the time to read w; of many about two thirds of what mma.sync can do.
// Not here:   biases (whoever reads y adds them), the vendor's products (cuda_gemm.h).
#pragma once

#include <cstdint>

#include "device/cuda_device.h"
#include "device/rounded_strips.h"
#include "device/weight_type.h"
#include "stemma/result.h"

namespace stemma {

// All addresses are the device's; strides and steps are in elements.
struct CudaGemmParams {
  const void* x = nullptr;  // [m, k], of `type`
  const void* w = nullptr;  // [n, k], of `type`, or f32
  void* y = nullptr;        // [m, n], of `type`, or f32
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  WeightType type = WeightType::kBf16;
  bool f32_out = false;
  bool f32_w = false;                // w is f32 where `type` is one of 16 bits (wide_gemm_cuda.h)
  CodeForm codes = CodeForm::kNone;  // of w in strips (rounded_strips.h); kNone: it is of `type`

  // From one row of x and of y to the next; 0: rows are dense. Rows of w are.
  std::int64_t x_stride = 0;
  std::int64_t y_stride = 0;
  // Products of these extents that are computed at once, up to 65,535, and from one's x, w and y to
  // the next one's. Strips of one lie behind those of the one before: w_step is not read.
  std::int64_t products = 1;
  std::int64_t x_step = 0;
  std::int64_t w_step = 0;
  std::int64_t y_step = 0;
};

// The same with strides where there were zeros.
CudaGemmParams with_strides(const CudaGemmParams& params);

// kInvalidArgument unless the extents are positive (m may be 0), rows do not overlap, and, of
// 16-bit types, k is a multiple of 8 and every row of x and w is aligned to 16 bytes.
Status check_gemm(const CudaGemmParams& params);

// Queues the product; that of rounded weights is rounded_gemm's, one of w in f32 and x of 16 bits
// wide_gemm's. Errors are those of check_gemm and launch. REQUIRES: no kernel that may still be on
// its way in the stream writes w, which is read while it ends.
Status ordered_gemm(CudaStream& stream, const CudaGemmParams& params);

// Queues the product in slices of k, for one whose n and m are too small for all multiprocessors: y
// is [slices, m, n], of which slice i sums over slice_columns columns from i × slice_columns on;
// whoever reads them adds them in that order. kInvalidArgument also unless slice_columns is a
// multiple of 8, y is f32, w is not rounded and there is one product.
Status ordered_gemm_slices(CudaStream& stream, const CudaGemmParams& params,
                           std::int64_t slice_columns);

}  // namespace stemma
