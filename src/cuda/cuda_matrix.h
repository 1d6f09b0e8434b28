// CudaMatrix: a matrix of a model in the memory of a GPU, and how its values lie there.
//
// Most have the type of the rows that products read; one that has another type in the files is f32
// (cuda_weights.h), and its products are wide ones (device/wide_gemm_cuda.h).
//
// Thread:     plain values.
// Memory:     none: it does not own what it names.
// Cost:       none.
// Not here:   how it comes there (cuda_weights), products (device/gemm_cuda, experts_cuda).
#pragma once

#include <cstddef>

#include "device/rounded_strips.h"
#include "device/weight_type.h"

namespace stemma {

struct CudaMatrix {
  const std::byte* values = nullptr;    // aligned to 256 bytes; nullptr: the model has none
  WeightType type = WeightType::kBf16;  // of the values where they are not rounded
  CodeForm codes = CodeForm::kNone;     // where they are, in strips (rounded_strips.h)

  bool empty() const noexcept { return values == nullptr; }
  bool is_f32() const noexcept { return type == WeightType::kF32; }
};

}  // namespace stemma
