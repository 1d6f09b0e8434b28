#include "model/float8_config.h"

#include <optional>
#include <string>
#include <string_view>

#include "base/json_text.h"
#include "model/coded_fields.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kTileMax = 1 << 20;

// [outputs, inputs] of a tile; absent or null: none.
void read_tile(JsonFields& fields, std::string_view name, Float8Config& float8) {
  const Json* const tile = fields.find_or_null(name);
  if (tile == nullptr) return;
  const auto is_extent = [](const Json& value) {
    return value.is_number_unsigned() && value.get<std::uint64_t>() > 0 &&
           value.get<std::uint64_t>() <= kTileMax;
  };
  if (!tile->is_array() || tile->size() != 2 || !is_extent((*tile)[0]) || !is_extent((*tile)[1])) {
    fields.fail(ErrorCode::kInvalidArgument, name, "must be two integers from 1 to 1048576");
    return;
  }
  float8 = {(*tile)[0].get<std::int64_t>(), (*tile)[1].get<std::int64_t>()};
}

}  // namespace

Float8Config read_float8(JsonFields& section) {
  Float8Config float8;
  expect_text(section, "fmt", "e4m3");
  read_tile(section, "weight_block_size", float8);
  return float8;
}

Float8Config read_float8_group(JsonFields& weights) {
  Float8Config float8;
  expect_text(weights, "type", "float");
  expect_bits(weights, "num_bits", 8);
  const std::string strategy = weights.text("strategy", std::nullopt);
  if (strategy == "block") {
    read_tile(weights, "block_structure", float8);
    if (weights.status().ok() && float8.tile_outputs == 0) {
      weights.fail(ErrorCode::kInvalidArgument, "block_structure", "missing");
    }
  } else if (strategy != "channel" && strategy != "tensor") {
    refuse_value(weights, "strategy", strategy, "are tensor channel block");
  }
  return float8;
}

}  // namespace stemma
