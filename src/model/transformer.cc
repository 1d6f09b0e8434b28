#include "model/transformer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/float16.h"
#include "device/gemm.h"
#include "device/row_ops.h"

namespace stemma {
namespace {

// A cosine, or a value that comes from memory by itself, takes as long as so many others.
constexpr std::int64_t kSlowValue = 16;

}  // namespace

float embedding_scale(const ModelConfig& config, WeightType type) {
  if (!config.scaled_embeddings) return 1.0f;
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(config.hidden)));
  if (type == WeightType::kBf16) return to_float(to_bfloat16(root));
  return type == WeightType::kF16 ? to_float(to_float16(root)) : root;
}

Result<std::unique_ptr<Transformer>> Transformer::create(const TransformerParts& parts) {
  auto transformer = std::make_unique<Transformer>(Key{}, parts);
  if (parts.ranks != nullptr) STEMMA_RETURN_IF_ERROR(transformer->make_peers(*parts.ranks));
  STEMMA_RETURN_IF_ERROR(transformer->allocate_scratch());
  STEMMA_RETURN_IF_ERROR(transformer->make_parts());
  return transformer;
}

Transformer::Transformer(Key, const TransformerParts& parts)
    : config_(parts.config),
      weights_(parts.weights),
      limits_(parts.limits),
      threads_(parts.threads),
      norm_epsilon_(static_cast<float>(parts.config.norm_epsilon)),
      embedding_scale_(embedding_scale(parts.config, parts.weights.embeddings.type())),
      full_{parts.attention, Rope(parts.config.rope, parts.config.turned_dim()), {}, {}},
      windowed_{
          parts.windowed_attention,
          Rope(parts.config.windowed_rope.value_or(parts.config.rope), parts.config.turned_dim()),
          {},
          {}},
      adapters_({.rows_max = parts.limits.rows_max,
                 .requests_max = parts.limits.requests_max,
                 .threads = parts.threads}) {}

Status Transformer::make_peers(RankGroup& ranks) {
  const std::int64_t rows_max = limits_.rows_max;
  const std::array gathered = {
      GatheredExtent{rows_max, config_.value_columns() * ranks.ranks()},
      GatheredExtent{rows_max, config_.hidden},
      GatheredExtent{rows_max, config_.widest_mlp()},
      GatheredExtent{limits_.outputs_max, config_.vocab_tokens},
  };
  STEMMA_ASSIGN_OR_RETURN(peers_, RankRows::create(ranks, threads_, gathered));
  return {};
}

Status Transformer::allocate_scratch() {
  const std::int64_t rows_max = limits_.rows_max;
  const int ranks = peers_ == nullptr ? 1 : peers_->shard().ranks;
  const bool leads = peers_ == nullptr || peers_->shard().rank == 0;
  const std::int64_t value_columns = config_.latent.rank > 0 ? 0 : config_.kv_columns();
  const std::array parts = {
      RowsWanted{residual_, rows_max, config_.hidden},
      RowsWanted{branch_, rows_max, config_.hidden},
      RowsWanted{query_, rows_max, config_.query_columns()},
      RowsWanted{key_, rows_max, config_.kv_columns()},
      RowsWanted{value_, rows_max, value_columns},
      RowsWanted{attended_, rows_max, config_.attended_columns()},
      RowsWanted{gate_, rows_max, config_.widest_mlp()},
      RowsWanted{up_, rows_max, config_.widest_mlp()},
      RowsWanted{full_.cosines, rows_max, config_.turned_dim() / 2},
      RowsWanted{full_.sines, rows_max, config_.turned_dim() / 2},
      RowsWanted{windowed_.cosines, rows_max, config_.turned_dim() / 2},
      RowsWanted{windowed_.sines, rows_max, config_.turned_dim() / 2},
      RowsWanted{logits_, limits_.outputs_max, leads ? config_.vocab_tokens : 0},
      RowsWanted{values_, ranks > 1 ? rows_max : 0, config_.value_columns() * ranks},
  };
  STEMMA_ASSIGN_OR_RETURN(scratch_, allocate_rows(parts));
  scratch_.prefault(threads_);  // else the first requests pay for it
  return {};
}

// What only some families have.
Status Transformer::make_parts() {
  if (config_.latent.rank > 0) {
    STEMMA_ASSIGN_OR_RETURN(latent_, LatentAttention::create({.config = config_.latent,
                                                              .heads = config_.query_heads,
                                                              .rows_max = limits_.rows_max,
                                                              .threads = threads_}));
  }
  if (config_.mixture.experts > 0) {
    STEMMA_ASSIGN_OR_RETURN(mixture_, Mixture::create({.config = config_.mixture,
                                                       .hidden = config_.hidden,
                                                       .rows_max = limits_.rows_max,
                                                       .threads = threads_,
                                                       .peers = peers_.get()}));
  }
  return {};
}

Result<LogitsView> Transformer::forward(const KvBatch& batch, KvPools pools) {
  STEMMA_CHECK_LE(batch.rows(), limits_.rows_max);
  STEMMA_CHECK_LE(batch.outputs(), limits_.outputs_max);
  for (LayerGroup* group : {&full_, &windowed_}) {
    if (group->attention != nullptr) group->attention->plan(batch);
  }
  adapters_.plan(batch);
  embed(batch);
  compute_angles(batch);
  Status first_error;
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    const Place place = place_of(i, batch, pools);
    const Status attended = attend(layer, batch, place);
    if (!attended.ok() && peers_ == nullptr) return attended.error();
    if (!attended.ok() && first_error.ok()) first_error = attended;
    mlp(layer, place, batch.rows());
  }
  const LogitsView logits = head(batch);
  STEMMA_RETURN_IF_ERROR(first_error);
  if (peers_ != nullptr) STEMMA_RETURN_IF_ERROR(peers_->status());
  return logits;
}

void Transformer::embed(const KvBatch& batch) {
  for_rows(threads_, {batch.rows(), kSlowValue * config_.hidden}, [&](std::int64_t row) {
    const std::span<float> values = residual_.row(row);
    weights_.embeddings.unpack_row(batch.tokens[static_cast<std::size_t>(row)], values);
    if (!config_.scaled_embeddings) return;
    for (float& value : values) value *= embedding_scale_;
  });
}

void Transformer::compute_angles(const KvBatch& batch) {
  for (LayerGroup* group : {&full_, &windowed_}) {
    if (group->attention == nullptr) continue;
    for_rows(threads_, {batch.rows(), kSlowValue * config_.turned_dim()}, [&](std::int64_t row) {
      group->rope.angles(batch.positions[static_cast<std::size_t>(row)], group->cosines.row(row),
                         group->sines.row(row));
    });
  }
}

Transformer::Place Transformer::place_of(std::size_t layer, const KvBatch& batch,
                                         const KvPools& pools) {
  const auto index = static_cast<std::int64_t>(layer);
  const std::int64_t in_group = config_.windows.place(index);
  const LayerAdapters adapters = {&adapters_, index};
  if (config_.windows.at_layer(index)) {
    return {windowed_, *pools.windowed, in_group, batch.windowed_slots, adapters};
  }
  return {full_, pools.full, in_group, batch.write_slots, adapters};
}

Status Transformer::attend(const LayerWeights& layer, const KvBatch& batch, const Place& place) {
  const std::int64_t rows = batch.rows();
  normalise(layer.attention_norm, rows);
  write_queries_and_keys(layer, place, rows);
  const Status attended = attend_to_pool(batch, place);
  if (!attended.ok() && peers_ == nullptr) return attended;
  const Rows& values = attended_values(layer, place, rows);
  project_output(layer, place, values, rows);
  add_branch(branch_, layer.attention_branch_norm, rows);
  return attended;
}

Status Transformer::attend_to_pool(const KvBatch& batch, const Place& place) {
  STEMMA_RETURN_IF_ERROR(store(place, batch.rows()));
  const bool arriving = batch.arriving != nullptr && &place.group == &full_;
  if (arriving && !batch.arriving->wait(place.layer)) {
    return Error{ErrorCode::kCorrupt, "batch: a page that was still arriving is wrong"};
  }
  place.group.attention->run(place.pool.layer_view(place.layer), query_.values, attended_.values);
  return {};
}

// The rows that attention compares and the pool keeps.
void Transformer::write_queries_and_keys(const LayerWeights& layer, const Place& place,
                                         std::int64_t rows) {
  const LayerGroup& group = place.group;
  if (latent_ != nullptr) {
    const LatentAttention::Angles angles = {group.cosines, group.sines};
    latent_->write_queries(layer.latent, branch_, rows, angles, query_, place.adapters);
    latent_->write_keys(layer.latent, branch_, rows, angles, key_, place.adapters);
    return;
  }
  const std::array outputs = {GemmOutput{layer.query, layer.query_bias, query_.write(rows)},
                              GemmOutput{layer.key, layer.key_bias, key_.write(rows)},
                              GemmOutput{layer.value, layer.value_bias, value_.write(rows)}};
  gemm_all(branch_.read(rows), outputs, threads_);
  place.adapters.add(Projection::kQuery, branch_.read(rows), query_.write(rows));
  place.adapters.add(Projection::kKey, branch_.read(rows), key_.write(rows));
  place.adapters.add(Projection::kValue, branch_.read(rows), value_.write(rows));
  for_rows(threads_, {rows, config_.query_columns() + config_.kv_columns()},
           [&](std::int64_t row) { turn_heads(layer, group, row); });
}

// What the output projection reads.
const Rows& Transformer::attended_values(const LayerWeights& layer, const Place& place,
                                         std::int64_t rows) {
  const Rows& own = latent_ != nullptr
                        ? latent_->values(layer.latent, attended_, rows, place.adapters)
                        : attended_;
  if (peers_ == nullptr) return own;
  peers_->gather(own, rows, values_.write(rows));
  return values_;
}

// The heads of q and k of one row: normalised where the model does that, then turned to the row's
// position.
void Transformer::turn_heads(const LayerWeights& layer, const LayerGroup& group, std::int64_t row) {
  const auto head_dim = static_cast<std::size_t>(config_.head_dim);
  const auto turn = [&](std::span<float> heads, std::span<const float> norm) {
    for (; !heads.empty(); heads = heads.subspan(head_dim)) {
      const std::span<float> one = heads.first(head_dim);
      if (config_.head_norms) {
        rms_norm(one, norm, norm_epsilon_, one);
      }
      rotate_halves(one, group.cosines.row(row), group.sines.row(row));
    }
  };
  turn(query_.row(row), layer.query_norm);
  turn(key_.row(row), layer.key_norm);
}

Status Transformer::store(const Place& place, std::int64_t rows) {
  const auto rows_of = [&](const Rows& source) {
    return KvRows{.elements = source.values,
                  .dtype = DType::kF32,
                  .rows = rows,
                  .heads = config_.kv_heads,
                  .head_dim = config_.head_dim,
                  .row_stride = source.columns};
  };
  return place.pool.store(place.layer, raw(place.slots), rows_of(key_),
                          latent_ != nullptr ? KvRows{} : rows_of(value_));
}

void Transformer::mlp(const LayerWeights& layer, const Place& place, std::int64_t rows) {
  normalise(layer.mlp_norm, rows);
  const MlpScratch scratch = {gate_, up_};
  if (layer.mixture.experts.empty()) {
    gated_mlp(layer.mlp, branch_.read(rows), scratch, branch_.write(rows), threads_,
              {config_.activation, place.adapters, peers_.get()});
    add_branch(branch_, layer.mlp_branch_norm, rows);
  } else {
    add_branch(mixture_->compute(layer.mixture, branch_, rows, scratch, place.adapters),
               layer.mlp_branch_norm, rows);
  }
}

// Only the rows whose logits are wanted are normalised and projected.
LogitsView Transformer::head(const KvBatch& batch) {
  const std::int64_t outputs = batch.outputs();
  for_rows(threads_, {outputs, config_.hidden}, [&](std::int64_t output) {
    const std::int32_t row = batch.logit_rows[static_cast<std::size_t>(output)];
    rms_norm(residual_.row(row), weights_.final_norm, norm_epsilon_, branch_.row(output));
  });
  if (outputs == 0) return {logits_.values, 0, config_.vocab_tokens};
  const Rows own = peers_ == nullptr ? logits_ : peers_->own(config_.vocab_tokens);
  gemm(branch_.read(outputs), weights_.head(), {}, own.write(outputs), threads_);
  if (config_.logit_cap > 0) {
    for_rows(threads_, {outputs, own.columns}, [&](std::int64_t output) {
      cap_by_tanh(own.row(output), static_cast<float>(config_.logit_cap));
    });
  }
  if (peers_ == nullptr) return {logits_.values, outputs, config_.vocab_tokens};
  const MatrixView whole = {logits_.values, outputs, config_.vocab_tokens, config_.vocab_tokens};
  peers_->gather_to_first(own, outputs, whole);
  return {logits_.values, peers_->shard().rank == 0 ? outputs : 0, config_.vocab_tokens};
}

void Transformer::normalise(std::span<const float> weight, std::int64_t rows) {
  for_rows(threads_, {rows, config_.hidden}, [&](std::int64_t row) {
    rms_norm(residual_.row(row), weight, norm_epsilon_, branch_.row(row));
  });
}

void Transformer::add_branch(const Rows& branch, std::span<const float> norm, std::int64_t rows) {
  for_rows(threads_, {rows, config_.hidden}, [&](std::int64_t row) {
    if (!norm.empty()) rms_norm(branch.row(row), norm, norm_epsilon_, branch.row(row));
    add_to(residual_.row(row), branch.row(row));
  });
}

void Transformer::project_output(const LayerWeights& layer, const Place& place, const Rows& values,
                                 std::int64_t rows) {
  if (rows == 0) return;
  multiply_cut(values.read(rows),
               {layer.output, layer.output_bias, place.adapters, Projection::kOutput},
               branch_.write(rows), threads_, peers_.get());
}

}  // namespace stemma
