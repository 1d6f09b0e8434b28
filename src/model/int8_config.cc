#include "model/int8_config.h"

#include <optional>
#include <string>

#include "base/json_text.h"
#include "model/coded_fields.h"

namespace stemma {

Int8Config read_int8_group(JsonFields& weights) {
  expect_text(weights, "type", "int");
  expect_bits(weights, "num_bits", 8);
  const std::string strategy = weights.text("strategy", std::nullopt);
  if (strategy != "channel" && strategy != "tensor") {
    refuse_value(weights, "strategy", strategy, "are tensor channel");
  }
  if (!weights.boolean("symmetric", true)) {
    weights.fail(ErrorCode::kUnsupported, "symmetric", "only true is supported");
  }
  return {};
}

}  // namespace stemma
