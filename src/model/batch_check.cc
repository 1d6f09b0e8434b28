#include "model/batch_check.h"

#include <string>
#include <string_view>

#include "base/check.h"

namespace stemma {
namespace {

Error too_large(std::string_view what, std::int64_t got, std::int64_t limit) {
  return Error{ErrorCode::kTooLarge, "batch: " + std::to_string(got) + " " + std::string(what) +
                                         "; at most " + std::to_string(limit) + " fit"};
}

Status check_extents(const KvBatch& batch, const BatchLimits& limits) {
  STEMMA_CHECK_EQ(batch.positions.size(), batch.tokens.size());
  STEMMA_CHECK_EQ(batch.write_slots.size(), batch.tokens.size());
  STEMMA_CHECK_EQ(batch.row_indptr.size(), batch.page_table.last_page_tokens.size() + 1);
  if (!batch.adapters.empty()) {
    STEMMA_CHECK_EQ(batch.row_indptr.size(), batch.adapters.size() + 1);
  }
  if (batch.rows() > limits.rows_max) {
    return too_large("rows", batch.rows(), limits.rows_max);
  }
  if (batch.outputs() > limits.outputs_max) {
    return too_large("logit rows", batch.outputs(), limits.outputs_max);
  }
  if (batch.page_table.requests() > limits.requests_max) {
    return too_large("requests", batch.page_table.requests(), limits.requests_max);
  }
  return {};
}

Status check_adapters(const KvBatch& batch, const AdapterBook* adapters_or_null) {
  for (const AdapterId adapter : batch.adapters) {
    if (!adapter.valid()) continue;
    if (adapters_or_null == nullptr || !adapters_or_null->at(adapter)) {
      return Error{ErrorCode::kInvalidArgument,
                   "batch: there is no adapter " + std::to_string(adapter.value())};
    }
  }
  return {};
}

// `expected` leaves pages, page_size and dtype open.
Status check_pool(std::string_view name, const KvPool& pool, KvShape expected,
                  const PageTableView& table) {
  expected.pages = pool.shape().pages;
  expected.page_size = table.page_size;
  expected.dtype = pool.shape().dtype;
  if (pool.shape() == expected) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      std::string(name) +
          ": its kind, layers, heads, head_dim, latent_dim, label_channels or page_size are not "
          "those of the model and the batch"};
}

}  // namespace

Status check_batch(const KvBatch& batch, const BatchLimits& limits) {
  STEMMA_RETURN_IF_ERROR(check_extents(batch, limits));
  for (std::size_t row = 0; row < batch.tokens.size(); ++row) {
    if (batch.tokens[row] < -limits.sampled_tokens || batch.tokens[row] >= limits.vocab_tokens) {
      return Error{ErrorCode::kInvalidArgument,
                   "batch: token " + std::to_string(batch.tokens[row]) + " of row " +
                       std::to_string(row) + " is outside the vocabulary of " +
                       std::to_string(limits.vocab_tokens)};
    }
    if (batch.positions[row] < 0 || batch.positions[row] >= limits.context_tokens_max) {
      return too_large("tokens in a request", std::int64_t{batch.positions[row]} + 1,
                       limits.context_tokens_max);
    }
  }
  STEMMA_RETURN_IF_ERROR(check_adapters(batch, limits.adapters));
  for (const std::int32_t row : batch.logit_rows) {
    STEMMA_CHECK(row >= 0 && row < batch.rows(), "logits are wanted of rows of the batch");
  }
  return {};
}

Status check_pools(const KvBatch& batch, const KvPools& pools, const LoadedRunner& runner) {
  STEMMA_RETURN_IF_ERROR(check_pool("pool", pools.full, runner.pool_shape(), batch.page_table));
  if (runner.config().windows.tokens == 0) return {};
  STEMMA_CHECK(pools.windowed != nullptr, "a model with windows has a pool for them");
  STEMMA_CHECK_EQ(batch.windowed_slots.size(), batch.tokens.size());
  return check_pool("windowed pool", *pools.windowed, runner.windowed_pool_shape(),
                    batch.windowed_table);
}

}  // namespace stemma
