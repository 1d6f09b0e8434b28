#include "model/coded_fields.h"

#include <optional>

#include "base/json_text.h"

namespace stemma {

void refuse_value(JsonFields& fields, std::string_view name, const std::string& value,
                  std::string_view known) {
  fields.fail(ErrorCode::kUnsupported, name,
              "'" + printable(value) + "' is not supported; known " + std::string(known));
}

void expect_text(JsonFields& fields, std::string_view name, const std::string& known) {
  const std::string text = fields.text(name, known);
  if (text != known) refuse_value(fields, name, text, "is " + known);
}

void expect_bits(JsonFields& fields, std::string_view name, std::int64_t bits) {
  if (fields.integer(name, {1, 64}, std::nullopt) == bits) return;
  fields.fail(ErrorCode::kUnsupported, name, "only " + std::to_string(bits) + " is supported");
}

}  // namespace stemma
