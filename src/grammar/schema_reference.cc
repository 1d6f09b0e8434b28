#include "grammar/schema_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "grammar/text_cursor.h"

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

// The names of a pointer, unescaped. nullopt: it is none.
std::optional<std::vector<std::string>> names_in(const std::string& path) {
  std::vector<std::string> names;
  try {
    for (Json::json_pointer rest(path); !rest.empty(); rest.pop_back()) {
      names.push_back(rest.back());
    }
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  std::reverse(names.begin(), names.end());
  return names;
}

// What this is the number of; nullptr: of nothing.
const Json* item_or_null(const Json& list, std::string_view number) {
  std::size_t at = 0;
  const char* const end = number.data() + number.size();
  const auto read = std::from_chars(number.data(), end, at);
  const bool is_number = read.ec == std::errc() && read.ptr == end;
  const bool has_more_zeros = number.size() > 1 && number.front() == '0';
  return is_number && !has_more_zeros && at < list.size() ? &list[at] : nullptr;
}

}  // namespace

const Json* SchemaReferences::child_or_null(const Json& of, const std::string& name) {
  if (of.is_array()) return item_or_null(of, name);
  if (!of.is_object()) return nullptr;
  const auto [known, is_new] = members_.try_emplace(&of);
  if (is_new) {
    for (const auto& [member, value] : of.get_ref<const Json::object_t&>()) {
      known->second.emplace(member, &value);
    }
  }
  const auto found = known->second.find(name);
  return found == known->second.end() ? nullptr : found->second;
}

Result<const Json*> SchemaReferences::at_path(const std::string& path, std::string_view target) {
  const std::optional<std::vector<std::string>> names = names_in(path);
  if (!names.has_value()) return wrong(fmt::format("\"{}\" is no place", printable(target)));
  const Json* at = &root_;
  for (const std::string& name : *names) {
    at = child_or_null(*at, name);
    if (at == nullptr) return wrong(fmt::format("\"{}\" is not there", printable(target)));
  }
  return at;
}

Result<const Json*> SchemaReferences::named_by(const Json& reference) {
  if (!reference.is_string()) return wrong("must be a string");
  const auto& target = reference.get_ref<const std::string&>();
  if (!target.starts_with('#')) {
    return Error{ErrorCode::kUnsupported, "only within the schema (#...)"};
  }
  const std::string written = target.substr(1);
  if (const auto decoded = FragmentReader(written).decoded(); decoded.has_value()) {
    Result<const Json*> named = at_path(*decoded, target);
    if (named.ok()) return named;
  }
  return at_path(written, target);
}

const Json& SchemaReferences::followed(const Json& schema) {
  const Json* at = &schema;
  for (int i = 0; i < kFollowedMax && at->is_object() && at->size() == 1; ++i) {
    const auto reference = at->find("$ref");
    if (reference == at->end()) break;
    const Result<const Json*> named = named_by(*reference);
    if (!named.ok()) break;
    at = *named;
  }
  return *at;
}

}  // namespace stemma
