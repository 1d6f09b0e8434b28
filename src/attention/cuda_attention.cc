#include "attention/cuda_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "attention/chunk_attention_cuda.h"
#include "attention/hopper_chunk_attention_cuda.h"
#include "attention/hopper_latent_attention_cuda.h"
#include "attention/plain_attention_cuda.h"
#include "attention/split_attention_cuda.h"

namespace stemma {

namespace {

constexpr AttentionList kLists[] = {kSinglePairs, kSharedPairs, kChunkPairs, kChosenPairs};
static_assert(std::size(kLists) == kAttentionLists);

Error unsupported(std::string detail) {
  return Error{ErrorCode::kUnsupported, std::move(detail), 0};
}
Error invalid(std::string detail) {
  return Error{ErrorCode::kInvalidArgument, std::move(detail), 0};
}

// Those of the device, and no more multiprocessors than it is to use.
CudaTraits traits_used(const CudaDevice& device, const CudaAttentionOptions& options) {
  CudaTraits traits = device.traits();
  if (options.multiprocessors_max > 0) {
    traits.multiprocessors = static_cast<int>(
        std::min<std::int64_t>(traits.multiprocessors, options.multiprocessors_max));
  }
  return traits;
}

// Teams of a list's kernel that a multiprocessor holds at once; 0 if there is no kernel.
std::int64_t residents_of(const AttentionShape& shape, DType dtype, const CudaTraits& traits,
                          AttentionList list) {
  const std::int64_t bytes = traits.team_shared_bytes_max;
  if (dtype == DType::kF32) {
    const bool single = list == kSinglePairs || list == kChosenPairs;
    return single ? plain_attention_residents(shape.head_dim, bytes) : 0;
  }
  if (list == kChunkPairs) return chunk_attention_residents(dtype, shape.head_dim, bytes);
  return split_attention_residents(dtype, shape.head_dim, list, bytes);
}

// The last of the lists that there are kernels for, one after another.
AttentionList last_list(const AttentionShape& shape, DType dtype, const CudaTraits& traits) {
  AttentionList last = kSinglePairs;
  for (const AttentionList list : {kSharedPairs, kChunkPairs}) {
    if (residents_of(shape, dtype, traits, list) == 0) break;
    last = list;
  }
  return last;
}

// Bytes of what a row's items leave of one partition.
std::int64_t sum_bytes(const AttentionShape& shape) {
  constexpr std::int64_t kScalars = 2;  // the largest score, the sum of the weights
  return shape.query_heads * (shape.value_dim() + kScalars) *
         static_cast<std::int64_t>(sizeof(float));
}

Status check_numbers(const CudaAttentionOptions& options) {
  if (options.page_size < 1 || options.table_pages_max < 0 || options.sums_bytes_max < 0) {
    return invalid(fmt::format("attention: pages of {} tokens, {} at most, {} bytes of sums",
                               options.page_size, options.table_pages_max, options.sums_bytes_max));
  }
  if (options.multiprocessors_max < 0) {
    return invalid(
        fmt::format("attention: {} multiprocessors at most", options.multiprocessors_max));
  }
  return {};
}

Status check_support(const AttentionShape& shape, const CudaAttentionOptions& options,
                     const CudaTraits& traits) {
  const bool plain =
      options.kv_dtype == DType::kF32 && has_kernel_of_rows(shape.head_dim, shape.value_dim());
  if (!plain && !has_tensor_kernel(options.kv_dtype, shape.head_dim, shape.value_dim())) {
    return unsupported(fmt::format("attention on a GPU: no rows of {} {}", shape.head_dim,
                                   dtype_name(options.kv_dtype)));
  }
  if (options.dial.has_value() && (is_scaled(options.kv_dtype) || shape.latent_dim != 0 ||
                                   shape.window_tokens != 0 || shape.score_cap > 0)) {
    return unsupported(
        "attention: sparse rows have no scaled or latent rows, window or capped scores");
  }
  if (is_scaled(options.row_dtype)) {
    return invalid(
        fmt::format("attention: rows of f32, f16 or bf16 (got {})", dtype_name(options.row_dtype)));
  }
  if (residents_of(shape, options.kv_dtype, traits, kSinglePairs) == 0) {
    return unsupported(fmt::format("attention: head_dim {} needs more shared memory than {} has",
                                   shape.head_dim, traits.name));
  }
  return {};
}

TokenChoiceLimits choice_limits(const AttentionLimits& limits, const CudaAttentionOptions& options,
                                const CudaTraits& traits) {
  return {.dial = options.dial.value_or(SparseDial()),
          .rows_max = limits.rows_max,
          .context_tokens_max = limits.context_tokens_max,
          .bytes_max = options.choice_bytes_max,
          .multiprocessors = traits.multiprocessors};
}

// 0 if the dial makes no row sparse.
std::int64_t wave_rows(const AttentionShape& shape, const TokenChoiceLimits& limits) {
  if (limits.dial.dense_up_to() >= limits.context_tokens_max) return 0;
  return CudaTokenChoice::wave_rows(shape, limits);
}

CudaPlanLimits plan_limits(const AttentionShape& shape, const AttentionLimits& limits,
                           const CudaAttentionOptions& options, const CudaTraits& traits) {
  const std::int64_t table_pages = CudaAttentionPlan::table_pages(limits, options.page_size);
  const TokenChoiceLimits choice = choice_limits(limits, options, traits);
  const std::int64_t sums =
      std::min(CudaAttentionPlan::sums_wanted(limits), options.sums_bytes_max / sum_bytes(shape));
  return {.batch = limits,
          .page_size = options.page_size,
          .table_pages_max = options.table_pages_max > 0
                                 ? std::min(options.table_pages_max, table_pages)
                                 : table_pages,
          .sums_max = std::max(sums, limits.rows_max),
          .busy_items = traits.multiprocessors,
          .last_list = last_list(shape, options.kv_dtype, traits),
          .share_prefixes = options.share_prefixes && shape.window_tokens == 0,
          .dial = choice.dial,
          .wave_choices = wave_rows(shape, choice)};
}

// Kernels count in 32 bits: sixteenths of an image's bytes, sums.
Status check_extent(const CudaPlanLimits& limits, std::int64_t image_bytes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (limits.table_pages_max <= kMost && limits.sums_max <= kMost && image_bytes / 16 <= kMost) {
    return {};
  }
  return invalid(fmt::format("attention: a batch of {} rows and {} pages is too large",
                             limits.batch.rows_max, limits.table_pages_max));
}

}  // namespace

Result<std::unique_ptr<CudaAttention>> CudaAttention::create(CudaDevice& device, CudaStream& stream,
                                                             const AttentionShape& shape,
                                                             const AttentionLimits& limits,
                                                             const CudaAttentionOptions& options) {
  STEMMA_RETURN_IF_ERROR(validate(shape));
  STEMMA_RETURN_IF_ERROR(validate(limits));
  STEMMA_RETURN_IF_ERROR(check_numbers(options));
  if (options.dial.has_value()) STEMMA_RETURN_IF_ERROR(validate(*options.dial));
  const CudaTraits traits = traits_used(device, options);
  STEMMA_RETURN_IF_ERROR(check_support(shape, options, traits));
  const CudaPlanLimits plan = plan_limits(shape, limits, options, traits);
  auto attention = std::make_unique<CudaAttention>(Key(), traits, shape, options, plan);
  STEMMA_RETURN_IF_ERROR(check_extent(plan, attention->plan_.image_bytes_max()));
  STEMMA_RETURN_IF_ERROR(attention->allocate(device, stream, plan));
  return attention;
}

CudaAttention::CudaAttention(Key, const CudaTraits& traits, const AttentionShape& shape,
                             const CudaAttentionOptions& options, const CudaPlanLimits& limits)
    : shape_(shape), options_(options), traits_(traits), plan_(shape, limits) {}

Status CudaAttention::allocate(CudaDevice& device, CudaStream& stream,
                               const CudaPlanLimits& limits) {
  const auto image_bytes = static_cast<std::size_t>(plan_.image_bytes_max());
  const auto pairs = static_cast<std::size_t>(limits.sums_max * shape_.query_heads);
  const auto value_dim = static_cast<std::size_t>(shape_.value_dim());
  STEMMA_ASSIGN_OR_RETURN(images_, PinnedTurns::create(device, image_bytes));
  STEMMA_ASSIGN_OR_RETURN(image_, device.allocate(image_bytes, stream));
  STEMMA_ASSIGN_OR_RETURN(sum_values_, device.allocate(pairs * value_dim * sizeof(float), stream));
  STEMMA_ASSIGN_OR_RETURN(sum_weights_, device.allocate(2 * pairs * sizeof(float), stream));
  const std::int64_t team_bytes =
      has_hopper_chunks() ? 0 : chunk_attention_team_bytes(shape_.head_dim);
  const auto chunk_bytes = static_cast<std::size_t>(resident_teams(kChunkPairs) * team_bytes);
  STEMMA_ASSIGN_OR_RETURN(chunk_sums_, device.allocate(chunk_bytes, stream));
  wave_rows_ = limits.wave_choices;
  if (wave_rows_ == 0) return {};
  STEMMA_ASSIGN_OR_RETURN(choice_,
                          CudaTokenChoice::create(device, stream, shape_,
                                                  choice_limits(limits.batch, options_, traits_)));
  return {};
}

bool CudaAttention::has_hopper_chunks() const noexcept {
  return options_.hopper_chunks &&
         has_hopper_chunk_kernel(traits_.capability, options_.kv_dtype, shape_.head_dim);
}

bool CudaAttention::has_hopper_latent() const noexcept {
  return options_.hopper_latent &&
         has_hopper_latent_kernel(traits_.capability, options_.kv_dtype, shape_.head_dim);
}

std::int64_t CudaAttention::resident_teams(AttentionList list) const {
  if (list == kSharedPairs && has_hopper_latent()) {
    return traits_.multiprocessors *
           hopper_latent_attention_residents(traits_.team_shared_bytes_max);
  }
  if (list == kChunkPairs && has_hopper_chunks()) {
    return traits_.multiprocessors *
           hopper_chunk_attention_residents(options_.kv_dtype, shape_.head_dim,
                                            traits_.team_shared_bytes_max);
  }
  return traits_.multiprocessors * residents_of(shape_, options_.kv_dtype, traits_, list);
}

Status CudaAttention::plan(CudaStream& stream, const KvBatch& batch) {
  STEMMA_RETURN_IF_ERROR(plan_.cut(batch));
  for (const AttentionList list : kLists) {
    const auto items = static_cast<std::int64_t>(plan_.items(list).size());
    launches_.teams[list] = std::min(items * shape_.kv_heads, resident_teams(list));
  }
  launches_.merged_rows = static_cast<std::int64_t>(plan_.merged_rows().size());
  const auto choices = static_cast<std::int64_t>(plan_.choices().size());
  launches_.waves = choices > 0 ? ceil_div(choices, wave_rows_) : 0;
  return upload(stream, batch);
}

Status CudaAttention::plan_decode(CudaStream& stream, const KvBatch& batch,
                                  std::int64_t bucket_rows) {
  if (batch.rows() > bucket_rows || batch.rows() != shape_.table(batch).requests()) {
    return invalid(fmt::format("attention: {} rows of {} requests in a bucket of {} rows",
                               batch.rows(), shape_.table(batch).requests(), bucket_rows));
  }
  STEMMA_RETURN_IF_ERROR(plan_.cut(batch));
  launches_ = {.merged_rows = bucket_rows};
  for (const AttentionList list : {plan_.list_of_rows(1), plan_.list_of_runs()}) {
    if (list == plan_.list_of_rows(1) || plan_.shares_prefixes()) {
      launches_.teams[list] = resident_teams(list);
    }
  }
  if (wave_rows_ > 0) {
    launches_.teams[kChosenPairs] = resident_teams(kChosenPairs);
    launches_.waves = ceil_div(bucket_rows, wave_rows_);
  }
  return upload(stream, batch);
}

// Launches that were queued before read the image of the device first: it is one stream.
Status CudaAttention::upload(CudaStream& stream, const KvBatch& batch) {
  STEMMA_ASSIGN_OR_RETURN(std::byte* const image, images_.begin());
  const std::int64_t bytes = plan_.write(batch, image);
  return images_.copy_in(stream, image_.bytes(), static_cast<std::size_t>(bytes));
}

Status CudaAttention::check_layer(const KvLayerView& layer) const {
  constexpr std::int64_t kSlotsMax = std::numeric_limits<std::int32_t>::max();
  if (options_.dial.has_value() &&
      (layer.labels == nullptr || layer.pages * layer.page_size > kSlotsMax)) {
    return invalid("attention: sparse rows need a layer with labels, of less than 2^31 tokens");
  }
  if (layer.dtype == options_.kv_dtype && layer.page_size == options_.page_size &&
      layer.heads == shape_.kv_heads && layer.head_dim == shape_.head_dim &&
      layer.value_dim == shape_.value_dim()) {
    return {};
  }
  return invalid(fmt::format("attention: a layer of {}, pages of {}, {} heads of {} and {}",
                             dtype_name(layer.dtype), layer.page_size, layer.heads, layer.head_dim,
                             layer.value_dim));
}

AttentionParams CudaAttention::params_of(const KvLayerView& layer, const void* q, void* out) const {
  const std::int64_t element = dtype_bytes(layer.dtype);
  const std::int64_t window =
      shape_.window_tokens > 0 ? shape_.window_tokens : std::numeric_limits<std::int32_t>::max();
  return {.image = image_.bytes(),
          .k = static_cast<const std::byte*>(layer.k),
          .v = static_cast<const std::byte*>(layer.v),
          .page_stride = layer.page_stride * element,
          .token_stride = layer.token_stride * element,
          .head_stride = layer.head_stride * element,
          .kv_dtype = layer.dtype,
          .page_size = static_cast<std::int32_t>(layer.page_size),
          .k_scales = layer.k_scales,
          .v_scales = shape_.latent_dim > 0 ? layer.k_scales : layer.v_scales,
          .scale_page_stride = layer.scale_page_stride,
          .scale_head_stride = layer.scale_head_stride,
          .query_heads = static_cast<std::int32_t>(shape_.query_heads),
          .kv_heads = static_cast<std::int32_t>(shape_.kv_heads),
          .head_dim = static_cast<std::int32_t>(shape_.head_dim),
          .value_dim = static_cast<std::int32_t>(shape_.value_dim()),
          .window = static_cast<std::uint32_t>(window),
          .scale = shape_.scale,
          .score_cap = shape_.score_cap,
          .q = q,
          .out = out,
          .row_dtype = options_.row_dtype,
          .sum_values = sum_values_.as<float>(),
          .sum_weights = sum_weights_.as<float>(),
          .chunk_sums = chunk_sums_.bytes()};
}

Status CudaAttention::launch(CudaStream& stream, const AttentionParams& params,
                             AttentionList list) const {
  const std::int64_t teams = launches_.teams[list];
  if (params.kv_dtype == DType::kF32) return plain_attention(stream, params, list, teams);
  if (list == kChunkPairs) {
    return has_hopper_chunks() ? hopper_chunk_attention(stream, params, teams)
                               : chunk_attention(stream, params, teams);
  }
  if (list == kSharedPairs && has_hopper_latent()) {
    return hopper_latent_attention(stream, params, teams);
  }
  return split_attention(stream, params, list, teams);
}

// Each wave's choices are attended to before those of the next one take their place.
Status CudaAttention::launch_waves(CudaStream& stream, AttentionParams params,
                                   const KvLayerView& layer) const {
  for (std::int64_t wave = 0; wave < launches_.waves; ++wave) {
    choice_.place(params, wave);
    STEMMA_RETURN_IF_ERROR(choice_.choose(stream, params, layer));
    STEMMA_RETURN_IF_ERROR(launch(stream, params, kChosenPairs));
  }
  return {};
}

Status CudaAttention::run(CudaStream& stream, const KvLayerView& layer, const void* q, void* out) {
  STEMMA_RETURN_IF_ERROR(check_layer(layer));
  const AttentionParams params = params_of(layer, q, out);
  for (const AttentionList list : kLists) {
    if (launches_.teams[list] == 0 || list == kChosenPairs) continue;
    STEMMA_RETURN_IF_ERROR(launch(stream, params, list));
  }
  STEMMA_RETURN_IF_ERROR(launch_waves(stream, params, layer));
  if (launches_.merged_rows == 0) return {};
  return merge_sums(stream, params, launches_.merged_rows);
}

}  // namespace stemma
