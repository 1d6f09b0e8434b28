#include "model/json_text.h"

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

// Watches the parser: depth, fields and repeated keys, all of which it would accept.
template <typename AnyJson>
class ParseWatch {
 public:
  using Event = typename AnyJson::parse_event_t;
  explicit ParseWatch(const JsonLimits& limits) : limits_(limits) {}

  // False drops the value, which is fine: an error follows.
  bool operator()(int depth, Event event, const AnyJson& parsed) {
    if (depth > limits_.depth_max) too_deep = true;
    if (too_deep || too_wide) return false;
    if (event == Event::object_start) {
      keys_.emplace_back();
    } else if (event == Event::object_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      note_key(parsed.template get_ref<const std::string&>());
    }
    return !too_wide;
  }

  bool too_deep = false;
  bool too_wide = false;
  std::optional<std::string> repeated_key;

 private:
  void note_key(const std::string& key) {
    if (!keys_.back().insert(key).second && !repeated_key.has_value()) repeated_key = key;
    too_wide = keys_.back().size() > limits_.fields_max;
  }

  const JsonLimits& limits_;
  std::vector<std::set<std::string>> keys_;
};

template <typename AnyJson>
Status check_watch(const ParseWatch<AnyJson>& watch, const std::string& file,
                   const JsonLimits& limits) {
  if (watch.too_deep) {
    return Error{ErrorCode::kTooLarge, file + ": JSON nested deeper than " +
                                           std::to_string(limits.depth_max) + " levels"};
  }
  if (watch.too_wide) {
    return Error{ErrorCode::kTooLarge, file + ": a JSON object of more than " +
                                           std::to_string(limits.fields_max) + " fields"};
  }
  if (watch.repeated_key.has_value()) {
    return Error{ErrorCode::kCorrupt,
                 file + ": key '" + printable(*watch.repeated_key) + "' appears twice"};
  }
  return {};
}

template <typename AnyJson>
Result<AnyJson> parse_watched(std::string_view text, const std::string& file,
                              const JsonLimits& limits) {
  if (text.size() > limits.text_bytes_max) {
    return Error{ErrorCode::kTooLarge, file + ": " + std::to_string(text.size()) +
                                           " bytes of JSON; at most " +
                                           std::to_string(limits.text_bytes_max) + " are accepted"};
  }
  ParseWatch<AnyJson> watch(limits);
  AnyJson parsed;
  try {
    parsed = AnyJson::parse(text.begin(), text.end(), std::ref(watch));
  } catch (const typename AnyJson::parse_error& error) {
    return Error{ErrorCode::kCorrupt,
                 file + ": not valid JSON at byte " + std::to_string(error.byte)};
  } catch (const typename AnyJson::exception& error) {  // a number beyond any double
    return Error{ErrorCode::kCorrupt, file + ": not valid JSON: " + printable(error.what())};
  }
  STEMMA_RETURN_IF_ERROR(check_watch(watch, file, limits));
  return parsed;
}

}  // namespace

Result<Json> parse_json_value(std::string_view text, std::string_view file_name,
                              const JsonLimits& limits) {
  return parse_watched<Json>(text, std::string(file_name), limits);
}

Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, std::string_view file_name,
                                                  const JsonLimits& limits) {
  return parse_watched<nlohmann::ordered_json>(text, std::string(file_name), limits);
}

Result<Json> parse_json_object(std::string_view text, std::string_view file_name,
                               const JsonLimits& limits) {
  STEMMA_ASSIGN_OR_RETURN(Json parsed, parse_json_value(text, file_name, limits));
  if (!parsed.is_object()) {
    return Error{ErrorCode::kCorrupt, std::string(file_name) + ": must be a JSON object"};
  }
  return parsed;
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
