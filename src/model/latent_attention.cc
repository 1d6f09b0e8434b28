#include "model/latent_attention.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "device/gemm.h"
#include "device/row_ops.h"

namespace stemma {
namespace {

constexpr auto kNormEpsilon = static_cast<float>(kLatentNormEpsilon);

// Turns the pairs (x[2 i], x[2 i + 1]), which lie side by side in this family, into `out`, which
// may be x.
void turn_pairs(std::span<const float> x, std::span<const float> cosines,
                std::span<const float> sines, std::span<float> out) {
  for (std::size_t pair = 0; pair < cosines.size(); ++pair) {
    const float a = x[2 * pair];
    const float b = x[2 * pair + 1];
    out[2 * pair] = a * cosines[pair] - b * sines[pair];
    out[2 * pair + 1] = b * cosines[pair] + a * sines[pair];
  }
}

// `from` [rows, columns] to `to` [columns, rows], of elements of `element_bytes`.
void transpose(std::span<const std::byte> from, std::size_t rows, std::size_t columns,
               std::size_t element_bytes, std::span<std::byte> to) {
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      std::memcpy(&to[(column * rows + row) * element_bytes],
                  &from[(row * columns + column) * element_bytes], element_bytes);
    }
  }
}

}  // namespace

Result<PackedWeights> pack_transposed(std::span<const std::byte> matrix, WeightType type,
                                      std::int64_t rows, std::int64_t columns,
                                      const MatrixPacker& packer) {
  std::vector<std::byte> transposed(matrix.size());
  transpose(matrix, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns),
            weight_type_bytes(type), transposed);
  return packer.pack({transposed.data(), type, columns, rows});
}

Status split_heads(std::span<const std::byte> matrix, WeightType type, const LatentConfig& config,
                   const MatrixPacker& packer, LatentWeights& weights) {
  const std::size_t element_bytes = weight_type_bytes(type);
  const auto plain_dim = static_cast<std::size_t>(config.plain_dim);
  const auto rank = static_cast<std::size_t>(config.rank);
  const std::size_t plain_bytes = plain_dim * rank * element_bytes;
  const std::size_t head_bytes =
      plain_bytes + static_cast<std::size_t>(config.value_dim) * rank * element_bytes;
  for (; !matrix.empty(); matrix = matrix.subspan(head_bytes)) {
    STEMMA_ASSIGN_OR_RETURN(
        PackedWeights key,
        pack_transposed(matrix.first(plain_bytes), type, config.plain_dim, config.rank, packer));
    STEMMA_ASSIGN_OR_RETURN(PackedWeights value, packer.pack({matrix.data() + plain_bytes, type,
                                                              config.value_dim, config.rank}));
    weights.key_up.push_back(std::move(key));
    weights.value_up.push_back(std::move(value));
  }
  return {};
}

Result<std::unique_ptr<LatentAttention>> LatentAttention::create(const LatentParts& parts) {
  auto attention = std::make_unique<LatentAttention>(Key{}, parts);
  STEMMA_RETURN_IF_ERROR(attention->allocate_scratch());
  return attention;
}

LatentAttention::LatentAttention(Key, const LatentParts& parts)
    : config_(parts.config),
      heads_(parts.heads),
      rows_max_(parts.rows_max),
      threads_(parts.threads) {
  STEMMA_CHECK(config_.rank > 0, "the model has latent attention");
}

Status LatentAttention::allocate_scratch() {
  const std::array parts = {
      RowsWanted{query_down_, rows_max_, config_.query_rank},
      RowsWanted{query_, rows_max_, heads_ * config_.query_head_dim()},
      RowsWanted{values_, rows_max_, heads_ * config_.value_dim},
  };
  STEMMA_ASSIGN_OR_RETURN(scratch_, allocate_rows(parts));
  return {};
}

void LatentAttention::write_queries(const LatentWeights& weights, const Rows& in, std::int64_t rows,
                                    const Angles& angles, const Rows& queries,
                                    const LayerAdapters& adapters) {
  if (config_.query_rank > 0) {
    gemm(in.read(rows), weights.query_down, weights.query_down_bias, query_down_.write(rows),
         threads_);
    adapters.add(Projection::kQueryDown, in.read(rows), query_down_.write(rows));
    for_rows(threads_, rows, [&](std::int64_t row) {
      rms_norm(query_down_.row(row), weights.query_norm, kNormEpsilon, query_down_.row(row));
    });
  }
  const bool has_rank = config_.query_rank > 0;
  const Rows& source = has_rank ? query_down_ : in;
  gemm(source.read(rows), weights.query_up, {}, query_.write(rows), threads_);
  adapters.add(has_rank ? Projection::kQueryUp : Projection::kQuery, source.read(rows),
               query_.write(rows));
  const auto absorb = [&](std::int64_t head) {
    const float* const plain = query_.values + head * config_.query_head_dim();
    float* const absorbed = queries.values + head * config_.row_dim();
    return Product{{plain, rows, config_.plain_dim, query_.columns},
                   weights.key_up[static_cast<std::size_t>(head)],
                   {absorbed, rows, config_.rank, queries.columns}};
  };
  gemm_each(heads_, absorb, threads_);
  for (std::int64_t head = 0; head < heads_; ++head) {
    const Product product = absorb(head);
    adapters.add_of_head(LatentSide::kKey, head, product.a, product.c);
  }
  const auto rope_dim = static_cast<std::size_t>(config_.rope_dim);
  for_rows(threads_, rows, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < heads_; ++head) {
      const auto from =
          static_cast<std::size_t>(head * config_.query_head_dim() + config_.plain_dim);
      const auto to = static_cast<std::size_t>(head * config_.row_dim() + config_.rank);
      turn_pairs(query_.row(row).subspan(from, rope_dim), angles.cosines.row(row),
                 angles.sines.row(row), queries.row(row).subspan(to, rope_dim));
    }
  });
}

void LatentAttention::write_keys(const LatentWeights& weights, const Rows& in, std::int64_t rows,
                                 const Angles& angles, const Rows& keys,
                                 const LayerAdapters& adapters) {
  gemm(in.read(rows), weights.latent_down, weights.latent_down_bias, keys.write(rows), threads_);
  adapters.add(Projection::kLatentDown, in.read(rows), keys.write(rows));
  const auto rank = static_cast<std::size_t>(config_.rank);
  for_rows(threads_, rows, [&](std::int64_t row) {
    const std::span<float> latent = keys.row(row).first(rank);
    const std::span<float> turned = keys.row(row).subspan(rank);
    rms_norm(latent, weights.latent_norm, kNormEpsilon, latent);
    turn_pairs(turned, angles.cosines.row(row), angles.sines.row(row), turned);
  });
}

const Rows& LatentAttention::values(const LatentWeights& weights, const Rows& attended,
                                    std::int64_t rows, const LayerAdapters& adapters) {
  const auto expand = [&](std::int64_t head) {
    const float* const latent = attended.values + head * config_.rank;
    float* const value = values_.values + head * config_.value_dim;
    return Product{{latent, rows, config_.rank, attended.columns},
                   weights.value_up[static_cast<std::size_t>(head)],
                   {value, rows, config_.value_dim, values_.columns}};
  };
  gemm_each(heads_, expand, threads_);
  for (std::int64_t head = 0; head < heads_; ++head) {
    const Product product = expand(head);
    adapters.add_of_head(LatentSide::kValue, head, product.a, product.c);
  }
  return values_;
}

}  // namespace stemma
