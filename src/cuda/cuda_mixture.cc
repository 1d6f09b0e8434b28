#include "cuda/cuda_mixture.h"

#include "base/check.h"
#include "base/math.h"
#include "cuda/experts_cuda.h"
#include "cuda/rows_cuda.h"
#include "device/gemm_cuda.h"

namespace stemma {
namespace {

// A router has few outputs: of few rows its product would keep a few multiprocessors busy for as
// long as one of them takes to walk over all of `hidden`.
constexpr std::int64_t kScoreSliceColumns = 1024;

}  // namespace

Result<std::unique_ptr<CudaMixture>> CudaMixture::create(const CudaMixtureParts& parts) {
  auto mixture = std::make_unique<CudaMixture>(Key(), parts);
  STEMMA_RETURN_IF_ERROR(mixture->allocate());
  return mixture;
}

CudaMixture::CudaMixture(Key, const CudaMixtureParts& parts)
    : config_(parts.config),
      hidden_(parts.hidden),
      rows_max_(parts.rows_max),
      type_(parts.type),
      device_(parts.device),
      stream_(parts.stream),
      peers_(parts.peers),
      adapters_(parts.adapters),
      own_width_(peers_ == nullptr ? config_.width : peers_->own_columns(config_.width)),
      own_hidden_(peers_ == nullptr ? hidden_ : peers_->own_columns(hidden_)) {
  STEMMA_CHECK(config_.experts > 0, "the model has mixtures");
}

Status CudaMixture::allocate() {
  const auto take = [&](CudaMemory& memory, std::int64_t count, std::size_t bytes) -> Status {
    STEMMA_ASSIGN_OR_RETURN(memory,
                            device_.allocate(static_cast<std::size_t>(count) * bytes, stream_));
    return {};
  };
  const std::int64_t visits = rows_max_ * config_.experts_per_token;
  const std::size_t element_bytes = weight_type_bytes(type_);
  // No batch needs more tiles than there are visits, nor, of the lowest ones, more than this.
  const std::int64_t tiles = expert_tiles_max(visits, config_.experts, 16);
  STEMMA_RETURN_IF_ERROR(take(scores_, slices() * rows_max_ * config_.experts, sizeof(float)));
  STEMMA_RETURN_IF_ERROR(take(chosen_, visits, sizeof(std::int32_t)));
  STEMMA_RETURN_IF_ERROR(take(weights_, visits, sizeof(float)));
  STEMMA_RETURN_IF_ERROR(take(sorted_, visits, sizeof(std::int32_t)));
  STEMMA_RETURN_IF_ERROR(take(sorted_rows_, visits, sizeof(std::int32_t)));
  STEMMA_RETURN_IF_ERROR(take(tiles_, tiles, sizeof(ExpertTile)));
  STEMMA_RETURN_IF_ERROR(take(gate_up_, visits * 2 * own_width_, element_bytes));
  STEMMA_RETURN_IF_ERROR(take(gated_, visits * config_.width, element_bytes));
  return take(said_, visits * own_hidden_, sizeof(float));
}

std::int64_t CudaMixture::slices() const {
  return ceil_div(hidden_, kScoreSliceColumns);
}

CudaMixture::Tiles CudaMixture::tiles_of(std::int64_t rows) const {
  Tiles tiles;
  tiles.visits = rows * config_.experts_per_token;
  tiles.tile_visits = expert_tile_visits(tiles.visits, config_.experts, type_,
                                         device_.traits().team_shared_bytes_max);
  tiles.count = expert_tiles_max(tiles.visits, config_.experts, tiles.tile_visits);
  return tiles;
}

Status CudaMixture::add(const CudaMixtureWeights& weights, const MixtureRows& rows) {
  STEMMA_CHECK_LE(rows.rows, rows_max_);
  const Tiles tiles = tiles_of(rows.rows);
  STEMMA_RETURN_IF_ERROR(choose(weights, rows, tiles));
  STEMMA_RETURN_IF_ERROR(compute(weights, rows, tiles));
  return sum(rows);
}

Status CudaMixture::choose(const CudaMixtureWeights& weights, const MixtureRows& rows,
                           const Tiles& tiles) {
  STEMMA_RETURN_IF_ERROR(ordered_gemm_slices(stream_,
                                             {.x = rows.in,
                                              .w = weights.router.values,
                                              .y = scores_.bytes(),
                                              .m = rows.rows,
                                              .n = config_.experts,
                                              .k = hidden_,
                                              .type = type_,
                                              .f32_out = true,
                                              .f32_w = weights.router.is_f32()},
                                             kScoreSliceColumns));
  STEMMA_RETURN_IF_ERROR(adapt_scores(rows));
  STEMMA_RETURN_IF_ERROR(choose_experts(stream_, {.scores = scores_.as<float>(),
                                                  .correction = weights.correction,
                                                  .chosen = chosen_.as<std::int32_t>(),
                                                  .weights = weights_.as<float>(),
                                                  .rows = rows.rows,
                                                  .slices = slices(),
                                                  .experts = config_.experts,
                                                  .row_experts = config_.experts_per_token,
                                                  .groups = config_.groups,
                                                  .row_groups = config_.groups_per_token,
                                                  .normalised = config_.normalised,
                                                  .scaling = static_cast<float>(config_.scaling)}));
  return sort_visits(stream_, {.chosen = chosen_.as<std::int32_t>(),
                               .sorted = sorted_.as<std::int32_t>(),
                               .rows = sorted_rows_.as<std::int32_t>(),
                               .tiles = tiles_.as<ExpertTile>(),
                               .visits = tiles.visits,
                               .row_experts = config_.experts_per_token,
                               .experts = config_.experts,
                               .tile_visits = tiles.tile_visits,
                               .tiles_count = tiles.count});
}

// What each visit's expert says to its row.
Status CudaMixture::compute(const CudaMixtureWeights& weights, const MixtureRows& rows,
                            const Tiles& tiles) {
  ExpertProduct product = {.x = rows.in,
                           .w = weights.gate_up.values,
                           .y = gate_up_.bytes(),
                           .x_rows = sorted_rows_.as<std::int32_t>(),
                           .tiles = tiles_.as<ExpertTile>(),
                           .tiles_count = tiles.count,
                           .tile_visits = tiles.tile_visits,
                           .n = 2 * own_width_,
                           .k = hidden_,
                           .type = type_,
                           .f32_w = weights.gate_up.is_f32(),
                           .codes = weights.gate_up.codes};
  STEMMA_RETURN_IF_ERROR(multiply_experts(stream_, product));
  STEMMA_RETURN_IF_ERROR(adapt_gates(rows, tiles));
  STEMMA_RETURN_IF_ERROR(gate(tiles));
  product.x = gated_.bytes();
  product.w = weights.down.values;
  product.y = said_.bytes();
  product.x_rows = nullptr;
  product.y_rows = sorted_.as<std::int32_t>();
  product.n = own_hidden_;
  product.k = config_.width;
  product.f32_out = true;
  product.f32_w = weights.down.is_f32();
  product.codes = weights.down.codes;
  STEMMA_RETURN_IF_ERROR(multiply_experts(stream_, product));
  return adapt_words(rows, tiles);
}

// Of the scores' slices the first one has all that adapters add.
Status CudaMixture::adapt_scores(const MixtureRows& rows) {
  if (adapters_ == nullptr) return {};
  const AdaptedProduct product = {Projection::kRouter, scores_.bytes(), config_.experts};
  return adapters_->add({.of = rows.adapted,
                         .x = rows.in,
                         .inputs = hidden_,
                         .rows = rows.rows,
                         .y_stride = config_.experts},
                        {&product, 1});
}

// Rounded once more, as those of an MLP are.
Status CudaMixture::adapt_gates(const MixtureRows& rows, const Tiles& tiles) {
  if (adapters_ == nullptr) return {};
  const std::size_t up = static_cast<std::size_t>(own_width_) * weight_type_bytes(type_);
  const AdaptedProduct products[] = {{Projection::kGate, gate_up_.bytes(), own_width_},
                                     {Projection::kUp, gate_up_.bytes() + up, own_width_}};
  return adapters_->add({.of = rows.adapted,
                         .x = rows.in,
                         .inputs = hidden_,
                         .rows = tiles.visits,
                         .y_stride = 2 * own_width_,
                         .f32_out = false,
                         .visits = visits(),
                         .x_rows = sorted_rows_.as<std::int32_t>()},
                        products);
}

// Of what experts say those outputs that are this rank's.
Status CudaMixture::adapt_words(const MixtureRows& rows, const Tiles& tiles) {
  if (adapters_ == nullptr) return {};
  const AdaptedProduct product = {Projection::kDown, said_.bytes(), own_hidden_};
  return adapters_->add({.of = rows.adapted,
                         .x = gated_.bytes(),
                         .inputs = config_.width,
                         .rows = tiles.visits,
                         .y_stride = own_hidden_,
                         .visits = visits(),
                         .y_rows = sorted_.as<std::int32_t>()},
                        {&product, 1});
}

AdaptedVisits CudaMixture::visits() const {
  return {.rows = sorted_rows_.as<std::int32_t>(),
          .sorted = sorted_.as<std::int32_t>(),
          .chosen = chosen_.as<std::int32_t>()};
}

// What is between the two products, of all ranks.
Status CudaMixture::gate(const Tiles& tiles) {
  STEMMA_RETURN_IF_ERROR(
      gate_rows(stream_, {.gate_up = gate_up_.bytes(),
                          .out = peers_ == nullptr ? gated_.bytes() : peers_->own(),
                          .rows = tiles.visits,
                          .width = own_width_,
                          .type = type_}));
  if (peers_ == nullptr) return {};
  const auto element_bytes = static_cast<std::int64_t>(weight_type_bytes(type_));
  return peers_->gather({tiles.visits, config_.width, element_bytes}, gated_.bytes());
}

Status CudaMixture::sum(const MixtureRows& rows) {
  const std::int64_t first = peers_ == nullptr ? 0 : peers_->shard().range(hidden_).first;
  STEMMA_RETURN_IF_ERROR(add_experts(
      stream_, {.said = said_.as<float>(),
                .weights = weights_.as<float>(),
                .before = rows.from_zero ? nullptr : rows.out + first,
                .out = peers_ == nullptr ? rows.out : reinterpret_cast<float*>(peers_->own()),
                .rows = rows.rows,
                .row_experts = config_.experts_per_token,
                .hidden = own_hidden_,
                .before_stride = hidden_}));
  return peers_ == nullptr ? Status()
                           : peers_->gather({rows.rows, hidden_, sizeof(float)}, rows.out);
}

}  // namespace stemma
