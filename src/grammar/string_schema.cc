#include "grammar/string_schema.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "grammar/string_format.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

// nullopt: the schema does not say.
Result<std::optional<std::int64_t>> read_count(const TemplateJson& schema, const char* name,
                                               const std::string& path) {
  const auto found = schema.find(name);
  if (found == schema.end()) return std::optional<std::int64_t>();
  const double value = found->is_number() ? found->get<double>() : -1;
  constexpr double kCountMax = 1e15;
  if (!(value >= 0 && value <= kCountMax) || std::floor(value) != value) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}.{}: must be a number of things", path, name)};
  }
  return std::optional(static_cast<std::int64_t>(value));
}

// Of a format that is known, which a length goes before.
Result<Part> string_of_format(const TemplateJson& schema, const SchemaExtent& extent,
                              bool has_extent, const JsonParts& json) {
  const TemplateJson format = schema.value("format", TemplateJson());
  const std::string form = format.is_string() && !has_extent
                               ? expression_of_format(format.get_ref<const std::string&>())
                               : "";
  if (form.empty()) return json.string(extent.least, extent.most);
  return json.string_of(form);  // for which there may be no room
}

}  // namespace

Result<SchemaExtent> read_extent(const TemplateJson& schema, const char* least, const char* most,
                                 const std::string& path) {
  SchemaExtent extent;
  STEMMA_ASSIGN_OR_RETURN(const auto at_least, read_count(schema, least, path));
  STEMMA_ASSIGN_OR_RETURN(extent.most, read_count(schema, most, path));
  extent.least = at_least.value_or(0);
  return extent;
}

Result<Part> string_of_schema(const TemplateJson& schema, bool strict, const std::string& path,
                              const JsonParts& json) {
  STEMMA_ASSIGN_OR_RETURN(const SchemaExtent extent,
                          read_extent(schema, "minLength", "maxLength", path));
  if (extent.is_empty()) return json.grammar.nothing(path + ": maxLength is below minLength");
  const bool has_extent = schema.contains("minLength") || schema.contains("maxLength");
  const auto pattern = schema.find("pattern");
  if (pattern == schema.end()) return string_of_format(schema, extent, has_extent, json);
  const std::string at = path + ".pattern: ";
  if (!pattern->is_string()) return Error{ErrorCode::kInvalidArgument, at + "must be a string"};
  if (has_extent && strict) {
    return Error{ErrorCode::kUnsupported, at + "not supported beside a length"};
  }
  Result<Part> part = json.string_of(pattern->get_ref<const std::string&>());
  if (part.ok()) return *part;
  if (!strict && part.error().code == ErrorCode::kUnsupported) {
    return json.string(extent.least, extent.most);
  }
  return Error{part.error().code, at + part.error().detail};
}

}  // namespace stemma
