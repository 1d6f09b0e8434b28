#include "model/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/json_text.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

std::string joined(std::string_view file_name, std::string_view where, std::string_view what) {
  std::string detail(file_name);
  if (!where.empty()) {
    detail.append(": ").append(where);
  }
  return detail.append(": ").append(what);
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShownBytesMax = 60;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string line = "\"";
  for (const char byte : text.substr(0, utf8_floor(text, kShownBytesMax))) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x20 || code == 0x7F) {
      line.append("\\x").append(1, kHex[code >> 4]).append(1, kHex[code & 15]);
    } else {
      line.push_back(byte);
    }
  }
  return line.append(text.size() > kShownBytesMax ? "…\"" : "\"");
}

Error JsonField::error(ErrorCode code, std::string_view what) const {
  return Error{code, joined(file_name_, path_, what)};
}

Error JsonField::error_below(std::string_view below, ErrorCode code, std::string_view what) const {
  const std::string_view name = path_.empty() && below.starts_with('.') ? below.substr(1) : below;
  return Error{code, joined(file_name_, path_ + std::string(name), what)};
}

Result<JsonField> JsonField::member(std::string_view name) const {
  STEMMA_RETURN_IF_ERROR(expect_object());
  if (const auto found = value_->find(name); found != value_->end()) {
    return JsonField(*found, file_name_,
                     path_.empty() ? std::string(name) : path_ + "." + std::string(name));
  }
  return error_below("." + std::string(name), ErrorCode::kCorrupt, "missing");
}

std::optional<JsonField> JsonField::try_member(std::string_view name) const {
  STEMMA_CHECK(value_->is_object(), "try_member needs an object");
  if (const auto found = value_->find(name); found != value_->end() && !found->is_null()) {
    return JsonField(*found, file_name_,
                     path_.empty() ? std::string(name) : path_ + "." + std::string(name));
  }
  return std::nullopt;
}

Status JsonField::expect_object() const {
  if (!value_->is_object()) {
    return corrupt(std::string("must be an object, is ") + value_->type_name());
  }
  return {};
}

Status JsonField::expect_array() const {
  if (!value_->is_array()) {
    return corrupt(std::string("must be an array, is ") + value_->type_name());
  }
  return {};
}

std::size_t JsonField::element_count() const {
  return value_->size();
}

JsonField JsonField::element(std::size_t position) const {
  STEMMA_CHECK(value_->is_array() && position < value_->size(), "the element exists");
  return JsonField((*value_)[position], file_name_, path_ + "[" + std::to_string(position) + "]");
}

Result<std::string_view> JsonField::as_string() const {
  if (!value_->is_string()) {
    return corrupt(std::string("must be a string, is ") + value_->type_name());
  }
  return std::string_view(value_->get_ref<const std::string&>());
}

Result<bool> JsonField::as_bool() const {
  if (!value_->is_boolean()) {
    return corrupt(std::string("must be true or false, is ") + value_->type_name());
  }
  return value_->get<bool>();
}

Result<std::int64_t> JsonField::as_integer(std::int64_t least, std::int64_t most) const {
  const bool fits = value_->is_number_unsigned()
                        ? value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX)
                        : value_->is_number_integer();
  if (fits && value_->get<std::int64_t>() >= least && value_->get<std::int64_t>() <= most) {
    return value_->get<std::int64_t>();
  }
  return corrupt("must be an integer from " + std::to_string(least) + " to " +
                 std::to_string(most));
}

Result<char32_t> JsonField::as_character() const {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view text, as_string());
  if (text.empty() || utf8_next(text, 0) != text.size()) {
    return corrupt("must be one character, is " + in_quotes(text));
  }
  return utf8_code_at(text, 0);
}

Result<bool> JsonField::bool_or(std::string_view name, bool otherwise) const {
  const std::optional<JsonField> field = try_member(name);
  return field ? field->as_bool() : Result<bool>(otherwise);
}

Result<std::string_view> JsonField::string_or(std::string_view name,
                                              std::string_view otherwise) const {
  const std::optional<JsonField> field = try_member(name);
  return field ? field->as_string() : Result<std::string_view>(otherwise);
}

Result<std::string_view> JsonField::type_name() const {
  STEMMA_ASSIGN_OR_RETURN(const JsonField type, member("type"));
  return type.as_string();
}

namespace {

using AddStep = FunctionRef<Status(std::string_view type, const JsonField& step)>;

Status add_steps(const JsonField& field, std::string_view list, AddStep add_step,
                 std::size_t& steps) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view type, field.type_name());
  if (type != "Sequence") {
    if (++steps > kChainStepsMax) return field.error(ErrorCode::kTooLarge, "more than 64 steps");
    return add_step(type, field);
  }
  STEMMA_ASSIGN_OR_RETURN(const JsonField members, field.member(list));
  STEMMA_RETURN_IF_ERROR(members.expect_array());
  for (std::size_t member = 0; member < members.element_count(); ++member) {
    STEMMA_RETURN_IF_ERROR(add_steps(members.element(member), list, add_step, steps));
  }
  return {};
}

}  // namespace

Status for_each_step(const JsonField& field, std::string_view list, AddStep add_step) {
  std::size_t steps = 0;
  return add_steps(field, list, add_step, steps);
}

Result<JsonText> JsonText::parse(std::string_view json, std::string_view file_name) {
  STEMMA_ASSIGN_OR_RETURN(
      Json root, parse_json_object(json, file_name,
                                   {.text_bytes_max = kJsonBytesMax, .depth_max = kJsonDepthMax}));
  return JsonText(std::make_unique<Json>(std::move(root)), std::string(file_name));
}

JsonText::JsonText(std::unique_ptr<Json> root, std::string file_name)
    : root_(std::move(root)),
      file_name_(std::make_unique<const std::string>(std::move(file_name))) {}

JsonText::JsonText(JsonText&&) noexcept = default;
JsonText& JsonText::operator=(JsonText&&) noexcept = default;
JsonText::~JsonText() = default;

JsonField JsonText::root() const {
  return JsonField(*root_, *file_name_, "");
}

}  // namespace stemma
