// The reference model with the weights of a random model, and how far logits are from its own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "model/random_model.h"
#include "model/weights.h"
#include "numerics/reference_model.h"

namespace stemma {

inline double stored(float value, WeightType type) {
  if (type == WeightType::kF32) {
    return static_cast<double>(value);
  }
  return type == WeightType::kBf16 ? static_cast<double>(to_float(to_bfloat16(value)))
                                   : static_cast<double>(to_float(to_float16(value)));
}

inline ReferenceModel::Row stored(const std::vector<float>& values, WeightType type) {
  ReferenceModel::Row row;
  for (const float value : values) row.push_back(stored(value, type));
  return row;
}

// Those of the random model of this seed, as its files have them.
inline ReferenceModel::Tensors reference_tensors(const ModelConfig& config, WeightType type,
                                                 std::uint64_t seed) {
  ReferenceModel::Tensors tensors;
  for (const TensorSpec& tensor : needed_tensors(config)) {
    tensors[tensor.name] = stored(random_weights(config, tensor, seed), type);
  }
  return tensors;
}

inline ReferenceModel reference_of(const ModelConfig& config, ReferenceModel::Tensors tensors,
                                   WeightType type) {
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(config.hidden)));
  return {config, std::move(tensors), stored(root, type)};
}

// The error of each row relative to the row's largest logit.
inline std::vector<double> relative_errors(const std::vector<ReferenceModel::Row>& expected,
                                           const std::vector<float>& got) {
  std::vector<double> errors;
  std::size_t next = 0;
  for (const ReferenceModel::Row& row : expected) {
    double error = 0;
    double top = 0;
    for (const double value : row) {
      error = std::max(error, std::abs(value - static_cast<double>(got.at(next++))));
      top = std::max(top, std::abs(value));
    }
    errors.push_back(error / top);
  }
  EXPECT_EQ(next, got.size());
  return errors;
}

}  // namespace stemma
