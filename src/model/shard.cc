#include "model/shard.h"

#include <algorithm>
#include <string>

namespace stemma {

namespace {

Error does_not_divide(std::string_view what, std::int64_t heads, int ranks) {
  return {ErrorCode::kInvalidArgument,
          "--tensor-parallel " + std::to_string(ranks) + ": the model's " + std::to_string(heads) +
              " " + std::string(what) + " do not divide over " + std::to_string(ranks) + " ranks"};
}

// The fewest outputs of any matrix that is cut, heads aside.
std::int64_t fewest_outputs(const ModelConfig& config) {
  std::int64_t fewest = std::min({config.hidden, config.intermediate, config.vocab_tokens});
  if (config.mixture.experts > 0) fewest = std::min(fewest, config.mixture.width);
  if (config.mixture.shared_width > 0) fewest = std::min(fewest, config.mixture.shared_width);
  return fewest;
}

}  // namespace

Result<ModelConfig> config_of_shard(const ModelConfig& config, const Shard& shard) {
  ModelConfig own = config;
  if (shard.ranks == 1) return own;
  if (config.query_heads % shard.ranks != 0) {
    return does_not_divide("query heads", config.query_heads, shard.ranks);
  }
  own.query_heads = config.query_heads / shard.ranks;
  if (config.latent.rank == 0) {  // else all heads share one row, which every rank has
    const Result<std::int64_t> kv_heads = heads_per_rank(config.kv_heads, shard.ranks, false);
    if (!kv_heads.ok()) return does_not_divide("KV heads", config.kv_heads, shard.ranks);
    own.kv_heads = *kv_heads;
  }
  if (fewest_outputs(config) < shard.ranks) {
    return does_not_divide("outputs of its smallest matrix", fewest_outputs(config), shard.ranks);
  }
  return own;
}

}  // namespace stemma
