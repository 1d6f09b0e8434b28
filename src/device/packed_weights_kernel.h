// The part of packing weights, as stored or rounded, that one task does, and the kernels that do
// it. Used by packed_weights.cc and packed_weights_quantise.cc alone.
//
// Thread:     a kernel is a pure function of its task; tasks write disjoint panels.
// Memory:     a few KiB of stack.
// Cost:       every weight of the panel is read once to pack it, three times to round it.
// Not here:   how a matrix is cut into panels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/packed_weights.h"

namespace stemma {

// The rows [rows, k] of `weights`, of words of 2 or 4 bytes, to a panel [k, kPanelColumns].
struct PackTask {
  const std::byte* weights = nullptr;  // unaligned
  std::size_t word_bytes = 0;
  std::int64_t rows = 0;  // at most kPanelColumns
  std::int64_t k = 0;
  std::byte* panel = nullptr;  // zeroed: padding is not written
};

using PackKernel = void (*)(const PackTask& task);

struct QuantiseTask {
  const std::byte* weights = nullptr;  // [rows, k] of `type`, unaligned
  WeightType type = WeightType::kF32;
  WeightFormat format = WeightFormat::kInt8;
  std::int64_t rows = 0;  // at most kPanelColumns
  std::int64_t k = 0;
  const BFloat16* scales_or_null = nullptr;      // [rows, groups], of codes that are kept
  const std::int8_t* shifts_or_null = nullptr;   // the same
  const float* output_scales_or_null = nullptr;  // [rows], of int8 codes that are kept
  std::byte* panel = nullptr;                    // zeroed
};

struct QuantiseOutcome {
  RoundingError error;
  bool finite = true;  // otherwise the panel is not written in full
};

using QuantiseKernel = QuantiseOutcome (*)(const QuantiseTask& task);

// The kernels of the chosen SIMD target.
PackKernel pack_kernel();
QuantiseKernel quantise_kernel();

}  // namespace stemma
