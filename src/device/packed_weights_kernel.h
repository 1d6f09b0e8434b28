// The part of a rounding of weights that one task computes, and the kernel that computes it. Used
// by packed_weights_quantise.cc alone.
//
// Thread:     a kernel is a pure function of its task; tasks write disjoint panels.
// Memory:     a few KiB of stack.
// Cost:       every weight of the panel is read three times.
// Not here:   how a matrix is cut into panels (packed_weights_quantise.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/packed_weights.h"

namespace stemma {

struct QuantiseTask {
  const std::byte* weights = nullptr;  // [rows, k] of `type`, unaligned
  WeightType type = WeightType::kF32;
  WeightFormat format = WeightFormat::kInt8;
  std::int64_t rows = 0;  // at most kPanelColumns
  std::int64_t k = 0;
  std::byte* panel = nullptr;  // zeroed
};

struct QuantiseOutcome {
  RoundingError error;
  bool finite = true;  // otherwise the panel is not written in full
};

using QuantiseKernel = QuantiseOutcome (*)(const QuantiseTask& task);

// The kernel of the chosen SIMD target.
QuantiseKernel quantise_kernel();

}  // namespace stemma
