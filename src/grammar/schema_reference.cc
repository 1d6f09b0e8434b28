#include "grammar/schema_reference.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "grammar/text_cursor.h"
#include "model/json_text.h"

namespace stemma {
namespace {

using Json = TemplateJson;

class FragmentReader : private TextCursor {
 public:
  explicit FragmentReader(std::string_view fragment) : TextCursor(fragment) {}

  // nullopt: a % without its digits.
  std::optional<std::string> decoded() {
    std::string text;
    while (!at_end()) {
      if (!take("%")) {
        text += text_[at_++];
      } else if (const auto byte = take_hex(2); byte.has_value()) {
        text += static_cast<char>(static_cast<unsigned char>(*byte));
      } else {
        return std::nullopt;
      }
    }
    return text;
  }
};

Error wrong(std::string why) {
  return {ErrorCode::kInvalidArgument, std::move(why)};
}

Result<const Json*> schema_at(const std::string& path, std::string_view target, const Json& root) {
  try {
    const Json::json_pointer pointer(path);
    if (root.contains(pointer)) return &root.at(pointer);
  } catch (const Json::exception&) {
    return wrong(fmt::format("\"{}\" is no place", printable(target)));
  }
  return wrong(fmt::format("\"{}\" is not there", printable(target)));
}

}  // namespace

Result<const Json*> schema_of_reference(const Json& reference, const Json& root) {
  if (!reference.is_string()) return wrong("must be a string");
  const auto& target = reference.get_ref<const std::string&>();
  if (!target.starts_with('#')) {
    return Error{ErrorCode::kUnsupported, "only within the schema (#...)"};
  }
  const std::string written = target.substr(1);
  if (const auto decoded = FragmentReader(written).decoded(); decoded.has_value()) {
    Result<const Json*> named = schema_at(*decoded, target, root);
    if (named.ok()) return named;
  }
  return schema_at(written, target, root);
}

}  // namespace stemma
