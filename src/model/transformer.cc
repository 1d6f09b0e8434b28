#include "model/transformer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "device/gemm.h"
#include "device/row_ops.h"

namespace stemma {
Result<std::unique_ptr<Transformer>> Transformer::create(const TransformerParts& parts) {
  auto transformer = std::make_unique<Transformer>(Key{}, parts);
  STEMMA_RETURN_IF_ERROR(transformer->allocate_scratch());
  STEMMA_RETURN_IF_ERROR(transformer->make_parts());
  return transformer;
}

Transformer::Transformer(Key, const TransformerParts& parts)
    : config_(parts.config),
      weights_(parts.weights),
      limits_(parts.limits),
      attention_(parts.attention),
      threads_(parts.threads),
      rope_(parts.config.rope, parts.config.turned_dim()),
      norm_epsilon_(static_cast<float>(parts.config.norm_epsilon)) {}

Status Transformer::allocate_scratch() {
  const std::int64_t rows_max = limits_.rows_max;
  const std::int64_t value_columns = config_.latent.rank > 0 ? 0 : config_.kv_columns();
  const std::int64_t inner =
      std::max({config_.intermediate, config_.mixture.width, config_.mixture.shared_width});
  const std::array parts = {
      RowsWanted{residual_, rows_max, config_.hidden},
      RowsWanted{branch_, rows_max, config_.hidden},
      RowsWanted{query_, rows_max, config_.query_columns()},
      RowsWanted{key_, rows_max, config_.kv_columns()},
      RowsWanted{value_, rows_max, value_columns},
      RowsWanted{attended_, rows_max, config_.attended_columns()},
      RowsWanted{gate_, rows_max, inner},
      RowsWanted{up_, rows_max, inner},
      RowsWanted{cosines_, rows_max, config_.turned_dim() / 2},
      RowsWanted{sines_, rows_max, config_.turned_dim() / 2},
      RowsWanted{logits_, limits_.outputs_max, config_.vocab_tokens},
  };
  STEMMA_ASSIGN_OR_RETURN(scratch_, allocate_rows(parts));
  return {};
}

// What only some families have.
Status Transformer::make_parts() {
  if (config_.latent.rank > 0) {
    STEMMA_ASSIGN_OR_RETURN(latent_, LatentAttention::create({.config = config_.latent,
                                                              .heads = config_.query_heads,
                                                              .norm_epsilon = norm_epsilon_,
                                                              .rows_max = limits_.rows_max,
                                                              .threads = threads_}));
  }
  if (config_.mixture.experts > 0) {
    STEMMA_ASSIGN_OR_RETURN(mixture_, Mixture::create({.config = config_.mixture,
                                                       .hidden = config_.hidden,
                                                       .rows_max = limits_.rows_max,
                                                       .threads = threads_}));
  }
  return {};
}

Result<LogitsView> Transformer::forward(const KvBatch& batch, KvPool& pool) {
  STEMMA_CHECK_LE(batch.rows(), limits_.rows_max);
  STEMMA_CHECK_LE(batch.outputs(), limits_.outputs_max);
  attention_.plan(batch);
  embed(batch);
  compute_angles(batch);
  for (std::size_t layer = 0; layer < weights_.layers.size(); ++layer) {
    STEMMA_RETURN_IF_ERROR(attend(layer, batch, pool));
    mlp(weights_.layers[layer], batch.rows());
  }
  return head(batch);
}

void Transformer::embed(const KvBatch& batch) {
  for_rows(threads_, batch.rows(), [&](std::int64_t row) {
    weights_.embeddings.unpack_row(batch.tokens[static_cast<std::size_t>(row)], residual_.row(row));
  });
}

void Transformer::compute_angles(const KvBatch& batch) {
  for_rows(threads_, batch.rows(), [&](std::int64_t row) {
    rope_.angles(batch.positions[static_cast<std::size_t>(row)], cosines_.row(row),
                 sines_.row(row));
  });
}

Status Transformer::attend(std::size_t layer, const KvBatch& batch, KvPool& pool) {
  const LayerWeights& weights = weights_.layers[layer];
  const std::int64_t rows = batch.rows();
  normalise(weights.attention_norm, rows);
  write_queries_and_keys(weights, rows);
  STEMMA_RETURN_IF_ERROR(store(layer, batch, pool));
  if (batch.arriving != nullptr && !batch.arriving->wait(static_cast<std::int64_t>(layer))) {
    return Error{ErrorCode::kCorrupt, "batch: a page that was still arriving is wrong"};
  }
  attention_.run(pool.layer_view(static_cast<std::int64_t>(layer)), query_.values,
                 attended_.values);
  project(attended_values(weights, rows), weights.output, weights.output_bias, branch_, rows);
  add_branch(branch_, rows);
  return {};
}

// The rows that attention compares and the pool keeps.
void Transformer::write_queries_and_keys(const LayerWeights& layer, std::int64_t rows) {
  if (latent_ != nullptr) {
    const LatentAttention::Angles angles = {cosines_, sines_};
    latent_->write_queries(layer.latent, branch_, rows, angles, query_);
    latent_->write_keys(layer.latent, branch_, rows, angles, key_);
    return;
  }
  project(branch_, layer.query, layer.query_bias, query_, rows);
  project(branch_, layer.key, layer.key_bias, key_, rows);
  project(branch_, layer.value, layer.value_bias, value_, rows);
  for_rows(threads_, rows, [&](std::int64_t row) { turn_heads(layer, row); });
}

// What the output projection reads.
const Rows& Transformer::attended_values(const LayerWeights& layer, std::int64_t rows) {
  return latent_ != nullptr ? latent_->values(layer.latent, attended_, rows) : attended_;
}

// The heads of q and k of one row: normalised where the model does that, then turned to the row's
// position.
void Transformer::turn_heads(const LayerWeights& layer, std::int64_t row) {
  const auto head_dim = static_cast<std::size_t>(config_.head_dim);
  const auto turn = [&](std::span<float> heads, std::span<const float> norm) {
    for (; !heads.empty(); heads = heads.subspan(head_dim)) {
      const std::span<float> one = heads.first(head_dim);
      if (config_.head_norms) {
        rms_norm(one, norm, norm_epsilon_, one);
      }
      rotate_halves(one, cosines_.row(row), sines_.row(row));
    }
  };
  turn(query_.row(row), layer.query_norm);
  turn(key_.row(row), layer.key_norm);
}

Status Transformer::store(std::size_t layer, const KvBatch& batch, KvPool& pool) {
  const auto rows_of = [&](const Rows& source) {
    return KvRows{.elements = source.values,
                  .dtype = DType::kF32,
                  .rows = batch.rows(),
                  .heads = config_.kv_heads,
                  .head_dim = config_.head_dim,
                  .row_stride = source.columns};
  };
  return pool.store(static_cast<std::int64_t>(layer), raw(batch.write_slots), rows_of(key_),
                    latent_ != nullptr ? KvRows{} : rows_of(value_));
}

void Transformer::mlp(const LayerWeights& layer, std::int64_t rows) {
  normalise(layer.mlp_norm, rows);
  const MlpScratch scratch = {gate_, up_};
  if (layer.mixture.experts.empty()) {
    gated_mlp(layer.mlp, branch_.read(rows), scratch, branch_.write(rows), threads_);
    add_branch(branch_, rows);
  } else {
    add_branch(mixture_->compute(layer.mixture, branch_, rows, scratch), rows);
  }
}

// Only the rows whose logits are wanted are normalised and projected.
LogitsView Transformer::head(const KvBatch& batch) {
  const std::int64_t outputs = batch.outputs();
  for_rows(threads_, outputs, [&](std::int64_t output) {
    const std::int32_t row = batch.logit_rows[static_cast<std::size_t>(output)];
    rms_norm(residual_.row(row), weights_.final_norm, norm_epsilon_, branch_.row(output));
  });
  project(branch_, weights_.head(), {}, logits_, outputs);
  return LogitsView{logits_.values, outputs, config_.vocab_tokens};
}

void Transformer::normalise(std::span<const float> weight, std::int64_t rows) {
  for_rows(threads_, rows, [&](std::int64_t row) {
    rms_norm(residual_.row(row), weight, norm_epsilon_, branch_.row(row));
  });
}

void Transformer::add_branch(const Rows& branch, std::int64_t rows) {
  for_rows(threads_, rows, [&](std::int64_t row) { add_to(residual_.row(row), branch.row(row)); });
}

void Transformer::project(const Rows& input, const PackedWeights& weights,
                          std::span<const float> bias, const Rows& output, std::int64_t rows) {
  if (rows == 0) {
    return;
  }
  gemm(input.read(rows), weights, bias, output.write(rows), threads_);
}

}  // namespace stemma
