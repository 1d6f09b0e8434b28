#include "model/weights.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/json_text.h"
#include "stemma/log.h"

namespace stemma {
namespace {

constexpr std::string_view kEmbeddingsName = "model.embed_tokens.weight";

using Shape = std::vector<std::int64_t>;

// The tensor of W_UK and W_UV, which is cut into heads.
struct HeadsTarget {
  LatentWeights* weights = nullptr;
  LatentConfig config;
};

// A tensor that the model needs, and where it goes.
struct Wanted {
  std::string name;
  Shape shape;
  std::variant<PackedWeights*, std::vector<float>*, HeadsTarget> target;
  MatrixUse use = MatrixUse::kProjection;  // of a matrix
  bool is_cut = false;                     // a rank of several holds its shard of the outputs
};

Wanted cut(Wanted wanted) {
  wanted.is_cut = true;
  return wanted;
}

void want_mlp(const std::string& prefix, std::int64_t hidden, std::int64_t width, MlpWeights& mlp,
              std::vector<Wanted>& wanted) {
  wanted.push_back(cut({prefix + "gate_proj.weight", {width, hidden}, &mlp.gate}));
  wanted.push_back(cut({prefix + "up_proj.weight", {width, hidden}, &mlp.up}));
  wanted.push_back(cut({prefix + "down_proj.weight", {hidden, width}, &mlp.down}));
}

void want_mixture(const ModelConfig& config, const std::string& prefix, MixtureWeights& mixture,
                  std::vector<Wanted>& wanted) {
  const MixtureConfig& shape = config.mixture;
  wanted.push_back({prefix + "gate.weight",
                    {shape.experts, config.hidden},
                    &mixture.router,
                    MatrixUse::kRouter});
  if (shape.choice == MixtureConfig::Choice::kCorrectedGroups) {
    wanted.push_back(
        {prefix + "gate.e_score_correction_bias", {shape.experts}, &mixture.correction});
  }
  mixture.experts.resize(static_cast<std::size_t>(shape.experts));
  for (std::size_t i = 0; i < mixture.experts.size(); ++i) {
    want_mlp(prefix + "experts." + std::to_string(i) + ".", config.hidden, shape.width,
             mixture.experts[i], wanted);
  }
  if (shape.shared_width > 0) {
    want_mlp(prefix + "shared_experts.", config.hidden, shape.shared_width, mixture.shared, wanted);
  }
}

void want_dense_mlp(const ModelConfig& config, const std::string& prefix, MlpWeights& mlp,
                    std::vector<Wanted>& wanted) {
  want_mlp(prefix, config.hidden, config.intermediate, mlp, wanted);
  if (config.mlp_bias) {
    wanted.push_back(cut({prefix + "gate_proj.bias", {config.intermediate}, &mlp.gate_bias}));
    wanted.push_back(cut({prefix + "up_proj.bias", {config.intermediate}, &mlp.up_bias}));
    wanted.push_back(cut({prefix + "down_proj.bias", {config.hidden}, &mlp.down_bias}));
  }
}

void want_attention(const ModelConfig& config, const std::string& attention, LayerWeights& layer,
                    std::vector<Wanted>& wanted) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t query = config.query_columns();
  const std::int64_t kv = config.kv_columns();
  wanted.push_back(cut({attention + "q_proj.weight", {query, hidden}, &layer.query}));
  wanted.push_back(cut({attention + "k_proj.weight", {kv, hidden}, &layer.key}));
  wanted.push_back(cut({attention + "v_proj.weight", {kv, hidden}, &layer.value}));
  wanted.push_back(cut({attention + "o_proj.weight", {hidden, query}, &layer.output}));
  if (config.qkv_bias) {
    wanted.push_back(cut({attention + "q_proj.bias", {query}, &layer.query_bias}));
    wanted.push_back(cut({attention + "k_proj.bias", {kv}, &layer.key_bias}));
    wanted.push_back(cut({attention + "v_proj.bias", {kv}, &layer.value_bias}));
  }
  if (config.output_bias) {
    wanted.push_back(cut({attention + "o_proj.bias", {hidden}, &layer.output_bias}));
  }
  if (config.head_norms) {
    wanted.push_back({attention + "q_norm.weight", {config.head_dim}, &layer.query_norm});
    wanted.push_back({attention + "k_norm.weight", {config.head_dim}, &layer.key_norm});
  }
}

void want_latent_attention(const ModelConfig& config, const std::string& attention,
                           LayerWeights& layer, std::vector<Wanted>& wanted) {
  const LatentConfig& shape = config.latent;
  LatentWeights& latent = layer.latent;
  const std::int64_t hidden = config.hidden;
  const std::int64_t query = config.query_heads * shape.query_head_dim();
  if (shape.query_rank == 0) {
    wanted.push_back(cut({attention + "q_proj.weight", {query, hidden}, &latent.query_up}));
  } else {
    wanted.push_back(
        {attention + "q_a_proj.weight", {shape.query_rank, hidden}, &latent.query_down});
    wanted.push_back({attention + "q_a_layernorm.weight", {shape.query_rank}, &latent.query_norm});
    wanted.push_back(
        cut({attention + "q_b_proj.weight", {query, shape.query_rank}, &latent.query_up}));
  }
  wanted.push_back(
      {attention + "kv_a_proj_with_mqa.weight", {shape.row_dim(), hidden}, &latent.latent_down});
  wanted.push_back({attention + "kv_a_layernorm.weight", {shape.rank}, &latent.latent_norm});
  wanted.push_back(cut({attention + "kv_b_proj.weight",
                        {config.query_heads * (shape.plain_dim + shape.value_dim), shape.rank},
                        HeadsTarget{&latent, shape},
                        MatrixUse::kLatentHeads}));
  wanted.push_back(
      cut({attention + "o_proj.weight", {hidden, config.value_columns()}, &layer.output}));
  if (config.qkv_bias) {
    if (shape.query_rank > 0) {
      wanted.push_back({attention + "q_a_proj.bias", {shape.query_rank}, &latent.query_down_bias});
    }
    wanted.push_back(
        {attention + "kv_a_proj_with_mqa.bias", {shape.row_dim()}, &latent.latent_down_bias});
  }
  if (config.output_bias) {
    wanted.push_back(cut({attention + "o_proj.bias", {hidden}, &layer.output_bias}));
  }
}

void want_layer(const ModelConfig& config, std::int64_t index, LayerWeights& layer,
                std::vector<Wanted>& wanted) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  wanted.push_back({prefix + "input_layernorm.weight", {config.hidden}, &layer.attention_norm});
  if (config.latent.rank > 0) {
    want_latent_attention(config, prefix + "self_attn.", layer, wanted);
  } else {
    want_attention(config, prefix + "self_attn.", layer, wanted);
  }
  const Shape norm = {config.hidden};
  const std::string after_attention = prefix + "post_attention_layernorm.weight";
  if (config.branch_norms) {
    wanted.push_back({after_attention, norm, &layer.attention_branch_norm});
    wanted.push_back({prefix + "pre_feedforward_layernorm.weight", norm, &layer.mlp_norm});
    wanted.push_back({prefix + "post_feedforward_layernorm.weight", norm, &layer.mlp_branch_norm});
  } else {
    wanted.push_back({after_attention, norm, &layer.mlp_norm});
  }
  if (config.mixture.at_layer(index)) {
    want_mixture(config, prefix + "mlp.", layer.mixture, wanted);
  } else {
    want_dense_mlp(config, prefix + "mlp.", layer.mlp, wanted);
  }
}

// Embeddings come first. REQUIRES: weights.layers has its final size: the targets point into it.
std::vector<Wanted> want_all(const ModelConfig& config, ModelWeights& weights) {
  const Shape matrix = {config.vocab_tokens, config.hidden};
  std::vector<Wanted> wanted;
  wanted.push_back(
      {std::string(kEmbeddingsName), matrix, &weights.embeddings, MatrixUse::kEmbedding});
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    want_layer(config, static_cast<std::int64_t>(i), weights.layers[i], wanted);
  }
  wanted.push_back({"model.norm.weight", {config.hidden}, &weights.final_norm});
  if (!config.tied_embeddings) {
    wanted.push_back(
        cut({"lm_head.weight", matrix, &weights.separate_head, MatrixUse::kEmbedding}));
  }
  return wanted;
}

// A rank of several has its rows of the output matrix apart, for every rank has all embeddings.
std::vector<Wanted> want_here(const ModelConfig& config, const Shard& shard,
                              ModelWeights& weights) {
  std::vector<Wanted> wanted = want_all(config, weights);
  if (shard.ranks > 1 && config.tied_embeddings) {
    Wanted head = cut(wanted.front());
    head.target = &weights.separate_head;
    wanted.push_back(std::move(head));
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

// A tensor that was read, and where it goes.
struct Arrived {
  const Wanted& wanted;
  const TensorEntry& tensor;
  std::int64_t outputs;              // that are held here
  std::span<const std::byte> bytes;  // of these outputs
  // Of these outputs, where files hold codes that can be kept.
  std::optional<WeightFormat> kept_format;
  std::span<const BFloat16> scales;
  std::span<const std::int8_t> shifts;
  std::span<const float> output_scales;
  const std::string& path;
};

// A tensor as it was read.
struct Read {
  const TensorEntry& tensor;
  std::span<const std::byte> bytes;
  std::optional<WeightFormat> kept_format;
  KeptGroups kept;
};

// Of what was read as much as `shard` holds.
Arrived held(const Wanted& wanted, const Read& read, const Shard& shard, const std::string& path) {
  const TensorEntry& tensor = read.tensor;
  const std::int64_t outputs = tensor.shape[0];
  const OutputRange range = wanted.is_cut ? shard.range(outputs) : OutputRange{0, outputs};
  const auto part = [&](auto all) {
    const std::size_t each = all.size() / static_cast<std::size_t>(outputs);
    return all.subspan(static_cast<std::size_t>(range.first) * each,
                       static_cast<std::size_t>(range.outputs) * each);
  };
  return {wanted,
          tensor,
          range.outputs,
          part(read.bytes),
          read.kept_format,
          part(std::span(read.kept.scales)),
          part(std::span(read.kept.shifts)),
          part(std::span(read.kept.output_scales)),
          path};
}

// One matrix or many, packed.
Status place_matrices(const Arrived& arrived, const MatrixPacker& packer) {
  const Wanted& wanted = arrived.wanted;
  const WeightType type = *arrived.tensor.weight_type();
  if (const auto* heads = std::get_if<HeadsTarget>(&wanted.target)) {
    return split_heads(arrived.bytes, type, heads->config, packer, *heads->weights);
  }
  const auto data_or_null = [](auto values) { return values.empty() ? nullptr : values.data(); };
  STEMMA_ASSIGN_OR_RETURN(
      *std::get<PackedWeights*>(wanted.target),
      packer.pack({arrived.bytes.data(), type, arrived.outputs, arrived.tensor.shape[1],
                   data_or_null(arrived.scales), data_or_null(arrived.shifts),
                   data_or_null(arrived.output_scales)}));
  return {};
}

std::int64_t packed_bytes(const Wanted& wanted) {
  if (const auto* const matrix = std::get_if<PackedWeights*>(&wanted.target)) {
    return static_cast<std::int64_t>((*matrix)->size_bytes());
  }
  std::int64_t bytes = 0;
  const LatentWeights& latent = *std::get<HeadsTarget>(wanted.target).weights;
  for (const auto* heads : {&latent.key_up, &latent.value_up}) {
    for (const PackedWeights& head : *heads) bytes += static_cast<std::int64_t>(head.size_bytes());
  }
  return bytes;
}

Status place_rounded(const Arrived& arrived, WeightFormat format, ThreadPool& pool,
                     RoundingReport& report) {
  const Wanted& wanted = arrived.wanted;
  RoundingError error;
  const Status placed = place_matrices(arrived, MatrixPacker(pool, format, error));
  if (!placed.ok() && placed.error().code == ErrorCode::kUnsupported) {
    return Error{ErrorCode::kUnsupported,
                 arrived.path + ": tensor '" + wanted.name + "': " + placed.error().detail};
  }
  STEMMA_RETURN_IF_ERROR(placed);
  report.add(wanted.name, error);
  report.stored_bytes += arrived.tensor.output_bytes() * arrived.outputs;
  report.packed_bytes += packed_bytes(wanted);
  return {};
}

Status place(const Arrived& arrived, WeightRounding rounding, ThreadPool& pool,
             RoundingReport& report) {
  const Wanted& wanted = arrived.wanted;
  if (auto* const* const vector = std::get_if<std::vector<float>*>(&wanted.target)) {
    **vector = to_floats(*arrived.tensor.weight_type(), arrived.bytes);
    return {};
  }
  const auto format = rounded_format(rounding, wanted.use, arrived.kept_format);
  if (format.has_value()) return place_rounded(arrived, *format, pool, report);
  return place_matrices(arrived, pool);
}

void add_format(const PackedWeights& matrix, std::string& formats) {
  if (matrix.n() > 0) add_format_name(weight_format_name(matrix.format()), formats);
}

void add_mlp_formats(const MlpWeights& mlp, std::string& formats) {
  for (const PackedWeights* matrix : {&mlp.gate, &mlp.up, &mlp.down}) {
    add_format(*matrix, formats);
  }
}

void add_latent_formats(const LatentWeights& latent, std::string& formats) {
  for (const PackedWeights* matrix : {&latent.query_down, &latent.query_up, &latent.latent_down}) {
    add_format(*matrix, formats);
  }
  for (const PackedWeights& head : latent.value_up) {  // key_up is of the same tensor
    add_format(head, formats);
  }
}

}  // namespace

std::string ModelWeights::compute_format() const {
  std::string formats;
  add_format(embeddings, formats);
  for (const LayerWeights& layer : layers) {
    for (const PackedWeights* matrix : {&layer.query, &layer.key, &layer.value, &layer.output}) {
      add_format(*matrix, formats);
    }
    add_latent_formats(layer.latent, formats);
    add_mlp_formats(layer.mlp, formats);
    add_format(layer.mixture.router, formats);
    for (const MlpWeights& expert : layer.mixture.experts) {
      add_mlp_formats(expert, formats);
    }
    add_mlp_formats(layer.mixture.shared, formats);
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

void settle_weights_dtype(const WeightFiles& files, ModelConfig& config) {
  const TensorEntry* const embeddings = files.find_or_null(kEmbeddingsName);
  if (config.weights_dtype.has_value() || embeddings == nullptr) return;
  const std::optional<WeightType> type = embeddings->weight_type();
  if (!type.has_value()) return;
  config.weights_dtype = *type == WeightType::kF32   ? DType::kF32
                         : *type == WeightType::kF16 ? DType::kF16
                                                     : DType::kBF16;
  STEMMA_LOG(kInfo, "model.weights_dtype", kv("dtype", dtype_name(*config.weights_dtype)),
             kv("from", embeddings->name));
}

Status check_tensors(const ModelConfig& config, const WeightFiles& files) {
  ModelWeights unused;
  unused.layers.resize(static_cast<std::size_t>(config.layers));
  for (const Wanted& wanted : want_all(config, unused)) {
    STEMMA_RETURN_IF_ERROR(check_wanted(wanted, config, files));
  }
  return {};
}

namespace {

// Norms whose files say by how much they differ from 1.
void add_one_to_norms(ModelWeights& weights) {
  const auto add_one = [](std::vector<float>& norm) {
    for (float& weight : norm) weight += 1.0f;
  };
  for (LayerWeights& layer : weights.layers) {
    for (std::vector<float>* norm :
         {&layer.attention_norm, &layer.attention_branch_norm, &layer.mlp_norm,
          &layer.mlp_branch_norm, &layer.query_norm, &layer.key_norm}) {
      add_one(*norm);
    }
  }
  add_one(weights.final_norm);
}

// Whether a tensor that no part of the model reads is one of those that files have all the same:
// angles, a head beside tied embeddings, layers behind the last one that guess several tokens, and
// what is advice for computing in fewer bits.
bool is_known_extra(const ModelConfig& config, std::string_view name) {
  for (const char* const ending : {".inv_freq", ".input_scale", ".k_scale", ".v_scale"}) {
    if (name.ends_with(ending)) return true;
  }
  if (name == "lm_head.weight") return config.tied_embeddings;
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return false;
  std::int64_t layer = 0;
  const std::string_view number = name.substr(kLayers.size());
  const auto read = std::from_chars(number.data(), number.data() + number.size(), layer);
  return read.ec == std::errc() && layer >= config.layers;
}

// Of what the model's publisher computes with, perhaps, and this model does not.
class UnreadTensors {
 public:
  UnreadTensors(const ModelConfig& config, const WeightFiles& files)
      : config_(config), files_(files) {}

  void add(const std::string& name) {
    if (files_.is_beside(name) || is_known_extra(config_, name)) return;
    if (count_++ == 0) first_ = name;
  }
  void log() const {
    if (count_ == 0) return;
    STEMMA_LOG(kWarning, "model.weights.unread", kv("tensors", count_),
               kv("first", printable(first_, 200)));
  }

 private:
  const ModelConfig& config_;
  const WeightFiles& files_;
  std::int64_t count_ = 0;
  std::string first_;
};

}  // namespace

Result<ModelWeights> load_weights(const ModelConfig& config, WeightFiles& files, ThreadPool& pool,
                                  const WeightOptions& options) {
  ModelWeights weights;
  weights.layers.resize(static_cast<std::size_t>(config.layers));
  std::unordered_multimap<std::string, Wanted> by_name;
  for (Wanted& wanted : want_here(config, options.shard, weights)) {
    STEMMA_RETURN_IF_ERROR(check_wanted(wanted, config, files));
    std::string name = wanted.name;
    by_name.emplace(std::move(name), std::move(wanted));
  }
  LoadProgress loaded{0, files.total_bytes()};
  UnreadTensors unread(config, files);
  const auto visit = [&](const TensorEntry& tensor, std::span<const std::byte> bytes) -> Status {
    const auto [first, end] = by_name.equal_range(tensor.name);
    if (first == end) unread.add(tensor.name);
    const Read read = {tensor, bytes, files.kept_format(tensor.name),
                       files.kept_groups(tensor.name)};
    for (auto found = first; found != end; ++found) {
      const Arrived arrived = held(found->second, read, options.shard, files.path_of(tensor));
      STEMMA_RETURN_IF_ERROR(place(arrived, options.rounding, pool, weights.rounding));
    }
    loaded.done_bytes += tensor.size_bytes;
    if (options.progress) options.progress(loaded);
    return {};
  };
  STEMMA_ASSIGN_OR_RETURN(weights.digest, files.read_all(pool, visit));
  if (config.norms_add_one) add_one_to_norms(weights);
  log_rounding(weights.rounding, weights.compute_format());
  unread.log();
  return weights;
}

}  // namespace stemma
