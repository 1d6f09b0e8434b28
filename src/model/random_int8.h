// Random matrices as files of whole numbers of 8 bits hold them: codes, and scales in a tensor
// beside.
//
// For tests and benchmarks (random_model writes them).
//
// Thread:     pure functions.
// Memory:     the matrix twice more.
// Cost:       a few instructions a value.
// Not here:   reading them (int8_matrix).
#pragma once

#include <vector>

#include "device/weight_type.h"
#include "model/tensor_values.h"

namespace stemma {

struct Int8Tensors {
  std::vector<TensorValues> tensors;  // in file order
  std::vector<float> values;          // that they stand for, before these are rounded
};

// `matrix` rounded to codes from -128 to 127 by a scale for each output.
Int8Tensors to_int8(const TensorValues& matrix, WeightType scale_type);

}  // namespace stemma
