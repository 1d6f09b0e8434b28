// What a team of a product reads: its part of x and of w.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels.
// Memory:     registers.
// Cost:       none.
// Not here:   tiles (gemm_tiles_cuda, wide_tiles_cuda), which rows a thread copies (copied_rows),
//             where results go (the kernels).
#pragma once

#include <cstdint>

#include "device/cuda_dialect.h"
#include "device/gemm_cuda.h"
#include "device/gemm_tiles_cuda.h"

namespace stemma {

// The team's product of those that are computed at once, and rows of its w from column0 on. A
// slice of k is one of them, too; slice_columns 0: they are not slices.
template <typename T, typename W>
STEMMA_ON_DEVICE TileOperands<T, W> operands_of(const CudaGemmParams& p, std::int64_t slice_columns,
                                                std::int64_t column0) {
  const std::int64_t left = p.k - team_z() * slice_columns;
  const bool is_whole = slice_columns == 0 || left < slice_columns;
  return {static_cast<const T*>(p.x) + team_z() * p.x_step,
          static_cast<const W*>(p.w) + team_z() * p.w_step + column0 * p.k,
          p.n - column0,
          is_whole ? left : slice_columns,
          p.x_stride,
          p.k};
}

}  // namespace stemma
