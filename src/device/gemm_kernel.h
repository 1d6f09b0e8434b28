// The part of a GEMM that one task computes, and the kernel that computes it. Used by gemm.cc
// alone.
//
// Thread:     a kernel is a pure function of its task; tasks write disjoint parts of C.
// Memory:     about 115 KiB of stack.
// Cost:       2 · rows · columns · k operations.
// Not here:   how a product is cut into tasks (gemm.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/weight_type.h"

namespace stemma {

// A task has at most this many rows; a multiple of every target's tile.
inline constexpr std::int64_t kGemmTaskRowsMax = 192;

struct GemmTask {
  const float* a = nullptr;  // [rows, k], rows <= kGemmTaskRowsMax, a_stride values apart
  std::int64_t a_stride = 0;
  std::int64_t rows = 0;
  const std::byte* panels = nullptr;  // [ceil(columns / kPanelColumns)], as PackedWeights has them
  WeightFormat format = WeightFormat::kF32;
  std::int64_t k = 0;
  std::int64_t columns = 0;
  const float* bias_or_null = nullptr;  // [columns]
  float* c = nullptr;                   // [rows, columns], c_stride values apart
  std::int64_t c_stride = 0;
};

using GemmKernel = void (*)(const GemmTask& task);

// The kernels of the chosen SIMD target: for weights as stored, and for rounded ones.
GemmKernel gemm_kernel();
GemmKernel quantised_gemm_kernel();

}  // namespace stemma
