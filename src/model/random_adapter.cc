#include "model/random_adapter.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"

namespace stemma {

std::vector<TensorValues> random_adapter_tensors(const RandomAdapterOptions& options) {
  std::vector<TensorValues> tensors;
  for (const AdaptableMatrix& matrix : adaptable_matrices(options.config)) {
    const std::string last = matrix.path.substr(matrix.path.rfind('.') + 1);
    const auto& targets = options.targets;
    if (!targets.empty() && std::find(targets.begin(), targets.end(), last) == targets.end()) {
      continue;
    }
    std::int64_t rank = options.rank;
    for (const auto& [name, own] : options.ranks) rank = name == last ? own : rank;
    for (TensorSpec spec : {TensorSpec{adapter_down_name(matrix.path), {rank, matrix.inputs}},
                            TensorSpec{adapter_up_name(matrix.path), {matrix.outputs, rank}}}) {
      std::vector<float> values = random_tensor(spec.name, spec.shape, options.seed);
      tensors.push_back({std::move(spec), std::move(values)});
    }
  }
  return tensors;
}

Status write_random_adapter(const std::string& directory, const RandomAdapterOptions& options) {
  nlohmann::json config = {
      {"peft_type", "LORA"},           {"r", options.rank}, {"lora_alpha", options.alpha},
      {"use_rslora", options.by_root}, {"bias", "none"},    {"target_modules", "all-linear"}};
  if (!options.targets.empty()) config["target_modules"] = options.targets;
  for (const auto& [name, rank] : options.ranks) config["rank_pattern"][name] = rank;
  for (const auto& [name, alpha] : options.alphas) config["alpha_pattern"][name] = alpha;
  const auto path = [&](std::string_view name) { return join_path(directory, std::string(name)); };
  STEMMA_RETURN_IF_ERROR(write_file(path(kAdapterConfigFile), config.dump(1)));
  std::vector<TensorValues> tensors = random_adapter_tensors(options);
  if (options.reversed) std::reverse(tensors.begin(), tensors.end());
  return write_safetensors(path(kAdapterWeightsFile), tensors, options.type);
}

}  // namespace stemma
