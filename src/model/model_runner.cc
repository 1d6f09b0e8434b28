#include "model/model_runner.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "attention/sparse_attention.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/math_library.h"
#include "device/simd_target.h"
#include "model/config_file.h"
#include "model/rope.h"
#include "model/sparse_calibration.h"
#include "model/weight_files.h"
#include "stemma/version.h"

namespace stemma {
namespace {

// Bounds that keep the products of scratch sizes within 63 bits.
constexpr std::int64_t kLimitMax = std::int64_t{1} << 20;

Status check_limit(std::string_view name, std::int64_t value) {
  if (value < 1 || value > kLimitMax) {
    return Error{ErrorCode::kInvalidArgument, std::string(name) + ": must be from 1 to " +
                                                  std::to_string(kLimitMax) + " (got " +
                                                  std::to_string(value) + ")"};
  }
  return {};
}

}  // namespace

Status check_limits(const ModelRunnerOptions& options) {
  STEMMA_RETURN_IF_ERROR(check_limit("rows_max", options.rows_max));
  STEMMA_RETURN_IF_ERROR(check_limit("outputs_max", options.outputs_max));
  return check_limit("requests_max", options.requests_max);
}

Status check_context(const ModelRunnerOptions& options, const ModelConfig& config) {
  const std::int64_t most = config.context_tokens_bound();
  if (options.context_tokens_max <= most) return {};
  return Error{ErrorCode::kInvalidArgument,
               "--context-tokens (context_tokens_max) must be at most " + std::to_string(most) +
                   ", which is what config.json says this model can have (got " +
                   std::to_string(options.context_tokens_max) + ")"};
}

std::int64_t served_context_tokens(const ModelRunnerOptions& options, const ModelConfig& config) {
  return options.context_tokens_max <= 0 ? config.context_tokens_max : options.context_tokens_max;
}

BatchLimits batch_limits(const LoadedRunner& runner, const ModelRunnerOptions& options) {
  return {.rows_max = options.rows_max,
          .outputs_max = options.outputs_max,
          .requests_max = options.requests_max,
          .context_tokens_max = runner.context_tokens_max(),
          .vocab_tokens = runner.config().vocab_tokens,
          .adapters = runner.adapters()};
}

AttentionShape attention_shape(const ModelConfig& config) {
  const bool latent = config.latent.rank > 0;
  const std::int64_t dim = latent ? config.latent.query_head_dim() : config.head_dim;
  const double compared = config.score_dim > 0 ? config.score_dim : static_cast<double>(dim);
  const double factor = latent ? score_factor(config.rope) : 1.0;
  AttentionShape shape;
  shape.query_heads = config.query_heads;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  shape.scale = static_cast<float>(factor / std::sqrt(compared));
  shape.latent_dim = config.latent.rank;
  shape.score_cap = static_cast<float>(config.score_cap);
  return shape;
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::load(const std::string& directory,
                                                       const ModelRunnerOptions& options,
                                                       ThreadPool& threads) {
  STEMMA_RETURN_IF_ERROR(check_limits(options));
  PosixFiles system_files;
  Files& files = options.files != nullptr ? *options.files : system_files;
  STEMMA_ASSIGN_OR_RETURN(ConfigFile file, load_config(files, directory));
  STEMMA_RETURN_IF_ERROR(check_context(options, file.config));
  const Shard shard = Shard::of(options.ranks);
  STEMMA_ASSIGN_OR_RETURN(ModelConfig own_config, config_of_shard(file.config, shard));
  STEMMA_ASSIGN_OR_RETURN(WeightFiles weight_files,
                          WeightFiles::open(files, directory, file.config.coded));
  settle_weights_dtype(weight_files, file.config);
  STEMMA_ASSIGN_OR_RETURN(
      ModelWeights weights,
      load_weights(file.config, weight_files, threads,
                   {.rounding = options.weights, .shard = shard, .progress = options.progress}));
  auto runner = std::make_unique<ModelRunner>(Key{}, std::move(file.config), std::move(own_config),
                                              std::move(weights));
  runner->config_digest_ = std::move(file.sha256);
  if (options.sparse.has_value()) {
    STEMMA_ASSIGN_OR_RETURN(runner->heavy_channels_,
                            load_heavy_channels(files, directory, options.sparse->calibration,
                                                runner->config_, runner->weights_sha256()));
    const std::int64_t own_heads = runner->own_config_.kv_heads;
    runner->own_heavy_channels_ =
        runner->heavy_channels_.of_heads(shard.rank * own_heads, own_heads);
  }
  STEMMA_RETURN_IF_ERROR(runner->prepare(options, threads));
  STEMMA_RETURN_IF_ERROR(runner->load_all(options.adapters, files, threads, shard));
  return runner;
}

ModelRunner::ModelRunner(Key, ModelConfig config, ModelConfig own_config, ModelWeights weights)
    : config_(std::move(config)),
      own_config_(std::move(own_config)),
      weights_(std::move(weights)) {}

Status ModelRunner::prepare(const ModelRunnerOptions& options, ThreadPool& threads) {
  limits_ = options;
  limits_.files = nullptr;
  limits_.adapters = {};
  limits_.progress = {};
  limits_.decorate_attention = {};
  limits_.outputs_max = std::min(options.outputs_max, options.rows_max);
  context_tokens_max_ = served_context_tokens(options, config_);
  AttentionShape shape = attention_shape(own_config_);
  const AttentionLimits limits = {limits_.rows_max, limits_.requests_max, context_tokens_max_};
  if (config_.pool_shape().layers > 0) {
    STEMMA_ASSIGN_OR_RETURN(attention_, make_full_attention(options, limits, threads));
  }
  if (config_.windows.tokens > 0) {
    shape.window_tokens = config_.windows.tokens;
    STEMMA_ASSIGN_OR_RETURN(windowed_attention_,
                            make_attention(options.attention, shape, limits, threads));
    if (options.decorate_attention) {
      windowed_attention_ = options.decorate_attention(std::move(windowed_attention_), shape);
    }
  }
  STEMMA_ASSIGN_OR_RETURN(
      transformer_,
      Transformer::create({.config = own_config_,
                           .weights = weights_,
                           .limits = {limits_.rows_max, limits_.outputs_max, limits_.requests_max},
                           .attention = attention_.get(),
                           .windowed_attention = windowed_attention_.get(),
                           .threads = threads,
                           .ranks = options.ranks}));
  return {};
}

Result<std::unique_ptr<Attention>> ModelRunner::make_full_attention(
    const ModelRunnerOptions& options, const AttentionLimits& limits, ThreadPool& threads) const {
  const AttentionShape shape = attention_shape(own_config_);
  Result<std::unique_ptr<Attention>> attention =
      options.sparse.has_value()
          ? make_sparse_attention(options.attention, shape, options.sparse->dial, limits, threads)
          : make_attention(options.attention, shape, limits, threads);
  if (!attention.ok() || !options.decorate_attention) return attention;
  return options.decorate_attention(std::move(attention).value(), shape);
}

Status ModelRunner::put(AdapterId place, Adapter adapter) {
  adapters_.resize(std::max(adapters_.size(), place.index() + 1));
  adapters_[place.index()] = std::move(adapter);
  const Status used = transformer_->use_adapters(adapters_);
  if (!used.ok()) drop(place);
  return used;
}

void ModelRunner::drop(AdapterId place) {
  adapters_[place.index()] = {};
}

Result<LogitsView> ModelRunner::forward(const KvBatch& batch, KvPools pools) {
  STEMMA_RETURN_IF_ERROR(check_batch(batch, batch_limits(*this, limits_)));
  STEMMA_RETURN_IF_ERROR(check_pools(batch, pools, *this));
  return transformer_->forward(batch, pools);
}

KvShape ModelRunner::pool_shape() const {
  KvShape shape = own_config_.pool_shape();
  if (limits_.sparse.has_value()) {
    shape.kind = KvKind::kDoubleSparse;
    shape.label_channels = own_heavy_channels_.channels_each;
  }
  return shape;
}

std::string ModelRunner::weights_sha256() const {
  return to_hex(weights_.digest);
}

std::vector<std::pair<std::string, std::string>> ModelRunner::namespace_fields() const {
  std::vector<std::pair<std::string, std::string>> fields = {
      {"weights_sha256", weights_sha256()},
      {"config_sha256", config_digest_},
      {"compute_format", weights_.compute_format()},
      {"rope", rope_text(config_.rope)},
      {"attention", limits_.attention},
      {"arithmetic_revision", std::to_string(kArithmeticRevision)},
      {"simd_target", std::string(simd_target_name())},
      {"math_library", math_library_name()}};
  if (config_.mixture.experts > 0) fields.emplace_back("experts", mixture_text(config_.mixture));
  if (limits_.ranks != nullptr) {
    fields.emplace_back("tensor_parallel_rank", std::to_string(limits_.ranks->rank()));
    fields.emplace_back("tensor_parallel_ranks", std::to_string(limits_.ranks->ranks()));
  }
  if (limits_.sparse.has_value()) {
    for (auto& field : sparse_namespace_fields(heavy_channels_, limits_.sparse->dial)) {
      fields.push_back(std::move(field));
    }
  }
  return fields;
}

}  // namespace stemma
