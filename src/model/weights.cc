#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/float16.h"

namespace stemma {
namespace {

using Shape = std::vector<std::int64_t>;

// A tensor that the model needs, and where it goes.
struct Wanted {
  std::string name;
  Shape shape;
  std::variant<PackedWeights*, std::vector<float>*> target;
};

void want_layer(const ModelConfig& config, const std::string& prefix, LayerWeights& layer,
                std::vector<Wanted>& wanted) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t query = config.query_columns();
  const std::int64_t kv = config.kv_columns();
  const std::int64_t inner = config.intermediate;
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  wanted.push_back({prefix + "input_layernorm.weight", {hidden}, &layer.attention_norm});
  wanted.push_back({attention + "q_proj.weight", {query, hidden}, &layer.query});
  wanted.push_back({attention + "k_proj.weight", {kv, hidden}, &layer.key});
  wanted.push_back({attention + "v_proj.weight", {kv, hidden}, &layer.value});
  wanted.push_back({attention + "o_proj.weight", {hidden, query}, &layer.output});
  wanted.push_back({prefix + "post_attention_layernorm.weight", {hidden}, &layer.mlp_norm});
  wanted.push_back({mlp + "gate_proj.weight", {inner, hidden}, &layer.gate});
  wanted.push_back({mlp + "up_proj.weight", {inner, hidden}, &layer.up});
  wanted.push_back({mlp + "down_proj.weight", {hidden, inner}, &layer.down});
  if (config.qkv_bias) {
    wanted.push_back({attention + "q_proj.bias", {query}, &layer.query_bias});
    wanted.push_back({attention + "k_proj.bias", {kv}, &layer.key_bias});
    wanted.push_back({attention + "v_proj.bias", {kv}, &layer.value_bias});
  }
  if (config.output_bias) {
    wanted.push_back({attention + "o_proj.bias", {hidden}, &layer.output_bias});
  }
  if (config.head_norms) {
    wanted.push_back({attention + "q_norm.weight", {config.head_dim}, &layer.query_norm});
    wanted.push_back({attention + "k_norm.weight", {config.head_dim}, &layer.key_norm});
  }
  if (config.mlp_bias) {
    wanted.push_back({mlp + "gate_proj.bias", {inner}, &layer.gate_bias});
    wanted.push_back({mlp + "up_proj.bias", {inner}, &layer.up_bias});
    wanted.push_back({mlp + "down_proj.bias", {hidden}, &layer.down_bias});
  }
}

// REQUIRES: weights.layers has its final size: the targets point into it.
std::vector<Wanted> want_all(const ModelConfig& config, ModelWeights& weights) {
  const Shape matrix = {config.vocab_tokens, config.hidden};
  std::vector<Wanted> wanted;
  wanted.push_back({"model.embed_tokens.weight", matrix, &weights.embeddings});
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    want_layer(config, "model.layers." + std::to_string(i) + ".", weights.layers[i], wanted);
  }
  wanted.push_back({"model.norm.weight", {config.hidden}, &weights.final_norm});
  if (!config.tied_embeddings) {
    wanted.push_back({"lm_head.weight", matrix, &weights.separate_head});
  }
  return wanted;
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + "]";
}

Status check_wanted(const Wanted& wanted, const ModelConfig& config, const WeightFiles& files) {
  const TensorEntry* tensor = files.find_or_null(wanted.name);
  if (tensor == nullptr) {
    return Error{ErrorCode::kNotFound, files.directory() + ": tensor '" + wanted.name + "' " +
                                           shape_text(wanted.shape) + " of this " +
                                           std::string(model_family_name(config.family)) +
                                           " model is missing"};
  }
  if (tensor->shape != wanted.shape) {
    return Error{ErrorCode::kInvalidArgument, files.path_of(*tensor) + ": tensor '" + wanted.name +
                                                  "': expected shape " + shape_text(wanted.shape) +
                                                  ", found " + shape_text(tensor->shape)};
  }
  if (!tensor->weight_type().has_value()) {
    return Error{ErrorCode::kUnsupported, files.path_of(*tensor) + ": tensor '" + wanted.name +
                                              "': dtype " + tensor->dtype +
                                              " is not supported; known are F32 F16 BF16"};
  }
  return {};
}

// Exact: every weight type converts to f32 without rounding.
std::vector<float> to_floats(WeightType type, std::span<const std::byte> bytes) {
  const std::size_t element_bytes = weight_type_bytes(type);
  std::vector<float> values(bytes.size() / element_bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::byte* element = bytes.data() + i * element_bytes;
    std::uint16_t half = 0;
    if (type == WeightType::kF32) {
      std::memcpy(&values[i], element, sizeof(float));
      continue;
    }
    std::memcpy(&half, element, sizeof(half));
    values[i] = type == WeightType::kBf16 ? to_float(BFloat16{half}) : to_float(Float16{half});
  }
  return values;
}

Status place(const Wanted& wanted, const TensorEntry& tensor, std::span<const std::byte> bytes,
             ThreadPool& pool) {
  const WeightType type = *tensor.weight_type();
  if (std::holds_alternative<std::vector<float>*>(wanted.target)) {
    *std::get<std::vector<float>*>(wanted.target) = to_floats(type, bytes);
    return {};
  }
  STEMMA_ASSIGN_OR_RETURN(
      *std::get<PackedWeights*>(wanted.target),
      PackedWeights::pack(bytes.data(), type, tensor.shape[0], tensor.shape[1], pool));
  return {};
}

void add_format(const PackedWeights& matrix, std::string& formats) {
  const std::string_view name = weight_type_name(matrix.type());
  if (matrix.n() == 0 || formats == name || formats.starts_with(std::string(name) + "+") ||
      formats.find("+" + std::string(name)) != std::string::npos) {
    return;
  }
  formats.append(formats.empty() ? "" : "+").append(name);
}

}  // namespace

std::string ModelWeights::compute_format() const {
  std::string formats;
  add_format(embeddings, formats);
  for (const LayerWeights& layer : layers) {
    for (const PackedWeights* matrix : {&layer.query, &layer.key, &layer.value, &layer.output,
                                        &layer.gate, &layer.up, &layer.down}) {
      add_format(*matrix, formats);
    }
  }
  add_format(separate_head, formats);
  return formats;
}

std::vector<TensorSpec> needed_tensors(const ModelConfig& config) {
  ModelWeights unused;
  unused.layers.resize(static_cast<std::size_t>(config.layers));
  std::vector<TensorSpec> needed;
  for (Wanted& wanted : want_all(config, unused)) {
    needed.push_back({std::move(wanted.name), std::move(wanted.shape)});
  }
  return needed;
}

Result<ModelWeights> load_weights(const ModelConfig& config, WeightFiles& files, ThreadPool& pool,
                                  const ProgressCallback& progress) {
  ModelWeights weights;
  weights.layers.resize(static_cast<std::size_t>(config.layers));
  std::unordered_map<std::string, Wanted> by_name;
  for (Wanted& wanted : want_all(config, weights)) {
    STEMMA_RETURN_IF_ERROR(check_wanted(wanted, config, files));
    std::string name = wanted.name;
    by_name.emplace(std::move(name), std::move(wanted));
  }
  LoadProgress loaded{0, files.total_bytes()};
  const auto visit = [&](const TensorEntry& tensor, std::span<const std::byte> bytes) -> Status {
    const auto wanted = by_name.find(tensor.name);
    if (wanted != by_name.end()) {
      STEMMA_RETURN_IF_ERROR(place(wanted->second, tensor, bytes, pool));
    }
    loaded.done_bytes += tensor.size_bytes;
    if (progress) {
      progress(loaded);
    }
    return {};
  };
  STEMMA_ASSIGN_OR_RETURN(weights.digest, files.read_all(visit));
  return weights;
}

}  // namespace stemma
