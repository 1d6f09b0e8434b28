// RandomModel: writes tiny models with random weights, whole directories that load like published
// ones.
//
// For tests and benchmarks. The same options give the same bytes everywhere; models of one seed
// that differ in their type are roundings of the same values.
//
// Thread:     pure functions, apart from the files.
// Memory:     the model, once.
// Cost:       a few milliseconds for the tiny ones.
// Not here:   models that say anything (models/).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/weight_type.h"
#include "model/config.h"
#include "model/config_json.h"
#include "model/random_float8.h"
#include "model/random_int8.h"
#include "model/random_packed_int.h"
#include "model/tensor_values.h"
#include "model/tiny_config.h"
#include "model/weights.h"
#include "stemma/result.h"

namespace stemma {

// The type of tensors whose names end so.
struct OtherType {
  std::string ending;
  WeightType type = WeightType::kF32;
};

struct RandomModelOptions {
  ModelConfig config = {};
  WeightType type = WeightType::kF32;
  int shards = 1;  // more than one writes an index too
  std::uint64_t seed = 1;
  std::vector<OtherType> others = {};  // all other tensors have `type`
  // With config.coded: of the matrices of layers, but for routers and those in `others`.
  Float8Storage float8 = {};
  PackedIntStorage packed = {};
  WeightType int8_scale_type = WeightType::kBf16;
};

// The values of tensor `name` before rounding to the file's type, row-major.
std::vector<float> random_tensor(std::string_view name, const std::vector<std::int64_t>& shape,
                                 std::uint64_t seed);

// The same of a tensor of a model that write_random_model writes: norms that add 1 to their weights
// lie around 0.
std::vector<float> random_weights(const ModelConfig& config, const TensorSpec& tensor,
                                  std::uint64_t seed);

// One safetensors file of `tensors`, in this order, those that say no other of `type`.
Status write_safetensors(const std::string& path, std::span<const TensorValues> tensors,
                         WeightType type);

// A file of this text, in the place of what was there.
Status write_file(const std::string& path, std::string_view text);

// Writes config.json, tokenizer.json (bytes as tokens; 256 ends a text) and the safetensors files
// into `directory`, which must exist.
Status write_random_model(const std::string& directory, const RandomModelOptions& options);

}  // namespace stemma
