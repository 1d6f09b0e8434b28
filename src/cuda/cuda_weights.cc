// The same code lays the tensors out twice: first to count the bytes, then to place them.
#include "cuda/cuda_weights.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "attention/attention_work_cuda.h"
#include "base/check.h"
#include "base/math.h"
#include "cuda/cuda_upload.h"
#include "cuda/expert_choice_cuda.h"
#include "device/packed_weights.h"
#include "device/rounded_strips.h"

namespace stemma {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kEmbeddings = "model.embed_tokens.weight";

// Where a tensor goes.
struct Target {
  std::byte* place = nullptr;
  bool is_matrix = false;
  MatrixUse use = MatrixUse::kProjection;   // of a matrix
  WeightType type = WeightType::kF32;       // that it becomes where it is not rounded
  std::optional<WeightFormat> format = {};  // where it is rounded
  bool is_cut = false;                      // a rank of several holds its shard of the first extent
  bool is_of_heads = false;                 // see parted_heads
  float added = 0;                          // to each value of a vector
  OutputRange held = {};                    // of the first extent
};

CodeForm code_form_of(const Target& target) {
  return target.format.has_value() ? code_form(*target.format) : CodeForm::kNone;
}

class Layout {
 public:
  // `begin`: of all memory; nullptr: it is only counted. `row_type`: of rows that products read.
  Layout(const ModelConfig& config, const WeightFiles& files, WeightType row_type,
         const WeightOptions& options, std::byte* begin)
      : latent_(config.latent),
        files_(files),
        row_type_(row_type),
        rounding_(options.rounding),
        shard_(options.shard),
        begin_(begin) {}

  // The named tensors one behind the other.
  CudaMatrix matrix(const Names& names, MatrixUse use = MatrixUse::kProjection) {
    return place_matrix(names, {.use = use});
  }
  float* vector(const Names& names, float added = 0) {
    return reinterpret_cast<float*>(place(names, {.added = added}));
  }
  // The same of what the shard holds of each.
  CudaMatrix cut_matrix(const Names& names, MatrixUse use = MatrixUse::kProjection) {
    return place_matrix(names, {.use = use, .is_cut = true});
  }
  CudaMatrix cut_heads(const std::string& name) {
    return place_matrix({name},
                        {.use = MatrixUse::kLatentHeads, .is_cut = true, .is_of_heads = true});
  }
  float* cut_vector(const Names& names) {
    return reinterpret_cast<float*>(place(names, {.is_cut = true}));
  }

  std::size_t bytes() const { return end_; }
  const std::unordered_multimap<std::string, Target>& targets() const { return targets_; }

 private:
  CudaMatrix place_matrix(const Names& names, Target target) {
    target.is_matrix = true;
    target.format = rounded_format(rounding_, target.use, kept_format(names));
    target.type = target.format.has_value() ? row_type_ : type_of(names);
    return {place(names, target), target.type, code_form_of(target)};
  }

  // One that keeps the codes of all of them.
  std::optional<WeightFormat> kept_format(const Names& names) const {
    std::optional<WeightFormat> all = files_.kept_format(names.front());
    for (const std::string& name : names) {
      const std::optional<WeightFormat> own = files_.kept_format(name);
      if (!own.has_value()) return std::nullopt;
      if (own == WeightFormat::kInt4Shifted) all = own;  // files have codes of 4 bits or of 8
    }
    return all;
  }

  // That of rows if all of them have it, else the one that holds all others exactly.
  WeightType type_of(const Names& names) const {
    const bool as_rows = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return files_.find_or_null(name)->weight_type() == row_type_;
    });
    return as_rows ? row_type_ : WeightType::kF32;
  }

  std::byte* place(const Names& names, Target target) {
    constexpr std::size_t kAlignment = 256;
    end_ = round_up(end_, kAlignment);
    const std::size_t first = end_;
    for (const std::string& name : names) {
      const std::vector<std::int64_t>& shape = files_.find_or_null(name)->shape;
      if (begin_ != nullptr) target.place = begin_ + end_;
      target.held = target.is_cut ? shard_.range(shape[0]) : OutputRange{0, shape[0]};
      targets_.emplace(name, target);
      end_ += static_cast<std::size_t>(bytes_of(target, shape));
    }
    return begin_ == nullptr ? nullptr : begin_ + first;
  }

  std::int64_t bytes_of(const Target& target, const std::vector<std::int64_t>& shape) const {
    const std::int64_t outputs = target.held.outputs;
    if (!target.is_matrix) return outputs * static_cast<std::int64_t>(sizeof(float));
    const CodeForm form = code_form_of(target);
    if (form == CodeForm::kNone) {
      return outputs * shape[1] * static_cast<std::int64_t>(weight_type_bytes(target.type));
    }
    if (!target.is_of_heads) return RoundedStrips::matrix_bytes(form, outputs, shape[1]);
    const std::int64_t heads = outputs / (latent_.plain_dim + latent_.value_dim);
    return heads * (RoundedStrips::matrix_bytes(form, latent_.rank, latent_.plain_dim) +
                    RoundedStrips::matrix_bytes(form, latent_.value_dim, latent_.rank));
  }

  const LatentConfig& latent_;
  const WeightFiles& files_;
  WeightType row_type_;
  WeightRounding rounding_;
  Shard shard_;
  std::byte* begin_;
  std::size_t end_ = 0;
  std::unordered_multimap<std::string, Target> targets_;
};

void place_latent(const ModelConfig& config, const std::string& prefix, Layout& layout,
                  CudaLatentWeights& latent) {
  const bool has_rank = config.latent.query_rank > 0;
  const auto down = [&](const char* kind) {
    Names names;
    if (has_rank) names.push_back(prefix + "q_a_proj." + kind);
    names.push_back(prefix + "kv_a_proj_with_mqa." + kind);
    return names;
  };
  latent.down = layout.matrix(down("weight"));
  if (config.qkv_bias) latent.down_bias = layout.vector(down("bias"));
  if (has_rank) latent.query_norm = layout.vector({prefix + "q_a_layernorm.weight"});
  latent.latent_norm = layout.vector({prefix + "kv_a_layernorm.weight"});
  latent.query_up = layout.cut_matrix({prefix + (has_rank ? "q_b_proj.weight" : "q_proj.weight")});
  latent.heads_up = layout.cut_heads(prefix + "kv_b_proj.weight");
}

void place_heads(const ModelConfig& config, const std::string& prefix, float norm_added,
                 Layout& layout, CudaLayerWeights& layer) {
  layer.qkv = layout.cut_matrix(
      {prefix + "q_proj.weight", prefix + "k_proj.weight", prefix + "v_proj.weight"});
  if (config.qkv_bias) {
    layer.qkv_bias =
        layout.cut_vector({prefix + "q_proj.bias", prefix + "k_proj.bias", prefix + "v_proj.bias"});
  }
  if (config.head_norms) {
    layer.query_norm = layout.vector({prefix + "q_norm.weight"}, norm_added);
    layer.key_norm = layout.vector({prefix + "k_norm.weight"}, norm_added);
  }
}

void place_attention(const ModelConfig& config, const std::string& prefix, float norm_added,
                     Layout& layout, CudaLayerWeights& layer) {
  if (config.latent.rank > 0) {
    place_latent(config, prefix, layout, layer.latent);
  } else {
    place_heads(config, prefix, norm_added, layout, layer);
  }
  layer.output = layout.cut_matrix({prefix + "o_proj.weight"});
  if (config.output_bias) layer.output_bias = layout.vector({prefix + "o_proj.bias"});
}

Names gate_up_of(const std::string& prefix) {
  return {prefix + "gate_proj.weight", prefix + "up_proj.weight"};
}

void place_mlp(const ModelConfig& config, const std::string& prefix, Layout& layout,
               CudaLayerWeights& layer) {
  layer.gate_up = layout.cut_matrix(gate_up_of(prefix));
  layer.down = layout.cut_matrix({prefix + "down_proj.weight"});
  if (!config.mlp_bias) return;
  layer.gate_up_bias = layout.cut_vector({prefix + "gate_proj.bias", prefix + "up_proj.bias"});
  layer.down_bias = layout.vector({prefix + "down_proj.bias"});
}

void place_mixture(const MixtureConfig& config, const std::string& prefix, Layout& layout,
                   CudaMixtureWeights& mixture) {
  mixture.router = layout.matrix({prefix + "gate.weight"}, MatrixUse::kRouter);
  if (config.choice == MixtureConfig::Choice::kCorrectedGroups) {
    mixture.correction = layout.vector({prefix + "gate.e_score_correction_bias"});
  }
  Names gate_up;
  Names down;
  for (std::int64_t expert = 0; expert < config.experts; ++expert) {
    const std::string own = prefix + "experts." + std::to_string(expert) + ".";
    for (std::string& name : gate_up_of(own)) gate_up.push_back(std::move(name));
    down.push_back(own + "down_proj.weight");
  }
  mixture.gate_up = layout.cut_matrix(gate_up);
  mixture.down = layout.cut_matrix(down);
  if (config.shared_width == 0) return;
  mixture.shared_gate_up = layout.cut_matrix(gate_up_of(prefix + "shared_experts."));
  mixture.shared_down = layout.cut_matrix({prefix + "shared_experts.down_proj.weight"});
}

void place_layer(const ModelConfig& config, std::size_t index, Layout& layout,
                 CudaLayerWeights& layer) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const float added = config.norms_add_one ? 1.0f : 0.0f;
  const auto norm = [&](const char* name) {
    return layout.vector({prefix + name + ".weight"}, added);
  };
  layer.attention_norm = norm("input_layernorm");
  place_attention(config, prefix + "self_attn.", added, layout, layer);
  if (config.branch_norms) {
    layer.attention_branch_norm = norm("post_attention_layernorm");
    layer.mlp_norm = norm("pre_feedforward_layernorm");
    layer.mlp_branch_norm = norm("post_feedforward_layernorm");
  } else {
    layer.mlp_norm = norm("post_attention_layernorm");
  }
  if (config.mixture.at_layer(static_cast<std::int64_t>(index))) {
    place_mixture(config.mixture, prefix + "mlp.", layout, layer.mixture);
  } else {
    place_mlp(config, prefix + "mlp.", layout, layer);
  }
}

void place_all(const ModelConfig& config, const Shard& shard, Layout& layout,
               CudaWeights& weights) {
  weights.embeddings = layout.matrix({kEmbeddings}, MatrixUse::kEmbedding);
  weights.layers.resize(static_cast<std::size_t>(config.layers));
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    place_layer(config, i, layout, weights.layers[i]);
  }
  weights.final_norm = layout.vector({"model.norm.weight"}, config.norms_add_one ? 1.0f : 0.0f);
  const std::int64_t first = shard.range(config.vocab_tokens).first;
  const auto& [begin, type, form] = weights.embeddings;
  const bool is_rounded = form != CodeForm::kNone;
  const bool within_a_strip = is_rounded && first % RoundedStrips::kOutputs != 0;
  if (!config.tied_embeddings || within_a_strip) {
    weights.head = layout.cut_matrix({config.tied_embeddings ? kEmbeddings : "lm_head.weight"},
                                     MatrixUse::kEmbedding);
  } else if (begin != nullptr) {
    const auto value_bytes = static_cast<std::int64_t>(weight_type_bytes(type));
    weights.head = weights.embeddings;
    weights.head.values += is_rounded ? RoundedStrips::matrix_bytes(form, first, config.hidden)
                                      : first * config.hidden * value_bytes;
  }
}

// What the shard holds of `all` that a tensor has.
template <typename T>
std::span<const T> held(const Target& target, const TensorEntry& tensor, std::span<const T> all) {
  const std::size_t each = all.size() / static_cast<std::size_t>(tensor.shape[0]);
  return all.subspan(static_cast<std::size_t>(target.held.first) * each,
                     static_cast<std::size_t>(target.held.outputs) * each);
}

// Of the values that rows meet in layers most have it: those of another type take a slower product
// and, of 16 bits, twice the memory. Embeddings, in a small model the larger part, are only looked
// up. Of equals f32 goes first.
WeightType row_type_of(const ModelConfig& config, const WeightFiles& files) {
  std::array<std::int64_t, 3> values = {};  // of each type
  for (const TensorSpec& needed : needed_tensors(config)) {
    if (needed.shape.size() != 2 || !needed.name.starts_with("model.layers.")) continue;
    const WeightType type = *files.find_or_null(needed.name)->weight_type();
    values[static_cast<std::size_t>(type)] += needed.shape[0] * needed.shape[1];
  }
  return static_cast<WeightType>(std::max_element(values.begin(), values.end()) - values.begin());
}

// A tensor that was read, as much of it as the shard holds.
struct Arrived {
  const Target& target;
  const TensorEntry& tensor;
  std::span<const std::byte> bytes;
  std::span<const BFloat16> scales;  // of codes that are kept; empty: none
  std::span<const std::int8_t> shifts;
  std::span<const float> output_scales;

  WeightType type() const { return *tensor.weight_type(); }
};

// Where tensors go, and with what.
struct Ways {
  const LatentConfig& latent;
  CudaUpload& upload;
  ThreadPool& threads;
};

// The codes and scales of one matrix behind those of others.
Status append_strips(const StoredMatrix& matrix, WeightFormat format, ThreadPool& threads,
                     RoundingError& error, std::vector<std::byte>& strips) {
  STEMMA_ASSIGN_OR_RETURN(const PackedWeights packed,
                          PackedWeights::quantise(matrix, format, threads, error));
  std::vector<std::byte> own = strips_of(packed, threads);
  if (strips.empty()) {
    strips = std::move(own);
  } else {
    strips.insert(strips.end(), own.begin(), own.end());
  }
  return {};
}

// The same of all heads' keys, then of all their values, each a matrix of its own.
Status append_heads(const StoredMatrix& parted, WeightFormat format, const Ways& ways,
                    RoundingError& error, std::vector<std::byte>& strips) {
  const LatentConfig& latent = ways.latent;
  const std::int64_t heads = parted.n / (latent.plain_dim + latent.value_dim);
  const auto* from = static_cast<const std::byte*>(parted.weights);
  for (std::int64_t i = 0; i < 2 * heads; ++i) {
    const std::int64_t n = i < heads ? latent.rank : latent.value_dim;
    const std::int64_t k = i < heads ? latent.plain_dim : latent.rank;
    const StoredMatrix head = {.weights = from, .type = parted.type, .n = n, .k = k};
    STEMMA_RETURN_IF_ERROR(append_strips(head, format, ways.threads, error, strips));
    from += n * k * static_cast<std::int64_t>(weight_type_bytes(parted.type));
  }
  return {};
}

// Rounds as a CPU does, or keeps what a CPU does.
Status upload_rounded(const Arrived& arrived, std::span<const std::byte> bytes, const Ways& ways,
                      RoundingReport& report) {
  const Target& target = arrived.target;
  const WeightFormat format = *target.format;
  const auto data_or_null = [](auto values) { return values.empty() ? nullptr : values.data(); };
  StoredMatrix matrix = {bytes.data(), arrived.type(), target.held.outputs,
                         arrived.tensor.shape[1]};
  matrix.scales_or_null = data_or_null(arrived.scales);
  matrix.shifts_or_null = data_or_null(arrived.shifts);
  matrix.output_scales_or_null = data_or_null(arrived.output_scales);
  RoundingError error;
  std::vector<std::byte> strips;
  STEMMA_RETURN_IF_ERROR(target.is_of_heads
                             ? append_heads(matrix, format, ways, error, strips)
                             : append_strips(matrix, format, ways.threads, error, strips));
  STEMMA_RETURN_IF_ERROR(ways.upload.write(target.place, strips));
  report.add(arrived.tensor.name, error);
  report.stored_bytes += arrived.tensor.output_bytes() * target.held.outputs;
  report.packed_bytes += std::ssize(strips);
  return {};
}

Status upload_tensor(const Arrived& arrived, const Ways& ways, RoundingReport& report) {
  const Target& target = arrived.target;
  if (!target.is_matrix) {
    return ways.upload.write_floats(reinterpret_cast<float*>(target.place), arrived.type(),
                                    arrived.bytes, target.added);
  }
  std::span<const std::byte> bytes = arrived.bytes;
  std::vector<std::byte> parted;
  if (target.is_of_heads) {
    parted = parted_heads(bytes, arrived.type(), ways.latent, ways.threads);
    bytes = parted;
  }
  if (target.format.has_value()) return upload_rounded(arrived, bytes, ways, report);
  if (arrived.type() == target.type) return ways.upload.write(target.place, bytes);
  return ways.upload.write_floats(reinterpret_cast<float*>(target.place), arrived.type(), bytes);
}

// What belongs to a tensor's codes where its target keeps them. Matrices of one product have one
// format: beside some with shifts those without have zeros; codes with shifts are no kInt4.
KeptGroups kept_in(const Target& target, const WeightFiles& files, const std::string& name) {
  if (!target.format.has_value()) return {};
  KeptGroups kept = files.kept_groups(name);
  if (target.format == WeightFormat::kInt4Shifted && kept.shifts.empty()) {
    kept.shifts.resize(kept.scales.size());
  }
  if (target.format == WeightFormat::kInt4 && !kept.shifts.empty()) return {};
  return kept;
}

// Tensors that the model does not need are left out, but are in the digest.
Result<Sha256Digest> read_to_device(const Layout& layout, WeightFiles& files, const Ways& ways,
                                    const ProgressCallback& progress, RoundingReport& report) {
  LoadProgress loaded{0, files.total_bytes()};
  const auto visit = [&](const TensorEntry& tensor, std::span<const std::byte> bytes) -> Status {
    const auto [first, end] = layout.targets().equal_range(tensor.name);
    for (auto found = first; found != end; ++found) {
      const Target& target = found->second;
      const KeptGroups kept = kept_in(target, files, tensor.name);
      const Arrived arrived = {target,
                               tensor,
                               held(target, tensor, bytes),
                               held(target, tensor, std::span<const BFloat16>(kept.scales)),
                               held(target, tensor, std::span<const std::int8_t>(kept.shifts)),
                               held(target, tensor, std::span<const float>(kept.output_scales))};
      const Status uploaded = upload_tensor(arrived, ways, report);
      if (!uploaded.ok() && uploaded.error().code == ErrorCode::kUnsupported) {
        return Error{ErrorCode::kUnsupported, files.path_of(tensor) + ": tensor '" + tensor.name +
                                                  "': " + uploaded.error().detail};
      }
      STEMMA_RETURN_IF_ERROR(uploaded);
    }
    loaded.done_bytes += tensor.size_bytes;
    if (progress) progress(loaded);
    return {};
  };
  return files.read_all(ways.threads, visit);
}

// Rows of 16 bytes, and latent rows that there are kernels for. The configuration has seen to the
// ranks of latent rows and to rope_dim.
template <typename Refused>
Status check_latent(const LatentConfig& latent, std::int64_t heads, const Refused& refused) {
  if (latent.query_rank % 8 != 0) return refused("q_lora_rank that is no multiple of 8");
  if (latent.plain_dim % 8 != 0) return refused("qk_nope_head_dim that is no multiple of 8");
  if (heads * latent.value_dim % 8 != 0) {
    return refused("v_head_dim of which all heads' are no multiple of 8");
  }
  if (has_tensor_kernel(DType::kBF16, latent.row_dim(), latent.rank)) return {};
  return refused("a latent row of more than 576 columns, 512 of them kv_lora_rank,");
}

void add_format(const CudaMatrix& matrix, std::string& formats) {
  if (matrix.empty()) return;
  add_format_name(matrix.codes == CodeForm::kNone ? weight_type_name(matrix.type)
                                                  : code_form_name(matrix.codes),
                  formats);
}

}  // namespace

Status check_computable(const ModelConfig& config, std::string_view config_path) {
  const auto refused = [&](std::string_view what) {
    return Error{ErrorCode::kUnsupported,
                 std::string(config_path) + ": " + std::string(what) + " is not for a GPU yet"};
  };
  if (config.mixture.experts > 0 && config.mixture.width % 8 != 0) {
    return refused("moe_intermediate_size that is no multiple of 8");
  }
  if (config.mixture.shared_width % 8 != 0) {
    return refused("a width of shared experts that is no multiple of 8");
  }
  if (config.mixture.experts_per_token > kRowExpertsMax) {
    return refused("num_experts_per_tok above " + std::to_string(kRowExpertsMax));
  }
  if (config.hidden % 8 != 0) return refused("hidden_size that is no multiple of 8");
  if (config.intermediate % 8 != 0) return refused("intermediate_size that is no multiple of 8");
  if (config.latent.rank > 0) return check_latent(config.latent, config.query_heads, refused);
  if (config.head_dim % 8 != 0 || config.head_dim > kPlainDimMax) {
    return refused("head_dim that is no multiple of 8 up to 256");
  }
  return {};
}

Result<CudaWeights> load_cuda_weights(const ModelConfig& config, WeightFiles& files,
                                      CudaDevice& device, CudaStream& stream, ThreadPool& threads,
                                      const WeightOptions& options) {
  STEMMA_RETURN_IF_ERROR(check_tensors(config, files));
  CudaWeights weights;
  weights.rounding = options.rounding;
  weights.type = row_type_of(config, files);
  weights.embeddings_type = *files.find_or_null(kEmbeddings)->weight_type();
  Layout counted(config, files, weights.type, options, nullptr);
  place_all(config, options.shard, counted, weights);
  STEMMA_ASSIGN_OR_RETURN(weights.memory, device.allocate(counted.bytes(), stream));
  Layout placed(config, files, weights.type, options, weights.memory.bytes());
  place_all(config, options.shard, placed, weights);
  STEMMA_ASSIGN_OR_RETURN(CudaUpload upload, CudaUpload::open(device, stream, threads));
  STEMMA_ASSIGN_OR_RETURN(weights.digest,
                          read_to_device(placed, files, {config.latent, upload, threads},
                                         options.progress, weights.rounding_report));
  STEMMA_RETURN_IF_ERROR(stream.synchronize());
  log_rounding(weights.rounding_report, compute_format_of(weights));
  return weights;
}

std::string compute_format_of(const CudaWeights& weights) {
  std::string formats;
  add_format(weights.embeddings, formats);
  for (const CudaLayerWeights& layer : weights.layers) {
    const CudaLatentWeights& latent = layer.latent;
    const CudaMixtureWeights& mixture = layer.mixture;
    for (const CudaMatrix* matrix :
         {&layer.qkv, &latent.down, &latent.query_up, &layer.output, &latent.heads_up,
          &layer.gate_up, &layer.down, &mixture.router, &mixture.gate_up, &mixture.down,
          &mixture.shared_gate_up, &mixture.shared_down}) {
      add_format(*matrix, formats);
    }
  }
  add_format(weights.head, formats);
  return formats;
}

}  // namespace stemma
