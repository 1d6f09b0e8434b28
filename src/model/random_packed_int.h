// Random matrices as files of packed whole numbers hold them: codes, scales and zero points in
// tensors of their own.
//
// For tests and benchmarks (random_model writes them).
//
// Thread:     pure functions.
// Memory:     the matrix twice more.
// Cost:       a few instructions a value.
// Not here:   reading them (packed_int_matrix).
#pragma once

#include <vector>

#include "device/weight_type.h"
#include "model/packed_int_config.h"
#include "model/tensor_values.h"

namespace stemma {

// How a file stores what lies beside its codes.
struct PackedIntStorage {
  WeightType scale_type = WeightType::kF16;
  bool is_reordered = false;  // neighbouring inputs are of different groups, as a tensor says
};

struct PackedIntTensors {
  std::vector<TensorValues> tensors;  // in file order
  std::vector<float> values;          // that they stand for, before these are rounded
};

// `matrix` rounded to codes from the least to the largest value of each group. REQUIRES: outputs
// and inputs are multiples of 8.
PackedIntTensors to_packed_int(const TensorValues& matrix, const PackedIntConfig& config,
                               const PackedIntStorage& storage);

}  // namespace stemma
