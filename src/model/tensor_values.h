// TensorValues: a tensor of a model's files and its numbers, as tests and benchmarks write them.
//
// Thread:     a value.
// Memory:     4 bytes a number.
// Cost:       none.
// Not here:   writing (random_model), tensors that are read (safetensors).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/float16.h"
#include "device/weight_type.h"

namespace stemma {

// A tensor that files of a model hold.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
};

// A tensor and its values before rounding, row-major.
struct TensorValues {
  TensorSpec spec;
  std::vector<float> values;
  std::optional<WeightType> type = {};  // where it is not that of the file
  bool is_float8 = false;               // written as e4m3, which the values must be
  // Where these are not numbers of a weight type: of that dtype, as they are.
  std::string dtype = {};
  std::vector<std::byte> bytes = {};
};

// What a file of that type gives back.
inline float stored_value(float value, WeightType type) {
  if (type == WeightType::kF32) return value;
  return type == WeightType::kBf16 ? to_float(to_bfloat16(value)) : to_float(to_float16(value));
}

}  // namespace stemma
