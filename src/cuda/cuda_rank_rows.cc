#include "cuda/cuda_rank_rows.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/math.h"
#include "cuda/gathered_rows_cuda.h"

namespace stemma {

Result<std::unique_ptr<CudaRankRows>> CudaRankRows::create(const CudaRankRowsParts& parts) {
  auto rows = std::make_unique<CudaRankRows>(Key(), parts);
  STEMMA_RETURN_IF_ERROR(rows->allocate(parts));
  return rows;
}

CudaRankRows::CudaRankRows(Key, const CudaRankRowsParts& parts)
    : stream_(parts.stream), shard_{parts.group.rank(), parts.group.ranks()} {}

Status CudaRankRows::allocate(const CudaRankRowsParts& parts) {
  const auto bytes = static_cast<std::size_t>(largest_part_bytes(parts));
  STEMMA_ASSIGN_OR_RETURN(own_, parts.device.allocate(bytes, stream_));
  STEMMA_ASSIGN_OR_RETURN(
      all_, parts.device.allocate(bytes * static_cast<std::size_t>(shard_.ranks), stream_));
  const CudaRanksMaker maker = parts.maker != nullptr ? parts.maker : make_nccl_ranks;
  if (!parts.staged) ranks_ = maker(stream_, parts.group);
  if (ranks_ != nullptr) return {};
  STEMMA_ASSIGN_OR_RETURN(ranks_, make_staged_ranks(parts.device, stream_, parts.group, bytes));
  return {};
}

std::int64_t CudaRankRows::largest_part_bytes(const CudaRankRowsParts& parts) const {
  const auto row_bytes = static_cast<std::int64_t>(weight_type_bytes(parts.type));
  constexpr std::int64_t kFloat = sizeof(float);
  const ModelConfig& config = parts.config;
  return std::max({part_bytes({parts.rows_max, config.value_columns(), row_bytes}),
                   part_bytes({parts.rows_max, config.hidden, kFloat}),
                   part_bytes({parts.rows_max, config.intermediate, row_bytes}),
                   part_bytes({parts.rows_max, config.mixture.shared_width, row_bytes}),
                   part_bytes({parts.rows_max * config.mixture.experts_per_token,
                               config.mixture.width, row_bytes}),
                   part_bytes({parts.outputs_max, config.vocab_tokens, kFloat})});
}

// Parts are as long as the longest one.
std::int64_t CudaRankRows::part_bytes(const Extent& extent) const {
  constexpr std::int64_t kAlignment = 16;
  return round_up(extent.rows * shard_.most(extent.columns) * extent.element_bytes, kAlignment);
}

Status CudaRankRows::gather(const Extent& extent, void* whole) {
  if (extent.rows == 0) return {};
  const std::int64_t bytes = part_bytes(extent);
  // One row of equal parts is already what it is to be.
  const std::int64_t row_bytes = extent.columns * extent.element_bytes;
  const bool in_place =
      extent.rows == 1 && extent.columns % shard_.ranks == 0 && bytes * shard_.ranks == row_bytes;
  void* const to = in_place ? whole : all_.bytes();
  STEMMA_RETURN_IF_ERROR(ranks_->all_gather(own_.bytes(), to, static_cast<std::size_t>(bytes)));
  if (in_place) return {};
  return join_gathered_rows(stream_, {.parts = all_.bytes(),
                                      .whole = whole,
                                      .part_bytes = bytes,
                                      .rows = extent.rows,
                                      .columns = extent.columns,
                                      .element_bytes = extent.element_bytes,
                                      .ranks = shard_.ranks});
}

Status check_cut(const ModelConfig& config, const Shard& shard) {
  if (shard.ranks == 1) return {};
  const std::string flag = "--tensor-parallel " + std::to_string(shard.ranks) + ": ";
  struct Cut {
    std::string_view name;
    std::int64_t columns;
  };
  const bool mixed = config.mixture.experts > 0;
  for (const Cut& cut : {Cut{"intermediate_size", config.intermediate},
                         Cut{"moe_intermediate_size", config.mixture.width},
                         Cut{"width of shared experts", config.mixture.shared_width},
                         Cut{"hidden_size", mixed ? config.hidden : 0}}) {
    if (cut.columns % (8 * shard.ranks) == 0) continue;
    return Error{ErrorCode::kUnsupported, flag + "the model's " + std::string(cut.name) + " of " +
                                              std::to_string(cut.columns) +
                                              " does not divide into multiples of 8 over " +
                                              std::to_string(shard.ranks) + " GPUs"};
  }
  return {};
}

}  // namespace stemma
