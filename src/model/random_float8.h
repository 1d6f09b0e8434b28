// Random matrices as files of 8 bits hold them: e4m3 codes, and scales in a tensor beside.
//
// For tests and benchmarks (random_model writes them).
//
// Thread:     pure functions.
// Memory:     the matrix once more.
// Cost:       a few instructions a value.
// Not here:   reading them (float8_matrix).
#pragma once

#include <string>
#include <vector>

#include "device/weight_type.h"
#include "model/float8_config.h"
#include "model/tensor_values.h"

namespace stemma {

// How a file stores the scales of its codes.
struct Float8Storage {
  WeightType scale_type = WeightType::kF32;
  std::string scale_ending = "_scale_inv";
  bool by_output = false;     // where config.json names no tiles: one for each output, not one
  bool scales_first = false;  // before their codes in the file
};

// `matrix` rounded to codes, whose largest is 448 in each tile, and its scales, in file order.
std::vector<TensorValues> to_float8(const TensorValues& matrix, const Float8Config& config,
                                    const Float8Storage& storage);

}  // namespace stemma
