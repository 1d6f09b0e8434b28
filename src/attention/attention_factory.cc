#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "attention/attention.h"
#include "attention/attention_kernel.h"
#include "attention/cpu_attention.h"
#include "attention/reference_attention.h"
#include "attention/reference_sparse_attention.h"
#include "attention/sparse_attention.h"

namespace stemma {

namespace {

constexpr std::array<std::string_view, 2> kNames = {"cpu", "reference"};
constexpr std::int64_t kHeadDimMin = 32;
constexpr std::int64_t kHeadDimMax = 256;
constexpr std::int64_t kLatentHeadDimMin = 16;

Error invalid(std::string detail) {
  return Error{ErrorCode::kInvalidArgument, std::move(detail), 0};
}

Error unknown(std::string_view name) {
  return Error{ErrorCode::kNotFound,
               fmt::format("unknown attention '{}' (known: {})", name, fmt::join(kNames, ", ")), 0};
}

}  // namespace

Status validate(const AttentionShape& shape) {
  if (shape.kv_heads < 1 || shape.query_heads < 1 || shape.query_heads % shape.kv_heads != 0) {
    return invalid(fmt::format("attention: {} query heads are not a multiple of {} KV heads",
                               shape.query_heads, shape.kv_heads));
  }
  const bool latent = shape.latent_dim != 0;
  const std::int64_t dim_min = latent ? kLatentHeadDimMin : kHeadDimMin;
  const std::int64_t dim_max = latent ? kLatentHeadDimMax : kHeadDimMax;
  if (shape.head_dim < dim_min || shape.head_dim > dim_max || shape.head_dim % 8 != 0) {
    return invalid(fmt::format("attention: head_dim must be a multiple of 8 in {} ... {} (got {})",
                               dim_min, dim_max, shape.head_dim));
  }
  if (latent && (shape.kv_heads != 1 || shape.latent_dim < 8 || shape.latent_dim % 8 != 0 ||
                 shape.latent_dim >= shape.head_dim)) {
    return invalid(fmt::format(
        "attention: latent rows need one KV head (got {}) and a latent_dim that is a multiple of 8 "
        "in 8 ... head_dim - 8 = {} (got {})",
        shape.kv_heads, shape.head_dim - 8, shape.latent_dim));
  }
  if (latent && (shape.window_tokens != 0 || shape.score_cap != 0)) {
    return invalid(fmt::format(
        "attention: latent rows have no window and no cap of scores (got {} tokens, {})",
        shape.window_tokens, shape.score_cap));
  }
  return {};
}

Status validate(const AttentionLimits& limits) {
  if (limits.rows_max >= 1 && limits.requests_max >= 1 && limits.context_tokens_max >= 1) return {};
  return invalid(
      fmt::format("attention: limits must be at least 1 (rows {}, requests {}, context tokens {})",
                  limits.rows_max, limits.requests_max, limits.context_tokens_max));
}

std::span<const std::string_view> attention_names() {
  return kNames;
}

Result<std::unique_ptr<Attention>> make_attention(std::string_view name,
                                                  const AttentionShape& shape,
                                                  const AttentionLimits& limits,
                                                  ThreadPool& threads) {
  STEMMA_RETURN_IF_ERROR(validate(shape));
  STEMMA_RETURN_IF_ERROR(validate(limits));
  if (name == "cpu") {
    STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<Attention> attention,
                            CpuAttention::create(shape, limits, threads));
    return attention;
  }
  if (name == "reference") {
    return std::unique_ptr<Attention>(std::make_unique<ReferenceAttention>(shape, limits));
  }
  return unknown(name);
}

Result<std::unique_ptr<Attention>> make_sparse_attention(std::string_view name,
                                                         const AttentionShape& shape,
                                                         const SparseDial& dial,
                                                         const AttentionLimits& limits,
                                                         ThreadPool& threads) {
  STEMMA_RETURN_IF_ERROR(validate(shape));
  STEMMA_RETURN_IF_ERROR(validate(limits));
  STEMMA_RETURN_IF_ERROR(validate(dial));
  if (shape.latent_dim != 0 || shape.window_tokens != 0 || shape.score_cap > 0) {
    return invalid("attention: sparse rows have no latent rows, window or capped scores");
  }
  if (name == "cpu") {
    STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<Attention> attention,
                            SparseAttention::create(shape, dial, limits, threads));
    return attention;
  }
  if (name == "reference") {
    return std::unique_ptr<Attention>(
        std::make_unique<ReferenceSparseAttention>(shape, dial, limits));
  }
  return unknown(name);
}

}  // namespace stemma
