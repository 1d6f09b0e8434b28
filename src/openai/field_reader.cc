#include "openai/field_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/json_text.h"

namespace stemma {
namespace {

// What was given instead, short and safe to show.
std::string given(const TemplateJson& value) {
  if (value.is_structured()) return value.is_object() ? "an object" : "an array";
  return printable(value.dump(-1, ' ', true, TemplateJson::error_handler_t::replace), 40);
}

}  // namespace

std::string item_path(std::string_view path, std::size_t item) {
  return fmt::format("{}[{}]", path, item);
}

std::optional<std::int64_t> whole_number(const TemplateJson& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number <= INT64_MAX ? std::optional(static_cast<std::int64_t>(number)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  constexpr double kExactMax = std::int64_t{1} << 53;  // beyond it some have no double
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!(std::abs(number) <= kExactMax) || std::floor(number) != number) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

FieldReader::FieldReader(const TemplateJson& object, std::string path,
                         std::optional<ApiError>& fault)
    : object_(object), path_(std::move(path)), fault_(fault) {
  STEMMA_CHECK(object.is_object(), "fields are read from objects");
}

std::string FieldReader::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void FieldReader::fail(std::string_view name, std::string why) {
  if (!fault_.has_value()) fault_ = field_error(path_of(name), std::move(why));
}

void FieldReader::refuse(std::span<const RefusedField> refused) {
  for (const RefusedField& each : refused) {
    const TemplateJson* const field = find_or_null(each.name);
    if (field == nullptr || field->dump() == each.harmless) continue;
    fail(each.name, std::string(each.why));
  }
}

const TemplateJson* FieldReader::find_or_null(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const TemplateJson* FieldReader::object_or_null(std::string_view name) {
  const TemplateJson* const field = find_or_null(name);
  if (field == nullptr || field->is_object()) return field;
  fail(name, fmt::format("must be an object (got {})", given(*field)));
  return nullptr;
}

const TemplateJson* FieldReader::array_or_null(std::string_view name) {
  const TemplateJson* const field = find_or_null(name);
  if (field == nullptr || field->is_array()) return field;
  fail(name, fmt::format("must be an array (got {})", given(*field)));
  return nullptr;
}

std::optional<std::int64_t> FieldReader::integer(std::string_view name, Integers range) {
  const TemplateJson* const field = find_or_null(name);
  if (field == nullptr) return std::nullopt;
  const std::optional<std::int64_t> value = whole_number(*field);
  if (value.has_value() && *value >= range.min && *value <= range.max) return value;
  fail(name, fmt::format("must be an integer from {} to {} (got {})", range.min, range.max,
                         given(*field)));
  return std::nullopt;
}

std::optional<double> FieldReader::number(std::string_view name, Numbers range) {
  const TemplateJson* const field = find_or_null(name);
  if (field == nullptr) return std::nullopt;
  const double value = field->is_number() ? field->get<double>() : std::nan("");
  if (value >= range.min && value <= range.max) return value;
  fail(name,
       fmt::format("must be a number from {} to {} (got {})", range.min, range.max, given(*field)));
  return std::nullopt;
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const TemplateJson* const field = find_or_null(name);
  if (field == nullptr) return std::nullopt;
  if (field->is_boolean()) return field->get<bool>();
  fail(name, fmt::format("must be true or false (got {})", given(*field)));
  return std::nullopt;
}

std::optional<std::string> FieldReader::text(std::string_view name, std::size_t bytes_max) {
  const TemplateJson* const field = find_or_null(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_string()) {
    fail(name, fmt::format("must be a string (got {})", given(*field)));
    return std::nullopt;
  }
  const auto& value = field->get_ref<const std::string&>();
  if (value.size() <= bytes_max) return value;
  fail(name, fmt::format("must be at most {} bytes (got {})", bytes_max, value.size()));
  return std::nullopt;
}

}  // namespace stemma
