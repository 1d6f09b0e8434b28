#include "cuda/cuda_transformer.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "cuda/turn_cuda.h"
#include "model/rope.h"
#include "model/transformer.h"

namespace stemma {
namespace {

// The plain type of a pool's elements. REQUIRES: they are not scaled.
WeightType plain_type(DType dtype) {
  if (dtype == DType::kF32) return WeightType::kF32;
  return dtype == DType::kF16 ? WeightType::kF16 : WeightType::kBf16;
}

TurnTarget target_of(const StoreTarget& layer) {
  return {.k = layer.k,
          .v = layer.v,
          .type = plain_type(layer.dtype),
          .slots = layer.slots,
          .page_size = layer.page_size,
          .page_stride = layer.page_stride,
          .token_stride = layer.token_stride};
}

}  // namespace

Result<std::unique_ptr<CudaTransformer>> CudaTransformer::create(
    const CudaTransformerParts& parts) {
  auto transformer = std::make_unique<CudaTransformer>(Key(), parts);
  STEMMA_RETURN_IF_ERROR(transformer->allocate());
  if (parts.config.latent.rank > 0) {
    STEMMA_ASSIGN_OR_RETURN(transformer->latent_,
                            CudaLatent::create({.config = parts.config,
                                                .type = parts.weights.type,
                                                .rows_max = parts.limits.rows_max,
                                                .device = parts.device,
                                                .stream = parts.stream,
                                                .gemm = parts.gemm,
                                                .adapters = parts.adapters}));
  }
  STEMMA_RETURN_IF_ERROR(transformer->upload_angles(parts.threads));
  if (parts.config.mixture.experts > 0) {
    STEMMA_ASSIGN_OR_RETURN(transformer->mixture_,
                            CudaMixture::create({.config = parts.config.mixture,
                                                 .hidden = parts.config.hidden,
                                                 .rows_max = parts.limits.rows_max,
                                                 .type = parts.weights.type,
                                                 .device = parts.device,
                                                 .stream = parts.stream,
                                                 .peers = parts.peers,
                                                 .adapters = &parts.adapters}));
  }
  return transformer;
}

CudaTransformer::CudaTransformer(Key, const CudaTransformerParts& parts)
    : config_(parts.config),
      weights_(parts.weights),
      limits_(parts.limits),
      device_(parts.device),
      stream_(parts.stream),
      gemm_(parts.gemm),
      peers_(parts.peers),
      adapters_(parts.adapters),
      qkv_columns_(parts.config.latent.rank > 0
                       ? 0
                       : parts.config.query_columns() + 2 * parts.config.kv_columns()),
      value_columns_(parts.config.value_columns() *
                     (peers_ == nullptr ? 1 : peers_->shard().ranks)) {}

Status CudaTransformer::allocate() {
  const auto row_bytes = static_cast<std::int64_t>(weight_type_bytes(weights_.type));
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t rows = limits_.rows_max;
  const std::int64_t outputs = limits_.outputs_max;
  const std::int64_t width = std::max(config_.intermediate, config_.mixture.shared_width);
  STEMMA_RETURN_IF_ERROR(allocate_rows(residual_, rows, config_.hidden * kFloat));
  STEMMA_RETURN_IF_ERROR(allocate_rows(normed_, rows, config_.hidden * row_bytes));
  STEMMA_RETURN_IF_ERROR(allocate_rows(branch_, rows, config_.hidden * kFloat));
  STEMMA_RETURN_IF_ERROR(allocate_rows(qkv_, rows, qkv_columns_ * kFloat));
  STEMMA_RETURN_IF_ERROR(allocate_rows(query_, rows, config_.query_columns() * row_bytes));
  STEMMA_RETURN_IF_ERROR(allocate_rows(values_, rows, value_columns_ * row_bytes));
  STEMMA_RETURN_IF_ERROR(allocate_rows(gate_up_, rows, 2 * own_columns(width) * row_bytes));
  STEMMA_RETURN_IF_ERROR(allocate_rows(gated_, rows, width * row_bytes));
  STEMMA_RETURN_IF_ERROR(allocate_rows(logits_, outputs, config_.vocab_tokens * kFloat));
  STEMMA_RETURN_IF_ERROR(allocate_rows(broken_, rows, sizeof(std::int32_t)));
  return allocate_rows(sampled_, outputs, sizeof(std::int32_t));
}

Status CudaTransformer::allocate_rows(CudaMemory& memory, std::int64_t rows,
                                      std::int64_t row_bytes) {
  STEMMA_ASSIGN_OR_RETURN(memory,
                          device_.allocate(static_cast<std::size_t>(rows * row_bytes), stream_));
  return {};
}

Status CudaTransformer::upload_angles(ThreadPool& threads) {
  STEMMA_ASSIGN_OR_RETURN(CudaUpload upload, CudaUpload::open(device_, stream_, threads));
  STEMMA_RETURN_IF_ERROR(upload_angles_of(config_.rope, threads, upload, angles_));
  if (config_.windowed_rope.has_value()) {
    STEMMA_RETURN_IF_ERROR(
        upload_angles_of(*config_.windowed_rope, threads, upload, windowed_angles_));
  }
  return stream_.synchronize();
}

Status CudaTransformer::upload_angles_of(const RopeConfig& config, ThreadPool& threads,
                                         CudaUpload& upload, CudaMemory& angles) {
  constexpr std::int64_t kTaskPositions = 256;
  const Rope rope(config, config_.turned_dim());
  const auto pairs = static_cast<std::size_t>(config_.turned_dim() / 2);
  std::vector<float> table(static_cast<std::size_t>(limits_.context_tokens_max) * 2 * pairs);
  threads.run(ceil_div(limits_.context_tokens_max, kTaskPositions), [&](std::int64_t task, int) {
    std::vector<float> cosines(pairs);
    std::vector<float> sines(pairs);
    const std::int64_t end = std::min((task + 1) * kTaskPositions, limits_.context_tokens_max);
    for (std::int64_t position = task * kTaskPositions; position < end; ++position) {
      rope.angles(position, cosines, sines);
      float* const row = &table[static_cast<std::size_t>(position) * 2 * pairs];
      for (std::size_t pair = 0; pair < pairs; ++pair) {
        row[2 * pair] = cosines[pair];
        row[2 * pair + 1] = sines[pair];
      }
    }
  });
  const auto bytes = std::as_bytes(std::span(table));
  STEMMA_ASSIGN_OR_RETURN(angles, device_.allocate(bytes.size(), stream_));
  return upload.write(angles.bytes(), bytes);
}

Status CudaTransformer::run(const CudaStep& step, const StepPlaces& places) {
  STEMMA_CHECK_LE(step.rows, limits_.rows_max);
  STEMMA_CHECK_LE(step.outputs, limits_.outputs_max);
  STEMMA_RETURN_IF_ERROR(embed(step, places));
  Branch before;  // what the layer before gave, and nobody has added yet
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    const CudaLayerWeights& layer = weights_.layers[i];
    NormRows norm = norm_of(before, layer.attention_norm);
    norm.rows = step.rows;
    STEMMA_RETURN_IF_ERROR(norm_rows(stream_, norm));
    const Place place = place_of(i, step, places);
    STEMMA_RETURN_IF_ERROR(attend(step, places, layer, place));
    norm = norm_of({branch_.as<float>(), layer.output_bias, layer.attention_branch_norm},
                   layer.mlp_norm);
    norm.rows = step.rows;
    STEMMA_RETURN_IF_ERROR(norm_rows(stream_, norm));
    STEMMA_RETURN_IF_ERROR(mlp(step, layer, place.adapted));
    before = {branch_.as<float>(), layer.down_bias, layer.mlp_branch_norm};
  }
  return head(step, places, before);
}

Status CudaTransformer::embed(const CudaStep& step, const StepPlaces& places) {
  return embed_rows(stream_, {.tokens = places.tokens,
                              .sampled = sampled_.as<std::int32_t>(),
                              .embeddings = weights_.embeddings.values,
                              .residual = residual_.as<float>(),
                              .rows = step.rows,
                              .hidden = config_.hidden,
                              .vocab_tokens = config_.vocab_tokens,
                              .scale = embedding_scale(config_, weights_.embeddings_type),
                              .type = weights_.embeddings.type,
                              .codes = weights_.embeddings.codes});
}

CudaTransformer::Place CudaTransformer::place_of(std::size_t layer, const CudaStep& step,
                                                 const StepPlaces& places) const {
  const auto index = static_cast<std::int64_t>(layer);
  const std::int64_t in_group = config_.windows.place(index);
  const AdaptedLayer adapted = {index, places.adapters};
  if (!config_.windows.at_layer(index)) {
    return {step.full, angles_.as<float>(), places.slots, in_group, adapted};
  }
  const CudaMemory& angles = config_.windowed_rope.has_value() ? windowed_angles_ : angles_;
  return {step.windowed, angles.as<float>(), places.windowed_slots, in_group, adapted};
}

NormRows CudaTransformer::norm_of(const Branch& branch, const float* norm) const {
  return {.residual = residual_.as<float>(),
          .branch = branch.rows,
          .bias = branch.bias,
          .branch_norm = branch.norm,
          .norm = norm,
          .out = normed_.bytes(),
          .hidden = config_.hidden,
          .epsilon = static_cast<float>(config_.norm_epsilon),
          .type = weights_.type};
}

Status CudaTransformer::attend(const CudaStep& step, const StepPlaces& places,
                               const CudaLayerWeights& layer, const Place& place) {
  STEMMA_RETURN_IF_ERROR(write_queries_and_keys(step, places, layer, place));
  const bool arriving = step.arriving != nullptr && &place.group == &step.full;
  if (arriving && !step.arriving->wait_on(stream_, place.layer)) {
    return Error{ErrorCode::kCorrupt, "batch: a page that was still arriving is wrong"};
  }
  std::byte* const attended = latent_ != nullptr ? latent_->attended() : part_of(values_);
  STEMMA_RETURN_IF_ERROR(place.group.attention->run(
      stream_, place.group.pool->layer_view(place.layer), query_.bytes(), attended));
  if (latent_ != nullptr) {
    STEMMA_RETURN_IF_ERROR(
        latent_->write_values(layer.latent, step.rows, part_of(values_), place.adapted));
  }
  STEMMA_RETURN_IF_ERROR(gather(values_, step.rows, value_columns_));
  return multiply_cut({.x = values_.bytes(),
                       .w = layer.output,
                       .whole = branch_,
                       .outputs = config_.hidden,
                       .inputs = value_columns_,
                       .adapted_or_null = &place.adapted,
                       .projection = Projection::kOutput},
                      step.rows);
}

// The rows that attention compares and the pool keeps.
Status CudaTransformer::write_queries_and_keys(const CudaStep& step, const StepPlaces& places,
                                               const CudaLayerWeights& layer, const Place& place) {
  if (latent_ != nullptr) return write_latent_rows(step, places, layer, place);
  STEMMA_RETURN_IF_ERROR(multiply(
      {normed_.bytes(), layer.qkv, qkv_.bytes(), qkv_columns_, config_.hidden, true}, step.rows));
  STEMMA_RETURN_IF_ERROR(adapt_heads(place.adapted, step.rows));
  return turn_and_store(step, places, layer, place);
}

Status CudaTransformer::write_latent_rows(const CudaStep& step, const StepPlaces& places,
                                          const CudaLayerWeights& layer, const Place& place) {
  CudaPool& pool = *place.group.pool;
  const bool scaled = is_scaled(pool.shape().dtype);
  STEMMA_RETURN_IF_ERROR(latent_->write_rows(
      layer.latent, {.normed = normed_.bytes(),
                     .angles = place.angles,
                     .positions = places.positions,
                     .target = scaled ? TurnTarget() : target_of(pool.store_target(place.layer)),
                     .slots = place.slots,
                     .query = query_.bytes(),
                     .rows = step.rows,
                     .adapted = place.adapted}));
  if (!scaled) return {};
  return pool.store_on(stream_, place.layer, {.narrow = place.slots, .count = step.rows},
                       latent_->stored_rows(step.rows), KvRows());
}

Status CudaTransformer::turn_and_store(const CudaStep& step, const StepPlaces& places,
                                       const CudaLayerWeights& layer, const Place& place) {
  const CudaPool& pool = *place.group.pool;
  // Scales and labels are the pool's affair.
  const bool plain = !is_scaled(pool.shape().dtype) && pool.shape().kind != KvKind::kDoubleSparse;
  STEMMA_RETURN_IF_ERROR(turn_rows(
      stream_, {.qkv = qkv_.as<float>(),
                .bias = layer.qkv_bias,
                .query_norm = layer.query_norm,
                .key_norm = layer.key_norm,
                .angles = place.angles,
                .positions = places.positions,
                .query = query_.bytes(),
                .query_type = weights_.type,
                .rows = step.rows,
                .query_heads = config_.query_heads,
                .kv_heads = config_.kv_heads,
                .head_dim = config_.head_dim,
                .epsilon = static_cast<float>(config_.norm_epsilon),
                .target = plain ? target_of(pool.store_target(place.layer)) : TurnTarget(),
                .slots = place.slots}));
  return plain ? Status() : store_by_pool(step, place);
}

Status CudaTransformer::store_by_pool(const CudaStep& step, const Place& place) {
  const auto rows_from = [&](std::int64_t column) {
    return KvRows{.elements = qkv_.as<float>() + column,
                  .dtype = DType::kF32,
                  .device = DeviceKind::kCuda,
                  .rows = step.rows,
                  .heads = config_.kv_heads,
                  .head_dim = config_.head_dim,
                  .row_stride = qkv_columns_};
  };
  const DeviceSlots slots = {.narrow = place.slots, .count = step.rows};
  const std::int64_t keys = config_.query_columns();
  return place.group.pool->store_on(stream_, place.layer, slots, rows_from(keys),
                                    rows_from(keys + config_.kv_columns()));
}

Status CudaTransformer::mlp(const CudaStep& step, const CudaLayerWeights& layer,
                            const AdaptedLayer& adapted) {
  const CudaMixtureWeights& mixture = layer.mixture;
  if (mixture.router.empty()) {
    return gated_mlp({layer.gate_up, layer.gate_up_bias, layer.down, config_.intermediate}, adapted,
                     step.rows);
  }
  const bool shared = !mixture.shared_gate_up.empty();
  if (shared) {
    STEMMA_RETURN_IF_ERROR(gated_mlp(
        {mixture.shared_gate_up, nullptr, mixture.shared_down, config_.mixture.shared_width},
        adapted, step.rows));
  }
  return mixture_->add(mixture, {.in = normed_.bytes(),
                                 .out = branch_.as<float>(),
                                 .rows = step.rows,
                                 .from_zero = !shared,
                                 .adapted = adapted});
}

// What an MLP says to the rows that were normalised last.
Status CudaTransformer::gated_mlp(const GatedMlp& mlp, const AdaptedLayer& adapted,
                                  std::int64_t rows) {
  const std::int64_t own = own_columns(mlp.width);
  STEMMA_RETURN_IF_ERROR(multiply(
      {normed_.bytes(), mlp.gate_up, gate_up_.bytes(), 2 * own, config_.hidden, false}, rows));
  STEMMA_RETURN_IF_ERROR(adapt_gates(adapted, own, rows));
  STEMMA_RETURN_IF_ERROR(gate_rows(stream_, {.gate_up = gate_up_.bytes(),
                                             .bias = mlp.gate_up_bias,
                                             .out = part_of(gated_),
                                             .rows = rows,
                                             .width = own,
                                             .gelu = config_.activation == Activation::kGeluTanh,
                                             .type = weights_.type}));
  STEMMA_RETURN_IF_ERROR(gather(gated_, rows, mlp.width));
  return multiply_cut({.x = gated_.bytes(),
                       .w = mlp.down,
                       .whole = branch_,
                       .outputs = config_.hidden,
                       .inputs = mlp.width,
                       .adapted_or_null = &adapted,
                       .projection = Projection::kDown},
                      rows);
}

Status CudaTransformer::adapt_heads(const AdaptedLayer& adapted, std::int64_t rows) {
  float* const query = qkv_.as<float>();
  float* const key = query + config_.query_columns();
  const auto bytes_of = [](float* values) { return reinterpret_cast<std::byte*>(values); };
  const AdaptedProduct products[] = {
      {Projection::kQuery, bytes_of(query), config_.query_columns()},
      {Projection::kKey, bytes_of(key), config_.kv_columns()},
      {Projection::kValue, bytes_of(key + config_.kv_columns()), config_.kv_columns()}};
  return adapters_.add({.of = adapted,
                        .x = normed_.bytes(),
                        .inputs = config_.hidden,
                        .rows = rows,
                        .y_stride = qkv_columns_},
                       products);
}

// What adapters add is rounded to the type of rows once more: a row without one keeps its bits.
Status CudaTransformer::adapt_gates(const AdaptedLayer& adapted, std::int64_t width,
                                    std::int64_t rows) {
  const std::size_t up = static_cast<std::size_t>(width) * weight_type_bytes(weights_.type);
  const AdaptedProduct products[] = {{Projection::kGate, gate_up_.bytes(), width},
                                     {Projection::kUp, gate_up_.bytes() + up, width}};
  return adapters_.add({.of = adapted,
                        .x = normed_.bytes(),
                        .inputs = config_.hidden,
                        .rows = rows,
                        .y_stride = 2 * width,
                        .f32_out = false},
                       products);
}

// Of its outputs those of this rank, before the ranks gather them.
Status CudaTransformer::adapt_part(const CutProduct& product, std::int64_t rows) {
  if (product.adapted_or_null == nullptr) return {};
  const std::int64_t own = own_columns(product.outputs);
  const AdaptedProduct part = {product.projection, part_of(product.whole), own};
  return adapters_.add({.of = *product.adapted_or_null,
                        .x = product.x,
                        .inputs = product.inputs,
                        .rows = rows,
                        .y_stride = own},
                       {&part, 1});
}

// Only the rows whose logits are wanted are normalised and projected. A row that stored a V that is
// no number has met it itself, in the same layer: so it shows in the end, and so do rows before it
// that tiles of keys made it meet. An infinite K may show in later rows alone, which it then makes
// what computing it anew would.
Status CudaTransformer::head(const CudaStep& step, const StepPlaces& places, const Branch& branch) {
  STEMMA_RETURN_IF_ERROR(find_broken_rows(stream_, {.residual = residual_.as<float>(),
                                                    .branch = branch.rows,
                                                    .broken = broken_.as<std::int32_t>(),
                                                    .rows = step.rows,
                                                    .hidden = config_.hidden}));
  NormRows norm = norm_of(branch, weights_.final_norm);
  norm.chosen = places.logit_rows;
  norm.rows = step.outputs;
  norm.keep = false;
  STEMMA_RETURN_IF_ERROR(norm_rows(stream_, norm));
  STEMMA_RETURN_IF_ERROR(multiply_cut({.x = normed_.bytes(),
                                       .w = weights_.head,
                                       .whole = logits_,
                                       .outputs = config_.vocab_tokens,
                                       .inputs = config_.hidden},
                                      step.outputs));
  return top_rows(stream_, {.logits = logits_.as<float>(),
                            .tokens = sampled_.as<std::int32_t>(),
                            .rows = step.outputs,
                            .columns = config_.vocab_tokens,
                            .cap = static_cast<float>(config_.logit_cap)});
}

Status CudaTransformer::multiply(const Product& product, std::int64_t rows) {
  return gemm_.multiply({.x = product.x,
                         .w = product.w.values,
                         .y = product.y,
                         .m = rows,
                         .n = product.outputs,
                         .k = product.inputs,
                         .type = weights_.type,
                         .f32_out = product.f32_out,
                         .f32_w = product.w.is_f32(),
                         .codes = product.w.codes});
}

Status CudaTransformer::multiply_cut(const CutProduct& product, std::int64_t rows) {
  STEMMA_RETURN_IF_ERROR(multiply({.x = product.x,
                                   .w = product.w,
                                   .y = part_of(product.whole),
                                   .outputs = own_columns(product.outputs),
                                   .inputs = product.inputs,
                                   .f32_out = true},
                                  rows));
  STEMMA_RETURN_IF_ERROR(adapt_part(product, rows));
  if (peers_ == nullptr) return {};
  return peers_->gather({rows, product.outputs, sizeof(float)}, product.whole.bytes());
}

std::int64_t CudaTransformer::own_columns(std::int64_t columns) const {
  return peers_ == nullptr ? columns : peers_->own_columns(columns);
}

std::byte* CudaTransformer::part_of(const CudaMemory& whole) const {
  return peers_ == nullptr ? whole.bytes() : peers_->own();
}

Status CudaTransformer::gather(const CudaMemory& whole, std::int64_t rows, std::int64_t columns) {
  if (peers_ == nullptr) return {};
  const auto element_bytes = static_cast<std::int64_t>(weight_type_bytes(weights_.type));
  return peers_->gather({rows, columns, element_bytes}, whole.bytes());
}

}  // namespace stemma
