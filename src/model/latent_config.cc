#include "model/latent_config.h"

#include <optional>
#include <string>

#include "base/json_text.h"

namespace stemma {
namespace {

using Range = JsonFields::Range;

constexpr Range kRankRange = {8, 1 << 20};
constexpr Range kHeadDimRange = {1, 1024};

// What attention reads at a time: the parts of a row end where one does.
constexpr std::int64_t kDimUnit = 8;
constexpr std::int64_t kRowDimMin = 32;
constexpr std::int64_t kRowDimMax = 1024;

void check_unit(JsonFields& fields, std::string_view name, std::int64_t value) {
  if (value % kDimUnit != 0) {
    fields.fail(ErrorCode::kInvalidArgument, name,
                "must be a multiple of " + std::to_string(kDimUnit) + " (got " +
                    std::to_string(value) + ")");
  }
}

}  // namespace

LatentConfig read_latent(JsonFields& fields) {
  LatentConfig latent;
  latent.rank = fields.integer("kv_lora_rank", kRankRange, std::nullopt);
  if (fields.find_or_null("q_lora_rank") != nullptr) {
    latent.query_rank = fields.integer("q_lora_rank", kRankRange, std::nullopt);
  }
  latent.plain_dim = fields.integer("qk_nope_head_dim", kHeadDimRange, std::nullopt);
  latent.rope_dim = fields.integer("qk_rope_head_dim", kHeadDimRange, std::nullopt);
  latent.value_dim = fields.integer("v_head_dim", kHeadDimRange, std::nullopt);
  check_unit(fields, "kv_lora_rank", latent.rank);
  check_unit(fields, "qk_rope_head_dim", latent.rope_dim);
  if (latent.row_dim() < kRowDimMin || latent.row_dim() > kRowDimMax) {
    fields.fail(ErrorCode::kUnsupported, "kv_lora_rank",
                "with qk_rope_head_dim it must be from " + std::to_string(kRowDimMin) + " to " +
                    std::to_string(kRowDimMax) + " (got " + std::to_string(latent.row_dim()) + ")");
  }
  if (!fields.boolean("rope_interleave", true)) {
    fields.fail(ErrorCode::kUnsupported, "rope_interleave", "only true is supported");
  }
  return latent;
}

}  // namespace stemma
