#include "cuda/cuda_runner.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "base/math_library.h"
#include "model/config_file.h"
#include "model/rope.h"
#include "model/sparse_calibration.h"
#include "model/weight_files.h"
#include "stemma/version.h"

namespace stemma {
namespace {

// What only a CPU does.
Status check_options(const ModelRunnerOptions& options) {
  const auto refused = [](std::string_view flag) {
    return Error{ErrorCode::kUnsupported, std::string(flag) + " is not for a GPU yet"};
  };
  if (options.decorate_attention) return refused("calibration");
  if (options.attention != "cpu") return refused("--attention " + options.attention);
  return check_limits(options);
}

DType row_dtype(WeightType type) {
  if (type == WeightType::kF32) return DType::kF32;
  return type == WeightType::kF16 ? DType::kF16 : DType::kBF16;
}

Status check_slots_within(std::span<const SlotId> slots, const KvPool& pool) {
  for (const SlotId slot : slots) {
    if (slot.value() < 0 || slot.value() >= pool.shape().slots()) {
      return Error{ErrorCode::kInvalidArgument,
                   "batch: slot " + std::to_string(slot.value()) + " is outside the pool"};
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<CudaRunner>> CudaRunner::load(CudaDevice& device,
                                                     const std::string& directory,
                                                     const ModelRunnerOptions& options,
                                                     const CudaRunnerOptions& cuda_options,
                                                     ThreadPool& threads) {
  STEMMA_RETURN_IF_ERROR(check_options(options));
  PosixFiles system_files;
  Files& files = options.files != nullptr ? *options.files : system_files;
  STEMMA_ASSIGN_OR_RETURN(ConfigFile file, load_config(files, directory));
  STEMMA_RETURN_IF_ERROR(check_computable(file.config, file.path));
  STEMMA_RETURN_IF_ERROR(check_context(options, file.config));
  const Shard shard = Shard::of(options.ranks);
  STEMMA_RETURN_IF_ERROR(check_cut(file.config, shard));
  STEMMA_ASSIGN_OR_RETURN(ModelConfig own_config, config_of_shard(file.config, shard));
  STEMMA_ASSIGN_OR_RETURN(WeightFiles weight_files,
                          WeightFiles::open(files, directory, file.config.coded));
  settle_weights_dtype(weight_files, file.config);
  auto runner = std::make_unique<CudaRunner>(Key(), device, std::move(file.config), cuda_options);
  runner->own_config_ = std::move(own_config);
  runner->config_digest_ = std::move(file.sha256);
  STEMMA_ASSIGN_OR_RETURN(runner->stream_, device.make_stream());
  STEMMA_ASSIGN_OR_RETURN(runner->weights_,
                          load_cuda_weights(runner->config_, weight_files, device, runner->stream_,
                                            threads, {options.weights, shard, options.progress}));
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

CudaRunner::CudaRunner(Key, CudaDevice& device, ModelConfig config,
                       const CudaRunnerOptions& options)
    : device_(device), config_(std::move(config)), options_(options), graphs_(0) {}

// The stream does not come to its end while gathers wait for ranks that are gone.
CudaRunner::~CudaRunner() {
  for (; in_flight_ > 0; --in_flight_) {
    ignore_error(await(first_pending()), "nobody asks what became of the step");
  }
  if (stream_.raw() != nullptr) drain();
}

// A recorded step has the places of the changes that there were.
Status CudaRunner::put(AdapterId place, Adapter adapter) {
  STEMMA_RETURN_IF_ERROR(device_.use_in_thread());
  STEMMA_RETURN_IF_ERROR(stream_.synchronize());
  graphs_.clear();
  return adapters_->put(place, adapter);
}

void CudaRunner::drop(AdapterId place) {
  if (device_.use_in_thread().ok()) adapters_->drop(place);
}

Status CudaRunner::prepare(const ModelRunnerOptions& options, ThreadPool& threads) {
  limits_.rows_max = options.rows_max;
  limits_.outputs_max = std::min(options.outputs_max, options.rows_max);
  limits_.requests_max = options.requests_max;
  limits_.sparse = options.sparse;
  context_tokens_max_ = served_context_tokens(options, config_);
  if (options_.deterministic) {
    gemm_ = make_ordered_gemm(stream_);
  } else {
    STEMMA_ASSIGN_OR_RETURN(gemm_, make_library_gemm(device_, stream_));
  }
  if (options.ranks != nullptr) STEMMA_RETURN_IF_ERROR(prepare_ranks(*options.ranks));
  adapters_ = std::make_unique<CudaAdapters>(
      CudaAdaptersParts{.layers = config_.layers,
                        .experts = config_.mixture.experts,
                        .row_experts = config_.mixture.experts_per_token,
                        .rows_max = limits_.rows_max,
                        .type = weights_.type,
                        .device = device_,
                        .stream = stream_,
                        .threads = threads});
  STEMMA_ASSIGN_OR_RETURN(
      transformer_, CudaTransformer::create(
                        {.config = own_config_,
                         .weights = weights_,
                         .limits = {limits_.rows_max, limits_.outputs_max, context_tokens_max_},
                         .device = device_,
                         .stream = stream_,
                         .gemm = *gemm_,
                         .threads = threads,
                         .peers = peers_.get(),
                         .adapters = *adapters_}));
  STEMMA_ASSIGN_OR_RETURN(rows_, CudaStepRows::create(device_, stream_, limits_.rows_max));
  STEMMA_ASSIGN_OR_RETURN(sampler_, CudaSampler::create(device_, stream_, limits_.outputs_max));
  if (options_.graphs && (peers_ == nullptr || peers_->ranks().records())) {
    graphs_ = CudaGraphs(std::min(limits_.outputs_max, limits_.requests_max));
  }
  return prepare_pending();
}

Status CudaRunner::prepare_ranks(RankGroup& ranks) {
  STEMMA_ASSIGN_OR_RETURN(peers_, CudaRankRows::create({.config = config_,
                                                        .type = weights_.type,
                                                        .rows_max = limits_.rows_max,
                                                        .outputs_max = limits_.outputs_max,
                                                        .device = device_,
                                                        .stream = stream_,
                                                        .group = ranks,
                                                        .staged = options_.staged_ranks,
                                                        .maker = options_.ranks_maker}));
  return {};
}

Status CudaRunner::prepare_pending() {
  const auto rows = static_cast<std::size_t>(limits_.rows_max);
  const auto outputs = static_cast<std::size_t>(limits_.outputs_max);
  const std::size_t logits_bytes = sizeof(float) * static_cast<std::size_t>(config_.vocab_tokens);
  for (Pending& pending : pending_) {
    STEMMA_ASSIGN_OR_RETURN(pending.logits, device_.allocate_pinned(outputs * logits_bytes));
    STEMMA_ASSIGN_OR_RETURN(pending.tokens,
                            device_.allocate_pinned(outputs * sizeof(std::int32_t)));
    STEMMA_ASSIGN_OR_RETURN(pending.broken, device_.allocate_pinned(rows * sizeof(std::int32_t)));
    STEMMA_ASSIGN_OR_RETURN(pending.done, device_.make_event());
  }
  return {};
}

Result<LogitsView> CudaRunner::forward(const KvBatch& batch, KvPools pools) {
  STEMMA_CHECK(in_flight_ == 0, "nothing is queued");
  const StepWish wish = {.logits = peers_ == nullptr || peers_->shard().rank == 0};
  STEMMA_RETURN_IF_ERROR(queue_within(batch_limits(*this, limits_), batch, pools, wish));
  STEMMA_ASSIGN_OR_RETURN(const StepOutputs outputs, wait());
  return outputs.logits;
}

Status CudaRunner::queue(const KvBatch& batch, KvPools pools, const StepWish& wish) {
  BatchLimits limits = batch_limits(*this, limits_);
  limits.sampled_tokens = outputs_before_;
  return queue_within(limits, batch, pools, wish);
}

Status CudaRunner::queue_within(const BatchLimits& limits, const KvBatch& batch, KvPools pools,
                                const StepWish& wish) {
  STEMMA_CHECK(in_flight_ < pending_.size(), "at most one step was not waited for");
  STEMMA_RETURN_IF_ERROR(check_batch(batch, limits));  // which all ranks find alike
  const std::size_t next_before = next_;
  const std::size_t in_flight_before = in_flight_;
  Pending* const before = in_flight_ > 0 ? &first_pending() : nullptr;
  const Status queued = conclude(queue_here(batch, pools, wish), before);
  if (queued.ok()) return {};
  // Pages of a batch that failed go to others, who must not meet what is queued of it (I6).
  drain();
  next_ = next_before;
  in_flight_ = in_flight_before;
  return queued;
}

Status CudaRunner::queue_here(const KvBatch& batch, const KvPools& pools, const StepWish& wish) {
  STEMMA_RETURN_IF_ERROR(device_.use_in_thread());  // it may be another than the one that loaded
  STEMMA_RETURN_IF_ERROR(check_pools(batch, pools, *this));
  STEMMA_RETURN_IF_ERROR(check_slots(batch, pools));
  STEMMA_RETURN_IF_ERROR(use_pools(pools));
  return queue_step(batch, wish);
}

// What became of a step on all ranks. `before`: the one before it, which all have queued: it comes
// to its end before what others wait for is given up.
Status CudaRunner::conclude(const Status& queued, Pending* before_or_null) {
  if (peers_ == nullptr) return queued;
  const Status concluded = peers_->ranks().conclude(queued);
  if (concluded.ok()) return {};
  if (before_or_null != nullptr) before_or_null->failed = await(*before_or_null);
  graphs_.clear();
  peers_->ranks().start_over();
  return concluded;
}

Status CudaRunner::await(const Pending& pending) {
  STEMMA_RETURN_IF_ERROR(pending.failed);
  if (peers_ == nullptr) return pending.done.wait();
  const Status waited = peers_->ranks().wait(pending.done);
  if (waited.ok()) return {};
  graphs_.clear();  // their gathers are of ranks that are given up
  peers_->ranks().give_up();
  return waited;
}

Status CudaRunner::check_slots(const KvBatch& batch, const KvPools& pools) const {
  STEMMA_RETURN_IF_ERROR(check_slots_within(batch.write_slots, pools.full));
  if (config_.windows.tokens == 0) return {};
  return check_slots_within(batch.windowed_slots, *pools.windowed);
}

Status CudaRunner::prepare_for(KvPools pools) {
  STEMMA_RETURN_IF_ERROR(device_.use_in_thread());
  return use_pools(pools);
}

Status CudaRunner::meet_ranks() {
  STEMMA_RETURN_IF_ERROR(device_.use_in_thread());
  return peers_ == nullptr ? Status() : peers_->ranks().meet();
}

Status CudaRunner::use_pools(const KvPools& pools) {
  STEMMA_RETURN_IF_ERROR(use_pool("pool", pools.full, full_, 0));
  if (config_.windows.tokens == 0) return {};
  return use_pool("windowed pool", *pools.windowed, windowed_, config_.windows.tokens);
}

Status CudaRunner::use_pool(const char* name, KvPool& pool, Group& group,
                            std::int64_t window_tokens) {
  auto* const own = dynamic_cast<CudaPool*>(&pool);
  if (own == nullptr || &own->cuda_device() != &device_) {
    return Error{ErrorCode::kInvalidArgument, std::string(name) + ": not one of this GPU"};
  }
  group.pool = own;
  const KvShape& shape = own->shape();
  if (shape.layers == 0) return {};
  if (own->number() == group.made_for) return {};
  if (shape.slots() > std::numeric_limits<std::int32_t>::max()) {
    return Error{ErrorCode::kUnsupported, std::string(name) + ": more than 2^31 tokens"};
  }
  STEMMA_RETURN_IF_ERROR(stream_.synchronize());
  graphs_.clear();
  AttentionShape attention = attention_shape(own_config_);
  attention.window_tokens = window_tokens;
  CudaAttentionOptions attention_options = {.row_dtype = row_dtype(weights_.type),
                                            .kv_dtype = shape.dtype,
                                            .page_size = shape.page_size,
                                            .hopper_chunks = options_.hopper_chunks,
                                            .hopper_latent = options_.hopper_latent};
  if (limits_.sparse.has_value()) attention_options.dial = limits_.sparse->dial;
  STEMMA_ASSIGN_OR_RETURN(
      group.attention,
      CudaAttention::create(device_, stream_, attention,
                            {limits_.rows_max, limits_.requests_max, context_tokens_max_},
                            attention_options));
  group.made_for = own->number();
  return {};
}

// The rows of the graph that computes `batch`, or 0.
std::int64_t CudaRunner::bucket_of(const KvBatch& batch) const {
  const std::int64_t rows = batch.rows();
  const bool one_row_each = rows == batch.page_table.requests() &&
                            std::adjacent_find(batch.row_indptr.begin(), batch.row_indptr.end()) ==
                                batch.row_indptr.end();
  return one_row_each && batch.arriving == nullptr ? graphs_.bucket_of(rows) : 0;
}

Status CudaRunner::queue_step(const KvBatch& batch, const StepWish& wish) {
  if (batch.rows() > 0) {
    const std::int64_t bucket = bucket_of(batch);
    STEMMA_RETURN_IF_ERROR(rows_.upload(stream_, batch, bucket));
    STEMMA_RETURN_IF_ERROR(plan(batch, bucket));
    CudaStep step = {.rows = batch.rows(),
                     .outputs = batch.outputs(),
                     .full = {full_.pool, full_.attention.get()},
                     .windowed = {windowed_.pool, windowed_.attention.get()},
                     .arriving = batch.arriving};
    if (bucket > 0) step.rows = step.outputs = bucket;
    const auto queue_rows = [&] { return transformer_->run(step, rows_.places()); };
    STEMMA_RETURN_IF_ERROR(bucket > 0 ? graphs_.run(stream_, bucket, queue_rows) : queue_rows());
    for (const Group* group : {&full_, &windowed_}) {
      if (group->pool != nullptr) STEMMA_RETURN_IF_ERROR(group->pool->record_use(stream_));
    }
  }
  STEMMA_RETURN_IF_ERROR(sampler_.draw(stream_, wish.choices,
                                       {.logits = transformer_->logits(),
                                        .tokens = transformer_->sampled(),
                                        .columns = config_.vocab_tokens}));
  return queue_outcome(batch, wish.logits);
}

Status CudaRunner::plan(const KvBatch& batch, std::int64_t bucket) {
  for (const Group* group : {&full_, &windowed_}) {
    if (group->attention == nullptr) continue;
    CudaAttention& attention = *group->attention;
    STEMMA_RETURN_IF_ERROR(bucket > 0 ? attention.plan_decode(stream_, batch, bucket)
                                      : attention.plan(stream_, batch));
  }
  return {};
}

Status CudaRunner::queue_outcome(const KvBatch& batch, bool logits_wanted) {
  Pending& pending = pending_[next_];
  const auto count = static_cast<std::size_t>(batch.outputs());
  const auto rows = static_cast<std::size_t>(batch.rows());
  pending.rows = batch.rows();
  pending.outputs = batch.outputs();
  pending.has_logits = logits_wanted;
  pending.failed = Status();
  STEMMA_RETURN_IF_ERROR(stream_.copy_out(pending.tokens.bytes(), transformer_->sampled(),
                                          count * sizeof(std::int32_t)));
  STEMMA_RETURN_IF_ERROR(stream_.copy_out(pending.broken.bytes(), transformer_->broken(),
                                          rows * sizeof(std::int32_t)));
  if (pending.has_logits) {
    const auto columns = static_cast<std::size_t>(config_.vocab_tokens);
    STEMMA_RETURN_IF_ERROR(stream_.copy_out(pending.logits.bytes(), transformer_->logits(),
                                            count * columns * sizeof(float)));
  }
  STEMMA_RETURN_IF_ERROR(stream_.record(pending.done));
  next_ = (next_ + 1) % pending_.size();
  ++in_flight_;
  outputs_before_ = batch.outputs();
  return {};
}

Result<StepOutputs> CudaRunner::wait() {
  STEMMA_CHECK(in_flight_ > 0, "a step is queued");
  const Pending& pending = first_pending();
  --in_flight_;
  STEMMA_RETURN_IF_ERROR(await(pending));
  StepOutputs outputs;
  outputs.logits = {pending.logits.as<float>(), pending.has_logits ? pending.outputs : 0,
                    config_.vocab_tokens};
  outputs.tokens = {pending.tokens.as<TokenId>(), static_cast<std::size_t>(pending.outputs)};
  outputs.broken_rows = {pending.broken.as<std::int32_t>(), static_cast<std::size_t>(pending.rows)};
  return outputs;
}

void CudaRunner::drain() {
  ignore_error(stream_.synchronize(), "a device that failed computes nothing any more");
}

std::string CudaRunner::compute_format() const {
  return compute_format_of(weights_);
}

std::string CudaRunner::weights_sha256() const {
  return to_hex(weights_.digest);
}

KvShape CudaRunner::pool_shape() const {
  KvShape shape = own_config_.pool_shape();
  if (limits_.sparse.has_value()) {
    shape.kind = KvKind::kDoubleSparse;
    shape.label_channels = own_heavy_channels_.channels_each;
  }
  return shape;
}

std::vector<std::pair<std::string, std::string>> CudaRunner::namespace_fields() const {
  const CudaTraits& traits = device_.traits();
  std::vector<std::pair<std::string, std::string>> fields = {
      {"weights_sha256", weights_sha256()},
      {"config_sha256", config_digest_},
      {"compute_format", compute_format()},
      {"rope", rope_text(config_.rope)},
      {"attention", "cuda"},
      {"arithmetic_revision", std::to_string(kArithmeticRevision)},
      {"math_library", math_library_name()},
      {"device", traits.name},
      {"capability", std::to_string(traits.capability)},
      {"products", gemm_->name()},
      {"deterministic", options_.deterministic ? "yes" : "no"}};
  if (config_.mixture.experts > 0) fields.emplace_back("experts", mixture_text(config_.mixture));
  if (limits_.sparse.has_value()) {
    for (auto& field : sparse_namespace_fields(heavy_channels_, limits_.sparse->dial)) {
      fields.push_back(std::move(field));
    }
  }
  if (peers_ != nullptr) {
    fields.emplace_back("tensor_parallel_rank", std::to_string(peers_->shard().rank));
    fields.emplace_back("tensor_parallel_ranks", std::to_string(peers_->shard().ranks));
  }
  return fields;
}

}  // namespace stemma
