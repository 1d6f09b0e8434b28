#include "base/json_text.h"

#include <charconv>
#include <cmath>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

// Puts values together as the parser tells of them, and looks after depth, fields and repeated
// keys, all of which it would accept. The parser's own callback would do, but at the end of each
// object it walks all that stand before it in their array.
template <typename AnyJson>
class JsonBuilder {
 public:
  using number_integer_t = typename AnyJson::number_integer_t;
  using number_unsigned_t = typename AnyJson::number_unsigned_t;
  using number_float_t = typename AnyJson::number_float_t;
  using string_t = typename AnyJson::string_t;
  using binary_t = typename AnyJson::binary_t;

  // `format` is what errors call it.
  JsonBuilder(const std::string& file, std::string_view format, const JsonLimits& limits)
      : file_(file), format_(format), limits_(limits) {}

  // What the parser calls. False ends it.
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(number_integer_t value) { return put(value); }
  bool number_unsigned(number_unsigned_t value) { return put(value); }
  bool number_float(number_float_t value, const string_t& text) {
    const bool is_integer = text.find_first_not_of("-0123456789") == string_t::npos;
    if (!limits_.keeps_wide_integers || !is_integer) return put(value);
    return put(AnyJson::binary({text.begin(), text.end()}));
  }
  bool string(string_t& value) { return put(std::move(value)); }
  bool binary(binary_t& value) { return put(std::move(value)); }
  bool start_array(std::size_t /*items*/) { return open(AnyJson::array()); }
  bool end_array() { return close(); }
  bool start_object(std::size_t /*fields*/) { return open(AnyJson::object()); }
  bool end_object() { return close(); }
  bool key(string_t& name);
  bool parse_error(std::size_t byte, const std::string& /*token*/,
                   const nlohmann::detail::exception& error);

  // REQUIRES: the parser has ended.
  Result<AnyJson> finish() && {
    STEMMA_RETURN_IF_ERROR(status_);
    return std::move(whole_);
  }

 private:
  struct Open {
    AnyJson* value = nullptr;
    std::unordered_map<std::string, std::size_t> names = {};  // of an object: where they stand
  };

  // Where the next value comes.
  AnyJson& place();
  bool put(AnyJson value) {
    place() = std::move(value);
    return true;
  }
  bool open(AnyJson empty);
  bool close() {
    open_.pop_back();
    return true;
  }
  bool fail(ErrorCode code, const std::string& why) {
    if (status_.ok()) status_ = Error{code, file_ + ": " + why};
    return false;
  }

  const std::string& file_;
  const std::string format_;
  const JsonLimits& limits_;
  AnyJson whole_;
  std::vector<Open> open_;
  AnyJson* field_ = nullptr;  // of the innermost object, whose name was read
  Status status_;
};

template <typename AnyJson>
AnyJson& JsonBuilder<AnyJson>::place() {
  if (open_.empty()) return whole_;
  AnyJson& around = *open_.back().value;
  if (around.is_object()) return *field_;
  auto& items = around.template get_ref<typename AnyJson::array_t&>();
  return items.emplace_back();
}

template <typename AnyJson>
bool JsonBuilder<AnyJson>::open(AnyJson empty) {
  if (open_.size() >= static_cast<std::size_t>(limits_.depth_max)) {
    return fail(ErrorCode::kTooLarge,
                format_ + " nested deeper than " + std::to_string(limits_.depth_max) + " levels");
  }
  AnyJson& value = place();
  value = std::move(empty);
  open_.push_back({.value = &value});
  return true;
}

template <typename AnyJson>
bool JsonBuilder<AnyJson>::key(string_t& name) {
  Open& around = open_.back();
  auto& fields = around.value->template get_ref<typename AnyJson::object_t&>();
  const auto [known, is_new] = around.names.try_emplace(name, fields.size());
  if (!is_new && !limits_.names_repeat) {
    return fail(ErrorCode::kCorrupt, "key '" + printable(name) + "' appears twice");
  }
  if (around.names.size() > limits_.fields_max) {
    return fail(ErrorCode::kTooLarge, "a " + format_ + " object of more than " +
                                          std::to_string(limits_.fields_max) + " fields");
  }
  if constexpr (std::is_same_v<AnyJson, nlohmann::ordered_json>) {
    using Container = typename AnyJson::object_t::Container;
    auto& in_order = static_cast<Container&>(fields);  // without a look at all before it
    if (is_new) in_order.emplace_back(std::move(name), nullptr);
    field_ = &in_order[known->second].second;
  } else {
    field_ = &fields[name];
  }
  return true;
}

template <typename AnyJson>
bool JsonBuilder<AnyJson>::parse_error(std::size_t byte, const std::string& /*token*/,
                                       const nlohmann::detail::exception& error) {
  if (dynamic_cast<const nlohmann::detail::parse_error*>(&error) == nullptr) {
    return fail(ErrorCode::kCorrupt, "not valid " + format_ + ": " + printable(error.what()));
  }
  return fail(ErrorCode::kCorrupt, "not valid " + format_ + " at byte " + std::to_string(byte));
}

using InputFormat = Json::input_format_t;

template <typename AnyJson, typename Bytes>
Result<AnyJson> parse_within(const Bytes& bytes, InputFormat input, const std::string& file,
                             const JsonLimits& limits) {
  const std::string format = input == InputFormat::json ? "JSON" : "MessagePack";
  if (bytes.size() > limits.text_bytes_max) {
    return Error{ErrorCode::kTooLarge, file + ": " + std::to_string(bytes.size()) + " bytes of " +
                                           format + "; at most " +
                                           std::to_string(limits.text_bytes_max) + " are accepted"};
  }
  JsonBuilder<AnyJson> builder(file, format, limits);
  AnyJson::sax_parse(bytes.begin(), bytes.end(), &builder, input);
  return std::move(builder).finish();
}

}  // namespace

Result<Json> parse_json_value(std::string_view text, std::string_view file_name,
                              const JsonLimits& limits) {
  return parse_within<Json>(text, InputFormat::json, std::string(file_name), limits);
}

Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, std::string_view file_name,
                                                  const JsonLimits& limits) {
  return parse_within<nlohmann::ordered_json>(text, InputFormat::json, std::string(file_name),
                                              limits);
}

bool narrow_wide_integers(nlohmann::ordered_json& json) {
  if (json.is_structured()) {
    bool any = false;
    for (nlohmann::ordered_json& inner : json) any = narrow_wide_integers(inner) || any;
    return any;
  }
  if (!json.is_binary()) return false;
  const std::string digits(json.get_binary().begin(), json.get_binary().end());
  double nearest = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), nearest);
  json = nearest;
  return true;
}

Result<Json> parse_json_object(std::string_view text, std::string_view file_name,
                               const JsonLimits& limits) {
  STEMMA_ASSIGN_OR_RETURN(Json parsed, parse_json_value(text, file_name, limits));
  if (!parsed.is_object()) {
    return Error{ErrorCode::kCorrupt, std::string(file_name) + ": must be a JSON object"};
  }
  return parsed;
}

Result<Json> parse_msgpack(std::span<const std::uint8_t> bytes, std::string_view name,
                           const JsonLimits& limits) {
  return parse_within<Json>(bytes, InputFormat::msgpack, std::string(name), limits);
}

JsonFields::JsonFields(const Json& object, std::string_view file_name, std::string_view path)
    : object_(object), file_name_(file_name), path_(path) {
  STEMMA_CHECK(object.is_object(), "fields are read from objects");
}

const Json* JsonFields::find_or_null(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void JsonFields::fail(ErrorCode code, std::string_view name, std::string_view why) {
  if (status_.ok()) {
    std::string line = file_name_ + ": " + path_;
    line.append(name).append(": ").append(why);
    status_ = Error{code, std::move(line)};
  }
}

JsonFields JsonFields::nested(const Json& object, std::string_view path) const {
  return {object, file_name_, path_ + std::string(path)};
}

void JsonFields::refuse_unless(std::string_view name, const Json& neutral) {
  const Json* const field = find_or_null(name);
  if (field == nullptr || *field == neutral) return;
  fail(ErrorCode::kUnsupported, name, "only " + neutral.dump() + " is supported");
}

void JsonFields::adopt(const Status& nested) {
  if (status_.ok()) {
    status_ = nested;
  }
}

std::int64_t JsonFields::integer(std::string_view name, Range range,
                                 std::optional<std::int64_t> fallback) {
  const Json* field = find_or_null(name);
  if (field == nullptr) {
    if (!fallback.has_value()) {
      fail(ErrorCode::kInvalidArgument, name, "missing");
    }
    return fallback.value_or(range.min);
  }
  // Numbers beyond 63 bits are stored unsigned; none of them is in any range.
  const bool fits = field->is_number_integer() &&
                    (!field->is_number_unsigned() || field->get<std::uint64_t>() <= INT64_MAX);
  const std::int64_t value = fits ? field->get<std::int64_t>() : 0;
  if (!fits || value < range.min || value > range.max) {
    fail(ErrorCode::kInvalidArgument, name,
         "must be an integer from " + std::to_string(range.min) + " to " +
             std::to_string(range.max) + " (got " + printable(field->dump(-1, ' ', true), 40) +
             ")");
    return fallback.value_or(range.min);
  }
  return value;
}

double JsonFields::positive(std::string_view name, std::optional<double> fallback) {
  const Json* field = find_or_null(name);
  if (field == nullptr && !fallback.has_value()) {
    fail(ErrorCode::kInvalidArgument, name, "missing");
  }
  if (field == nullptr) {
    return fallback.value_or(1.0);
  }
  const double value = field->is_number() ? field->get<double>() : 0.0;
  if (!(value > 0.0) || !std::isfinite(value)) {
    fail(ErrorCode::kInvalidArgument, name,
         "must be a number above 0 (got " + printable(field->dump(-1, ' ', true), 40) + ")");
    return fallback.value_or(1.0);
  }
  return value;
}

bool JsonFields::boolean(std::string_view name, bool fallback) {
  const Json* field = find_or_null(name);
  if (field == nullptr) {
    return fallback;
  }
  if (!field->is_boolean()) {
    fail(ErrorCode::kInvalidArgument, name, "must be true or false");
    return fallback;
  }
  return field->get<bool>();
}

std::string JsonFields::text(std::string_view name, std::optional<std::string> fallback) {
  const Json* field = find_or_null(name);
  if (field == nullptr && !fallback.has_value()) {
    fail(ErrorCode::kInvalidArgument, name, "missing");
  }
  if (field == nullptr) {
    return fallback.value_or("");
  }
  if (!field->is_string()) {
    fail(ErrorCode::kInvalidArgument, name, "must be a string");
    return fallback.value_or("");
  }
  return field->get<std::string>();
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string line(text.substr(0, bytes_max));
  for (char& c : line) {
    if (c < 0x20 || c > 0x7E) {
      c = '?';
    }
  }
  return text.size() > bytes_max ? line + "..." : line;
}

}  // namespace stemma
