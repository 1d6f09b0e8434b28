#include "model/int8_config.h"

#include <optional>
#include <string>

#include "model/json_text.h"

namespace stemma {

Int8Config read_int8_group(JsonFields& weights) {
  const std::string type = weights.text("type", "int");
  if (type != "int") {
    weights.fail(ErrorCode::kUnsupported, "type",
                 "'" + printable(type) + "' is not supported; known is int");
  }
  if (weights.integer("num_bits", {1, 64}, std::nullopt) != 8) {
    weights.fail(ErrorCode::kUnsupported, "num_bits", "only 8 is supported");
  }
  const std::string strategy = weights.text("strategy", std::nullopt);
  if (strategy != "channel" && strategy != "tensor") {
    weights.fail(ErrorCode::kUnsupported, "strategy",
                 "'" + printable(strategy) + "' is not supported; known are tensor channel");
  }
  if (!weights.boolean("symmetric", true)) {
    weights.fail(ErrorCode::kUnsupported, "symmetric", "only true is supported");
  }
  return {};
}

}  // namespace stemma
