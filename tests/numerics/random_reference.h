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

// Rounds what is rounded when such a model is loaded, but for the heads of latent rows.
inline void round_tensors(const ModelConfig& config, WeightRounding rounding,
                          ReferenceModel::Tensors& tensors) {
  ThreadPool pool(1);
  for (const TensorSpec& tensor : needed_tensors(config)) {
    if (tensor.shape.size() != 2) continue;
    const bool embedding =
        tensor.name == "model.embed_tokens.weight" || tensor.name == "lm_head.weight";
    const bool router = tensor.name.ends_with("mlp.gate.weight");
    const MatrixUse use = router      ? MatrixUse::kRouter
                          : embedding ? MatrixUse::kEmbedding
                                      : MatrixUse::kProjection;
    const auto format = rounded_format(rounding, use, std::nullopt);
    if (!format.has_value()) continue;
    ReferenceModel::Row& values = tensors[tensor.name];
    const std::vector<float> stored(values.begin(), values.end());
    RoundingError error;
    const auto rounded = PackedWeights::quantise(
        {stored.data(), WeightType::kF32, tensor.shape[0], tensor.shape[1]}, *format, pool, error);
    ASSERT_TRUE(rounded.ok());
    std::vector<float> row(static_cast<std::size_t>(rounded->k()));
    for (std::int64_t i = 0; i < rounded->n(); ++i) {
      rounded->unpack_row(i, row);
      std::copy(row.begin(), row.end(), values.begin() + i * rounded->k());
    }
  }
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
