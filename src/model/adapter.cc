#include "model/adapter.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/json_text.h"
#include "model/adapter_config.h"
#include "model/latent_attention.h"
#include "model/weight_files.h"
#include "model/weights.h"
#include "prefix/namespace_digest.h"

namespace stemma {
namespace {

constexpr std::int64_t kConfigBytesMax = std::int64_t{1} << 20;
constexpr std::string_view kLayerPrefix = "model.layers.";
constexpr std::string_view kExpertPrefix = "mlp.experts.";
constexpr std::string_view kWeightSuffix = ".weight";

struct NamedProjection {
  std::string_view name;  // behind the layer's number
  Projection projection;
};
constexpr std::array kNames = {
    NamedProjection{"self_attn.q_proj", Projection::kQuery},
    NamedProjection{"self_attn.k_proj", Projection::kKey},
    NamedProjection{"self_attn.v_proj", Projection::kValue},
    NamedProjection{"self_attn.o_proj", Projection::kOutput},
    NamedProjection{"mlp.gate_proj", Projection::kGate},
    NamedProjection{"mlp.up_proj", Projection::kUp},
    NamedProjection{"mlp.down_proj", Projection::kDown},
    NamedProjection{"mlp.shared_experts.gate_proj", Projection::kGate},
    NamedProjection{"mlp.shared_experts.up_proj", Projection::kUp},
    NamedProjection{"mlp.shared_experts.down_proj", Projection::kDown},
    NamedProjection{"mlp.gate", Projection::kRouter},
    NamedProjection{"self_attn.q_a_proj", Projection::kQueryDown},
    NamedProjection{"self_attn.q_b_proj", Projection::kQueryUp},
    NamedProjection{"self_attn.kv_a_proj_with_mqa", Projection::kLatentDown},
    NamedProjection{"self_attn.kv_b_proj", Projection::kLatentUp},
};

// Takes "12." from the front of `rest`.
std::int64_t take_number(std::string_view& rest) {
  const std::size_t end = rest.find('.');
  const std::int64_t number = std::stoll(std::string(rest.substr(0, end)));
  rest.remove_prefix(end + 1);
  return number;
}

// "model.layers.3.self_attn.q_proj.weight" -> q_proj of layer 3; nullopt for other tensors.
std::optional<AdaptableMatrix> try_adaptable(const TensorSpec& tensor) {
  std::string_view rest = tensor.name;
  if (tensor.shape.size() != 2 || !rest.starts_with(kLayerPrefix) ||
      !rest.ends_with(kWeightSuffix)) {
    return std::nullopt;
  }
  rest.remove_suffix(kWeightSuffix.size());
  AdaptableMatrix matrix = {
      .path = std::string(rest), .outputs = tensor.shape[0], .inputs = tensor.shape[1]};
  rest.remove_prefix(kLayerPrefix.size());
  matrix.layer = take_number(rest);
  std::string name(rest);
  if (rest.starts_with(kExpertPrefix)) {
    rest.remove_prefix(kExpertPrefix.size());
    matrix.expert = take_number(rest);
    name = "mlp." + std::string(rest);  // as in a dense MLP
  }
  const auto* const found =
      std::find_if(kNames.begin(), kNames.end(),
                   [&](const NamedProjection& named) { return named.name == name; });
  if (found == kNames.end()) return std::nullopt;
  matrix.projection = found->projection;
  return matrix;
}

// Of the matrix, and so of B. Routers and what makes latent rows are whole on every rank.
OutputRange held_outputs(const AdaptableMatrix& matrix, const Shard& shard) {
  const bool is_whole = matrix.projection == Projection::kRouter ||
                        matrix.projection == Projection::kQueryDown ||
                        matrix.projection == Projection::kLatentDown;
  return is_whole ? OutputRange{0, matrix.outputs} : shard.range(matrix.outputs);
}

// "q_proj k_proj ...": the last parts of what can be changed, for errors.
std::string known_names(const std::vector<AdaptableMatrix>& matrices) {
  std::vector<std::string> names;
  for (const AdaptableMatrix& matrix : matrices) {
    std::string name = matrix.path.substr(matrix.path.rfind('.') + 1);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : " ").append(name);
  return text;
}

// Each name of target_modules is of a matrix that can be changed, and each layer one of the
// model's.
Status check_targets(const AdapterConfig& config, const std::string& config_path,
                     const std::vector<AdaptableMatrix>& matrices) {
  const std::int64_t layers = matrices.back().layer + 1;
  if (config.layers.has_value()) {
    const auto wrong = std::find_if(config.layers->begin(), config.layers->end(),
                                    [&](std::int64_t layer) { return layer >= layers; });
    if (wrong != config.layers->end()) {
      return Error{ErrorCode::kInvalidArgument,
                   config_path + ": layers_to_transform: " + std::to_string(*wrong) +
                       " is not one of this model's " + std::to_string(layers) + " layers"};
    }
  }
  if (!config.targets.has_value()) return {};
  for (const std::string& target : *config.targets) {
    const bool known = std::any_of(matrices.begin(), matrices.end(), [&](const auto& matrix) {
      return names_end_of(target, matrix.path);
    });
    if (known) continue;
    return Error{ErrorCode::kUnsupported,
                 config_path + ": target_modules: '" + printable(target) +
                     "' is not a matrix of this model that adapters can change (" +
                     known_names(matrices) + ")"};
  }
  return {};
}

using Shape = std::array<std::int64_t, 2>;
using Bytes = std::span<const std::byte>;
using Place = std::function<Status(Bytes bytes, WeightType type)>;

// What becomes of a tensor of the file.
struct Wanted {
  Shape shape = {};
  Place place;
};

// `place` gets these rows of the tensor alone.
Place of_rows(const OutputRange& rows, const Shape& shape, Place place) {
  return [=](Bytes bytes, WeightType type) {
    const std::size_t row_bytes = bytes.size() / static_cast<std::size_t>(shape[0]);
    return place(bytes.subspan(static_cast<std::size_t>(rows.first) * row_bytes,
                               static_cast<std::size_t>(rows.outputs) * row_bytes),
                 type);
  };
}

class AdapterLoader {
 public:
  struct Parts {
    const AdapterConfig& config;
    const std::string& config_path;
    const ModelConfig& model;
    WeightFiles& files;
    ThreadPool& pool;
    Shard shard;
  };
  explicit AdapterLoader(const Parts& parts)
      : config_(parts.config),
        config_path_(parts.config_path),
        model_(parts.model),
        files_(parts.files),
        pool_(parts.pool),
        shard_(parts.shard),
        usual_scale_(config_.usual_scale()) {}

  Status want(const std::vector<AdaptableMatrix>& matrices, Adapter& adapter) {
    const bool has_experts = std::any_of(matrices.begin(), matrices.end(), [&](const auto& matrix) {
      return is_of_single_experts(matrix) && has_some_of(matrix);
    });
    for (const AdaptableMatrix& matrix : matrices) {
      const bool may_be_missing = !has_experts && is_of_single_experts(matrix);
      const bool is_named = config_.names(matrix.path, matrix.layer);
      if ((!is_named || may_be_missing) && !has_some_of(matrix)) continue;
      if (!is_named) {
        return Error{ErrorCode::kInvalidArgument,
                     config_path_ + ": target_modules: leaves out '" + matrix.path +
                         "', of which " + std::string(kAdapterWeightsFile) + " has tensors"};
      }
      STEMMA_RETURN_IF_ERROR(
          want_both(matrix, adapter.layers[static_cast<std::size_t>(matrix.layer)]));
    }
    if (!wanted_.empty()) return {};
    return Error{ErrorCode::kInvalidArgument,
                 config_path_ + ": target_modules: changes nothing of this model"};
  }

  // Reads the file, and returns the digest of what was read.
  Result<Sha256Digest> read(const std::vector<AdaptableMatrix>& matrices) {
    std::map<std::string, std::pair<const TensorEntry*, Sha256Digest>> read;
    const auto visit = [&](const TensorEntry& tensor, std::span<const std::byte> bytes) -> Status {
      const auto found = wanted_.find(tensor.name);
      if (found == wanted_.end()) {
        return Error{ErrorCode::kUnsupported,
                     files_.path_of(tensor) + ": tensor '" + printable(tensor.name, 200) +
                         "' is not of a matrix of this model that adapters can change (" +
                         known_names(matrices) + ")"};
      }
      read[tensor.name] = {&tensor, sha256(bytes)};
      return found->second.place(bytes, *tensor.weight_type());
    };
    STEMMA_RETURN_IF_ERROR(files_.read_all(pool_, visit));
    NamespaceFields fields;
    fields.add("adapter", "lora");
    add_scales(fields);
    for (const auto& [name, tensor] : read) {
      fields.add("tensor", std::string_view(name));
      fields.add("dtype", std::string_view(tensor.first->dtype));
      for (const std::int64_t extent : tensor.first->shape) fields.add("extent", extent);
      fields.add("bytes_sha256", tensor.second);
    }
    return fields.finish().bytes;
  }

 private:
  static bool is_of_single_experts(const AdaptableMatrix& matrix) {
    return matrix.expert.has_value() || matrix.projection == Projection::kRouter;
  }

  bool has_some_of(const AdaptableMatrix& matrix) const {
    return files_.find_or_null(adapter_down_name(matrix.path)) != nullptr ||
           files_.find_or_null(adapter_up_name(matrix.path)) != nullptr;
  }

  // Where the change of `matrix` goes.
  LowRank& change_of(const AdaptableMatrix& matrix, Adapter::Layer& layer) const {
    const auto projection = static_cast<std::size_t>(matrix.projection);
    if (!matrix.expert.has_value()) return layer.changes[projection];
    layer.experts.resize(static_cast<std::size_t>(model_.mixture.experts));  // once
    return layer.experts[static_cast<std::size_t>(*matrix.expert)][projection];
  }

  // That of most, and those of matrices that have another.
  void add_scales(NamespaceFields& fields) const {
    const auto bits = [](float scale) { return std::int64_t{std::bit_cast<std::int32_t>(scale)}; };
    fields.add("scale", bits(usual_scale_));
    for (const auto& [path, scale] : own_scales_) {
      fields.add("scale_of", std::string_view(path));
      fields.add("scale", bits(scale));
    }
  }

  // A and B of `matrix`.
  Status want_both(const AdaptableMatrix& matrix, Adapter::Layer& layer) {
    const Result<AdapterConfig::Strength> strength = config_.strength_of(matrix.path);
    if (!strength.ok()) {
      return Error{strength.error().code, config_path_ + ": rank_pattern, alpha_pattern: '" +
                                              matrix.path + "': " + strength.error().detail};
    }
    const auto [rank, scale] = *strength;
    const Shape down = {rank, matrix.inputs};
    const Shape up = {matrix.outputs, rank};
    const OutputRange held = held_outputs(matrix, shard_);
    const auto want_places = [&](const Place& place_down, const Place& place_up) -> Status {
      STEMMA_RETURN_IF_ERROR(want_one(adapter_down_name(matrix.path), {down, place_down}));
      return want_one(adapter_up_name(matrix.path), {up, of_rows(held, up, place_up)});
    };
    if (scale != usual_scale_) own_scales_.emplace_back(matrix.path, scale);
    if (matrix.projection == Projection::kLatentUp) {
      layer.latent.scale = scale;
      return want_places(into_latent(layer.latent, down), into_heads(layer.latent, rank));
    }
    LowRank& change = change_of(matrix, layer);
    change.scale = scale;
    return want_places(into(change.down, down), into(change.up, {held.outputs, rank}));
  }

  Place into(PackedWeights& target, const Shape& shape) {
    return [this, &target, shape](Bytes bytes, WeightType type) -> Status {
      STEMMA_ASSIGN_OR_RETURN(target,
                              PackedWeights::pack(bytes.data(), type, shape[0], shape[1], pool_));
      return {};
    };
  }

  // A, as it is and transposed.
  Place into_latent(LatentChange& target, const Shape& shape) {
    return [this, &target, shape](Bytes bytes, WeightType type) -> Status {
      STEMMA_RETURN_IF_ERROR(into(target.latent_down, shape)(bytes, type));
      STEMMA_ASSIGN_OR_RETURN(target.latent_up,
                              pack_transposed(bytes, type, shape[0], shape[1], pool_));
      return {};
    };
  }

  // B's rows of heads, cut into these as W is, with the adapter's rank in the place of the latent
  // row's.
  Place into_heads(LatentChange& target, std::int64_t rank) {
    return [this, &target, rank](Bytes bytes, WeightType type) -> Status {
      LatentConfig cut = model_.latent;
      cut.rank = rank;
      LatentWeights heads;
      STEMMA_RETURN_IF_ERROR(split_heads(bytes, type, cut, pool_, heads));
      target.key_down = std::move(heads.key_up);
      target.value_up = std::move(heads.value_up);
      return {};
    };
  }

  Status want_one(const std::string& name, const Wanted& wanted) {
    const TensorEntry* const tensor = files_.find_or_null(name);
    const std::string shape =
        "[" + std::to_string(wanted.shape[0]) + ", " + std::to_string(wanted.shape[1]) + "]";
    if (tensor == nullptr) {
      return Error{ErrorCode::kNotFound, files_.directory() + ": tensor '" + name + "' " + shape +
                                             " is missing, which target_modules of " +
                                             config_path_ + " or its other half asks for"};
    }
    const auto& found = tensor->shape;
    if (!std::equal(found.begin(), found.end(), wanted.shape.begin(), wanted.shape.end())) {
      std::string got;
      for (const std::int64_t extent : found) {
        got.append(got.empty() ? "" : ", ").append(std::to_string(extent));
      }
      return Error{ErrorCode::kInvalidArgument, files_.path_of(*tensor) + ": tensor '" + name +
                                                    "': expected shape " + shape + ", found [" +
                                                    got + "]"};
    }
    if (!tensor->weight_type().has_value()) {
      return Error{ErrorCode::kUnsupported, files_.path_of(*tensor) + ": tensor '" + name +
                                                "': dtype " + tensor->dtype +
                                                " is not supported; known are F32 F16 BF16"};
    }
    wanted_.emplace(name, wanted);
    return {};
  }

  const AdapterConfig& config_;
  const std::string& config_path_;
  const ModelConfig& model_;
  WeightFiles& files_;
  ThreadPool& pool_;
  Shard shard_;
  const float usual_scale_;
  std::vector<std::pair<std::string, float>> own_scales_;  // by paths, in the matrices' order
  std::unordered_map<std::string, Wanted> wanted_;
};

}  // namespace

std::vector<AdaptableMatrix> adaptable_matrices(const ModelConfig& config) {
  // DeepSeek's routers are parameters and no linear layers: PEFT leaves them as they are.
  const bool has_routers = config.family == ModelFamily::kQwen3Moe;
  std::vector<AdaptableMatrix> matrices;
  for (const TensorSpec& tensor : needed_tensors(config)) {
    auto matrix = try_adaptable(tensor);
    if (!matrix.has_value()) continue;
    if (matrix->projection == Projection::kRouter && !has_routers) continue;
    matrices.push_back(*std::move(matrix));
  }
  return matrices;
}

std::string adapter_down_name(std::string_view path) {
  return "base_model.model." + std::string(path) + ".lora_A.weight";
}

std::string adapter_up_name(std::string_view path) {
  return "base_model.model." + std::string(path) + ".lora_B.weight";
}

Result<Adapter> load_adapter(Files& files, const AdapterSource& source, const ModelConfig& config,
                             ThreadPool& pool, const Shard& shard) {
  const std::string config_path = join_path(source.directory, std::string(kAdapterConfigFile));
  STEMMA_ASSIGN_OR_RETURN(const std::string text, read_file(files, config_path, kConfigBytesMax));
  STEMMA_ASSIGN_OR_RETURN(const AdapterConfig parsed, parse_adapter_config(text, config_path));
  const std::vector<AdaptableMatrix> matrices = adaptable_matrices(config);
  STEMMA_RETURN_IF_ERROR(check_targets(parsed, config_path, matrices));
  STEMMA_ASSIGN_OR_RETURN(
      WeightFiles weights,
      WeightFiles::open_one(files, source.directory, std::string(kAdapterWeightsFile)));
  Adapter adapter;
  adapter.name = source.name;
  adapter.layers.resize(static_cast<std::size_t>(config.layers));
  AdapterLoader loader({parsed, config_path, config, weights, pool, shard});
  STEMMA_RETURN_IF_ERROR(loader.want(matrices, adapter));
  STEMMA_ASSIGN_OR_RETURN(adapter.digest, loader.read(matrices));
  return adapter;
}

}  // namespace stemma
