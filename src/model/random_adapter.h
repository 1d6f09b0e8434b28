// RandomAdapter: writes adapters with random weights, whole directories that load like published
// ones.
//
// For tests and benchmarks. The same options give the same bytes everywhere; adapters of one seed
// that differ in their type are roundings of the same values. B is random too, where one that is to
// be trained would begin with zeros: such an adapter would change nothing.
//
// Thread:     pure functions, apart from the files.
// Memory:     the adapter, once.
// Cost:       a few milliseconds for the tiny ones.
// Not here:   the model (random_model).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "device/weight_type.h"
#include "model/adapter.h"
#include "model/config.h"
#include "model/random_model.h"
#include "stemma/result.h"

namespace stemma {

struct RandomAdapterOptions {
  ModelConfig config = {};  // of the model that it changes
  // The last parts of the names of what it changes; empty: all that it can.
  std::vector<std::string> targets = {};
  std::int64_t rank = 4;
  double alpha = 4;
  bool by_root = false;  // use_rslora
  // Other ranks and alphas of matrices whose names end so: rank_pattern and alpha_pattern.
  std::vector<std::pair<std::string, std::int64_t>> ranks = {};
  std::vector<std::pair<std::string, double>> alphas = {};
  WeightType type = WeightType::kF32;
  bool reversed = false;  // the file has its tensors the other way round
  std::uint64_t seed = 1;
};

// A and B of all that it changes, in the order of the computation.
std::vector<TensorValues> random_adapter_tensors(const RandomAdapterOptions& options);

// Writes adapter_config.json and adapter_model.safetensors into `directory`, which must exist.
Status write_random_adapter(const std::string& directory, const RandomAdapterOptions& options);

}  // namespace stemma
