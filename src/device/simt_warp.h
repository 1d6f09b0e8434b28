// What the lanes of a warp of an emulated GPU do at once, by whichever of them comes last: matrices
// loaded, and products of them.
//
// Thread:     threads of one team, of which one runs at a time.
// Memory:     two kilobytes of the stack.
// Cost:       of a product 384 numbers widened and 2,048 fused additions.
// Not here:   who waits for whom (simt.h), the functions of kernels (cuda_dialect_simt-inl.h),
//             products of four warps (simt_warpgroup.h).
#pragma once

#include <cstdint>

#include "device/simt.h"

namespace stemma::simt {

// Of a lane, of four 8 × 8 matrices of 16-bit elements: which row it names, and where its words of
// them go (cuda_dialect.h, load_matrices).
struct WarpLoad {
  const void* row = nullptr;  // sixteen shared bytes
  std::uint32_t* words = nullptr;
  bool transposed = false;
};

// Of a lane, of d += a b, as mma.m16n8k16 has them over the lanes (PTX ISA, "Matrix fragments for
// mma.m16n8k16").
struct WarpProduct {
  std::uint32_t a[4] = {};
  std::uint32_t b[2] = {};
  float* d = nullptr;  // four
};

// For code of kernels: the running lane's part. REQUIRES: called from a kernel.
void load_matrices(const WarpLoad& part, const Site& site);
void multiply_matrices(const WarpProduct& part, float (*widen)(std::uint16_t), const Site& site);

}  // namespace stemma::simt
