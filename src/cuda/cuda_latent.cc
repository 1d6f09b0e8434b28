#include "cuda/cuda_latent.h"

#include <cstring>

#include "base/check.h"
#include "device/rounded_strips.h"

namespace stemma {
namespace {

// `from` [rows, columns] to `to` [columns, rows].
template <typename Element>
void transpose(const std::byte* from, std::byte* to, std::size_t rows, std::size_t columns) {
  for (std::size_t column = 0; column < columns; ++column) {
    for (std::size_t row = 0; row < rows; ++row) {
      std::memcpy(to + (column * rows + row) * sizeof(Element),
                  from + (row * columns + column) * sizeof(Element), sizeof(Element));
    }
  }
}

}  // namespace

std::vector<std::byte> parted_heads(std::span<const std::byte> matrix, WeightType type,
                                    const LatentConfig& config, ThreadPool& threads) {
  const auto rank = static_cast<std::size_t>(config.rank);
  const auto plain_dim = static_cast<std::size_t>(config.plain_dim);
  const std::size_t element_bytes = weight_type_bytes(type);
  const std::size_t key_bytes = plain_dim * rank * element_bytes;
  const std::size_t value_bytes = static_cast<std::size_t>(config.value_dim) * rank * element_bytes;
  const std::size_t heads = matrix.size() / (key_bytes + value_bytes);
  std::vector<std::byte> parted(matrix.size());
  std::byte* const values = parted.data() + heads * key_bytes;
  threads.run(static_cast<std::int64_t>(heads), [&](std::int64_t task, int) {
    const auto head = static_cast<std::size_t>(task);
    const std::byte* const from = matrix.data() + head * (key_bytes + value_bytes);
    std::byte* const key = parted.data() + head * key_bytes;
    type == WeightType::kF32 ? transpose<std::uint32_t>(from, key, plain_dim, rank)
                             : transpose<std::uint16_t>(from, key, plain_dim, rank);
    std::memcpy(values + head * value_bytes, from + key_bytes, value_bytes);
  });
  return parted;
}

Result<std::unique_ptr<CudaLatent>> CudaLatent::create(const CudaLatentParts& parts) {
  auto latent = std::make_unique<CudaLatent>(Key(), parts);
  STEMMA_RETURN_IF_ERROR(latent->allocate(parts.device));
  return latent;
}

CudaLatent::CudaLatent(Key, const CudaLatentParts& parts)
    : config_(parts.config),
      latent_(parts.config.latent),
      type_(parts.type),
      rows_max_(parts.rows_max),
      down_columns_(latent_.query_rank + latent_.row_dim()),
      stream_(parts.stream),
      gemm_(parts.gemm),
      adapters_(parts.adapters) {
  STEMMA_CHECK(latent_.rank > 0, "the model has latent attention");
}

Status CudaLatent::allocate(CudaDevice& device) {
  const auto row_bytes = static_cast<std::int64_t>(weight_type_bytes(type_));
  constexpr std::int64_t kFloat = sizeof(float);
  const auto allocate_rows = [&](CudaMemory& memory, std::int64_t bytes) -> Status {
    STEMMA_ASSIGN_OR_RETURN(memory,
                            device.allocate(static_cast<std::size_t>(rows_max_ * bytes), stream_));
    return {};
  };
  STEMMA_RETURN_IF_ERROR(allocate_rows(down_, down_columns_ * kFloat));
  STEMMA_RETURN_IF_ERROR(allocate_rows(query_down_, latent_.query_rank * row_bytes));
  STEMMA_RETURN_IF_ERROR(
      allocate_rows(heads_, config_.query_heads * latent_.query_head_dim() * row_bytes));
  return allocate_rows(attended_, config_.attended_columns() * row_bytes);
}

Status CudaLatent::write_rows(const CudaLatentWeights& weights, const CudaLatentRows& rows) {
  STEMMA_CHECK_LE(rows.rows, rows_max_);
  STEMMA_RETURN_IF_ERROR(multiply({.x = rows.normed,
                                   .y = down_.bytes(),
                                   .m = rows.rows,
                                   .n = down_columns_,
                                   .k = config_.hidden,
                                   .f32_out = true},
                                  weights.down));
  STEMMA_RETURN_IF_ERROR(adapt_down(rows));
  STEMMA_RETURN_IF_ERROR(latent_rows(stream_, {.down = down_.as<float>(),
                                               .bias = weights.down_bias,
                                               .query_norm = weights.query_norm,
                                               .latent_norm = weights.latent_norm,
                                               .angles = rows.angles,
                                               .positions = rows.positions,
                                               .query = query_down_.bytes(),
                                               .query_type = type_,
                                               .rows = rows.rows,
                                               .query_rank = latent_.query_rank,
                                               .rank = latent_.rank,
                                               .rope_dim = latent_.rope_dim,
                                               .epsilon = static_cast<float>(kLatentNormEpsilon),
                                               .target = rows.target,
                                               .slots = rows.slots}));
  return write_queries(weights, rows);
}

Status CudaLatent::write_queries(const CudaLatentWeights& weights, const CudaLatentRows& rows) {
  const bool has_rank = latent_.query_rank > 0;
  const std::int64_t heads = config_.query_heads;
  STEMMA_RETURN_IF_ERROR(multiply({.x = has_rank ? query_down_.bytes() : rows.normed,
                                   .y = heads_.bytes(),
                                   .m = rows.rows,
                                   .n = heads * latent_.query_head_dim(),
                                   .k = has_rank ? latent_.query_rank : config_.hidden},
                                  weights.query_up));
  STEMMA_RETURN_IF_ERROR(adapt_heads(rows));
  STEMMA_RETURN_IF_ERROR(multiply({.x = heads_.bytes(),
                                   .y = rows.query,
                                   .m = rows.rows,
                                   .n = latent_.rank,
                                   .k = latent_.plain_dim,
                                   .x_stride = heads * latent_.query_head_dim(),
                                   .y_stride = heads * latent_.row_dim(),
                                   .products = heads,
                                   .x_step = latent_.query_head_dim(),
                                   .w_step = latent_.rank * latent_.plain_dim,
                                   .y_step = latent_.row_dim()},
                                  weights.heads_up));
  STEMMA_RETURN_IF_ERROR(adapt_absorbed(rows));
  return turn_latent_queries(stream_, {.heads = heads_.bytes(),
                                       .angles = rows.angles,
                                       .positions = rows.positions,
                                       .query = rows.query,
                                       .rows = rows.rows,
                                       .query_heads = heads,
                                       .plain_dim = latent_.plain_dim,
                                       .rope_dim = latent_.rope_dim,
                                       .rank = latent_.rank,
                                       .type = type_});
}

KvRows CudaLatent::stored_rows(std::int64_t rows) const {
  return {.elements = down_.as<float>() + latent_.query_rank,
          .dtype = DType::kF32,
          .device = DeviceKind::kCuda,
          .rows = rows,
          .heads = 1,
          .head_dim = latent_.row_dim(),
          .row_stride = down_columns_};
}

// The compressed q and the latent row, before they are normalised.
Status CudaLatent::adapt_down(const CudaLatentRows& rows) {
  std::byte* const latent = reinterpret_cast<std::byte*>(down_.as<float>() + latent_.query_rank);
  const AdaptedProduct products[] = {{Projection::kLatentDown, latent, latent_.row_dim()},
                                     {Projection::kQueryDown, down_.bytes(), latent_.query_rank}};
  return adapters_.add({.of = rows.adapted,
                        .x = rows.normed,
                        .inputs = config_.hidden,
                        .rows = rows.rows,
                        .y_stride = down_columns_},
                       std::span(products).first(latent_.query_rank > 0 ? 2 : 1));
}

Status CudaLatent::adapt_heads(const CudaLatentRows& rows) {
  const bool has_rank = latent_.query_rank > 0;
  const std::int64_t columns = config_.query_heads * latent_.query_head_dim();
  const AdaptedProduct product = {has_rank ? Projection::kQueryUp : Projection::kQuery,
                                  heads_.bytes(), columns};
  return adapters_.add({.of = rows.adapted,
                        .x = has_rank ? query_down_.bytes() : rows.normed,
                        .inputs = has_rank ? latent_.query_rank : config_.hidden,
                        .rows = rows.rows,
                        .y_stride = columns,
                        .f32_out = false},
                       {&product, 1});
}

// W_UK as the adapter has it, absorbed: what it adds to each head's query in the latent columns.
Status CudaLatent::adapt_absorbed(const CudaLatentRows& rows) {
  const std::int64_t heads = config_.query_heads;
  return adapters_.add_of_heads({.of = rows.adapted,
                                 .side = LatentSide::kKey,
                                 .x = heads_.bytes(),
                                 .y = rows.query,
                                 .heads = heads,
                                 .inputs = latent_.plain_dim,
                                 .outputs = latent_.rank,
                                 .rows = rows.rows,
                                 .x_stride = heads * latent_.query_head_dim(),
                                 .x_head_stride = latent_.query_head_dim(),
                                 .y_stride = heads * latent_.row_dim(),
                                 .y_head_stride = latent_.row_dim()});
}

Status CudaLatent::write_values(const CudaLatentWeights& weights, std::int64_t rows,
                                std::byte* values, const AdaptedLayer& adapted) {
  const CudaMatrix values_up = values_of(weights.heads_up);
  STEMMA_RETURN_IF_ERROR(multiply({.x = attended_.bytes(),
                                   .y = values,
                                   .m = rows,
                                   .n = latent_.value_dim,
                                   .k = latent_.rank,
                                   .x_stride = config_.attended_columns(),
                                   .y_stride = config_.value_columns(),
                                   .products = config_.query_heads,
                                   .x_step = latent_.rank,
                                   .w_step = latent_.value_dim * latent_.rank,
                                   .y_step = latent_.value_dim},
                                  values_up));
  return adapters_.add_of_heads({.of = adapted,
                                 .side = LatentSide::kValue,
                                 .x = attended_.bytes(),
                                 .y = values,
                                 .heads = config_.query_heads,
                                 .inputs = latent_.rank,
                                 .outputs = latent_.value_dim,
                                 .rows = rows,
                                 .x_stride = config_.attended_columns(),
                                 .x_head_stride = latent_.rank,
                                 .y_stride = config_.value_columns(),
                                 .y_head_stride = latent_.value_dim});
}

// W_UV of the heads, behind their W_UKᵀ.
CudaMatrix CudaLatent::values_of(const CudaMatrix& heads_up) const {
  const auto value_bytes = static_cast<std::int64_t>(weight_type_bytes(heads_up.type));
  const std::int64_t head_bytes =
      heads_up.codes != CodeForm::kNone
          ? RoundedStrips::matrix_bytes(heads_up.codes, latent_.rank, latent_.plain_dim)
          : latent_.rank * latent_.plain_dim * value_bytes;
  CudaMatrix values_up = heads_up;
  values_up.values += config_.query_heads * head_bytes;
  return values_up;
}

Status CudaLatent::multiply(CudaGemmParams params, const CudaMatrix& matrix) {
  params.w = matrix.values;
  params.type = type_;
  params.f32_w = matrix.is_f32();
  params.codes = matrix.codes;
  return gemm_.multiply(params);
}

}  // namespace stemma
