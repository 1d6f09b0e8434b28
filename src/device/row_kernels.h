// The vector loops of the row operations, as plain pointers; row_ops.cc checks shapes and calls
// them.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       one pass.
// Not here:   shape checks, what the operations mean (row_ops.h).
#pragma once

#include <cstdint>

#include "device/weight_type.h"

namespace stemma {

struct RowKernels {
  void (*rms_norm)(const float* x, const float* weight, float epsilon, float* out, std::int64_t n);
  void (*rotate_halves)(float* x, const float* cosines, const float* sines, std::int64_t half);
  void (*silu_multiply)(const float* gate, const float* up, float* out, std::int64_t n);
  void (*gelu_multiply)(const float* gate, const float* up, float* out, std::int64_t n);
  void (*cap_by_tanh)(float* x, float cap, std::int64_t n);
  void (*add_to)(float* x, const float* y, std::int64_t n);
  void (*convert_to_f32)(const void* values, WeightType type, float* out, std::int64_t n);
  std::int64_t (*argmax)(const float* x, std::int64_t n);
  void (*exp_of_scaled)(const float* x, double zero, double unit, double* out, std::int64_t n);
};

// Those of the chosen SIMD target.
const RowKernels& row_kernels();

}  // namespace stemma
