#include "grammar/schema_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "model/json_text.h"

namespace stemma {
namespace {

using Json = TemplateJson;

constexpr int kDepthMax = 64;
constexpr std::size_t kValuesMax = std::size_t{1} << 17;  // that are read or copied

// What stands for other schemas.
constexpr std::array kStanding = {"$ref", "allOf", "anyOf", "oneOf"};
// What describes, and says nothing of values.
constexpr std::array kDescribing = {"title",    "description", "default", "examples",
                                    "$schema",  "$id",         "$defs",   "definitions",
                                    "$comment", "deprecated",  "readOnly"};
constexpr std::array kLeast = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
constexpr std::array kMost = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};

template <typename Names>
bool is_among(std::string_view word, const Names& names) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

bool is_any(const Json& schema) {
  return schema == true || (schema.is_object() && schema.empty());
}

// Of JSON, those within others too.
std::size_t values_in(const Json& json) {
  std::size_t values = 1;
  if (json.is_structured()) {
    for (const Json& inner : json) values += values_in(inner);
  }
  return values;
}

// The first type of a value, of those that schemas name; an integer is a number too.
std::string_view type_of(const Json& value) {
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_null()) return "null";
  const double number = value.get<double>();
  return std::floor(number) == number ? "integer" : "number";
}

using Names = std::set<std::string, std::less<>>;
Names names_of(const Json& type) {
  Names names;
  const Json list = type.is_array() ? type : Json::array({type});
  for (const Json& name : list) {
    if (name.is_string()) names.insert(name.get<std::string>());
  }
  return names;
}
bool allows(const Names& types, std::string_view type) {
  return types.contains(type) || (type == "integer" && types.contains("number"));
}

class SchemaMerger {
 public:
  SchemaMerger(const Json& root, const std::string& path) : root_(root), path_(path) {}

  Result<Json> merge(const Json& schema) {
    Json whole = without_forbidden(plain(schema, /*depth=*/0));
    if (status_.ok() && whole == false) {
      fail(ErrorCode::kInvalidArgument, "nothing keeps to all that it says");
    }
    if (!status_.ok()) return status_.error();
    return whole;
  }

 private:
  Json fail(ErrorCode code, std::string_view why) {
    if (status_.ok()) status_ = Error{code, fmt::format("{}: {}", path_, why)};
    return false;
  }
  Json several(std::string_view word) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} of several schemas is not supported", word));
  }

  // A boolean, an object without what stands for others, or anyOf such ones.
  Json plain(const Json& schema, int depth) {
    if (schema.is_boolean()) return schema;
    if (!schema.is_object()) {
      return fail(ErrorCode::kInvalidArgument, "must be an object or a boolean");
    }
    if (!has_room(1)) return false;
    if (depth > kDepthMax) {
      return fail(ErrorCode::kInvalidArgument, "schemas that stand for each other without an end");
    }
    if (!is_readable(schema)) return false;
    Json own = Json::object();
    for (const auto& [word, value] : schema.items()) {
      if (!is_among(word, kStanding) && !is_among(word, kDescribing)) own[word] = value;
    }
    if (const auto target = schema.find("$ref"); target != schema.end()) {
      const auto named = schema_of_reference(*target, root_);
      if (!named.ok()) return fail(named.error().code, named.error().detail);
      own = both(own, plain(**named, depth + 1));
    }
    if (const auto all = schema.find("allOf"); all != schema.end()) {
      if (!is_list(*all, "allOf")) return false;
      for (const Json& one : *all) own = both(own, plain(one, depth + 1));
    }
    for (const char* const word : {"anyOf", "oneOf"}) {
      const auto some = schema.find(word);
      if (some == schema.end()) continue;
      if (!is_list(*some, word)) return false;
      Json choices = Json::array();
      for (const Json& one : *some) add_choice(plain(one, depth + 1), choices);
      own = both(own, chosen(std::move(choices)));
    }
    return own;
  }

  // Whether words that are put together with others' are what they have to be.
  bool is_readable(const Json& schema) {
    const auto is_of = [&](const char* word, auto&& is_right, std::string_view what) {
      const auto found = schema.find(word);
      if (found == schema.end() || is_right(*found)) return true;
      fail(ErrorCode::kInvalidArgument, fmt::format("{} must be {}", word, what));
      return false;
    };
    const auto is_object = [](const Json& value) { return value.is_object(); };
    const auto is_full_list = [](const Json& value) { return value.is_array() && !value.empty(); };
    const auto is_named = [](const Json& value) { return value.is_string() || is_names(value); };
    return is_of("properties", is_object, "an object") &&
           is_of("required", is_names, "a list of names") &&
           is_of("enum", is_full_list, "a list of at least one") &&
           is_of("type", is_named, "a name or a list of names");
  }
  static bool is_names(const Json& list) {
    return list.is_array() &&
           std::all_of(list.begin(), list.end(), [](const Json& name) { return name.is_string(); });
  }

  // Schemas that stand for two each, which stand for two each, are soon too many to read.
  bool has_room(std::size_t values) {
    values_ += values;
    if (values_ > kValuesMax) {
      fail(ErrorCode::kUnsupported, "so many schemas together are not supported");
    }
    return status_.ok();
  }

  bool is_list(const Json& value, std::string_view word) {
    if (value.is_array() && !value.empty()) return true;
    fail(ErrorCode::kInvalidArgument, fmt::format("{} must be a list of at least one", word));
    return false;
  }

  void add_choice(Json one, Json& choices) {
    if (one == false) return;
    if (one.is_object() && one.contains("anyOf")) {
      for (Json& inner : one["anyOf"]) choices.push_back(std::move(inner));
    } else {
      choices.push_back(std::move(one));
    }
    if (choices.size() > kMergedChoicesMax) {
      fail(ErrorCode::kUnsupported, "too many schemas to choose from together");
    }
  }
  static Json chosen(Json choices) {
    if (choices.empty()) return false;
    if (choices.size() == 1) return std::move(choices[0]);
    return {{"anyOf", std::move(choices)}};
  }

  // What keeps to two plain ones.
  Json both(const Json& a, const Json& b) {
    if (!status_.ok() || a == false || b == false) return false;
    if (is_any(a)) return b;
    if (is_any(b)) return a;
    const bool first = a.contains("anyOf");
    if (!first && !b.contains("anyOf")) return merged(a, b);
    Json choices = Json::array();
    for (const Json& one : (first ? a : b)["anyOf"]) {
      add_choice(first ? both(one, b) : both(a, one), choices);
    }
    return chosen(std::move(choices));
  }

  Json merged(const Json& a, const Json& b) {
    if (!has_room(values_in(a) + values_in(b))) return false;
    Json out = a;
    for (const auto& [word, value] : b.items()) {
      if (word == "properties" || word == "additionalProperties" || word == "required") continue;
      if (word == "enum" || word == "const") continue;
      const auto there = out.find(word);
      if (there == out.end()) {
        out[word] = value;
      } else if (*there != value) {
        *there = word_of_both(word, *there, value);
      }
    }
    if (out.contains("type") && out["type"].empty()) return false;
    if (!merge_values(a, b, out)) return false;
    merge_members(a, b, out);
    return out;
  }

  Json word_of_both(const std::string& word, const Json& a, const Json& b) {
    if (word == "type") return types_of_both(a, b);
    const bool numbers = a.is_number() && b.is_number();
    if (numbers && is_among(word, kLeast)) return a.get<double>() < b.get<double>() ? b : a;
    if (numbers && is_among(word, kMost)) return a.get<double>() < b.get<double>() ? a : b;
    if (word == "items") return conjunction(a, b);
    return several(word);
  }

  static Json types_of_both(const Json& a, const Json& b) {
    const Names of_a = names_of(a);
    const Names of_b = names_of(b);
    Names both;
    for (const std::string& type : of_a) {
      if (allows(of_b, type)) both.insert(type);
    }
    for (const std::string& type : of_b) {
      if (allows(of_a, type)) both.insert(type);
    }
    return both;
  }

  // Of enum and const: the values that both have, and that are of the type. False: none.
  bool merge_values(const Json& a, const Json& b, Json& out) {
    std::optional<Json> values = values_of(a);
    const std::optional<Json> others = values_of(b);
    if (!values.has_value() && !others.has_value()) return true;
    if (!values.has_value()) values = others;
    const std::set<Json> of_others = others.has_value() ? set_of(*others) : std::set<Json>();
    const Names types = names_of(out.value("type", Json::array()));
    Json kept = Json::array();
    for (const Json& value : *values) {
      const bool is_others = !others.has_value() || of_others.contains(value);
      const bool is_typed = !out.contains("type") || allows(types, type_of(value));
      if (is_others && is_typed) kept.push_back(value);
    }
    for (const char* const word : {"enum", "const", "type"}) out.erase(word);
    if (kept.empty()) return false;
    out["enum"] = std::move(kept);
    return true;
  }
  // Lists may be long.
  static std::set<Json> set_of(const Json& list) { return {list.begin(), list.end()}; }

  static std::optional<Json> values_of(const Json& schema) {
    if (schema.contains("const")) return Json::array({schema["const"]});
    if (schema.contains("enum") && schema["enum"].is_array()) return schema["enum"];
    return std::nullopt;
  }

  // What keeps to two schemas within these, that may be merged later.
  static Json conjunction(const Json& a, const Json& b) {
    if (a == b || is_any(b)) return a;
    if (is_any(a)) return b;
    if (a == false || b == false) return false;
    return {{"allOf", Json::array({a, b})}};
  }

  // Members that either names, as far as the other lets them be, false where it does not; those
  // that must be there.
  static void merge_members(const Json& a, const Json& b, Json& out) {
    Json required = a.value("required", Json::array());
    std::set<Json> known = set_of(required);
    for (const Json& name : b.value("required", Json::array())) {
      if (known.insert(name).second) required.push_back(name);
    }
    if (!required.empty()) out["required"] = std::move(required);
    const Json others = others_of_both(a, b);
    if (!others.is_null()) out["additionalProperties"] = others;
    if (!a.contains("properties") && !b.contains("properties")) return;
    Json members = Json::object();
    const Json of_a = a.value("properties", Json::object());
    for (const auto& [name, schema] : of_a.items()) {
      members[name] = conjunction(schema, member_of(b, name));
    }
    const Json of_b = b.value("properties", Json::object());
    for (const auto& [name, schema] : of_b.items()) {
      if (!members.contains(name)) members[name] = conjunction(member_of(a, name), schema);
    }
    out["properties"] = std::move(members);
  }

  // Members that may not be there are not named, as far as that says so.
  Json without_forbidden(Json schema) {
    if (!schema.is_object()) return schema;
    if (schema.contains("anyOf")) {
      Json choices = Json::array();
      for (Json& one : schema["anyOf"]) add_choice(without_forbidden(std::move(one)), choices);
      return chosen(std::move(choices));
    }
    if (!schema.contains("properties")) return schema;
    const std::set<Json> required = set_of(schema.value("required", Json::array()));
    const bool others = schema.value("additionalProperties", Json(false)) != false;
    Json kept = Json::object();
    for (const auto& [name, member] : schema["properties"].items()) {
      if (member != false) {
        kept[name] = member;
      } else if (required.contains(name)) {
        return false;
      } else if (others) {
        return several("additionalProperties");
      }
    }
    schema["properties"] = std::move(kept);
    return schema;
  }
  static Json others_of_both(const Json& a, const Json& b) {
    const auto of_a = a.find("additionalProperties");
    const auto of_b = b.find("additionalProperties");
    if (of_a == a.end()) return of_b == b.end() ? Json() : *of_b;
    return of_b == b.end() ? *of_a : conjunction(*of_a, *of_b);
  }
  // What a schema says of a member of that name.
  static Json member_of(const Json& schema, const std::string& name) {
    const auto properties = schema.find("properties");
    if (properties != schema.end() && properties->contains(name)) return (*properties)[name];
    return schema.value("additionalProperties", Json(true));
  }

  const Json& root_;
  const std::string& path_;
  Status status_;
  std::size_t values_ = 0;
};

}  // namespace

bool says_several(const Json& schema) {
  if (!schema.is_object()) return false;
  const auto all = schema.find("allOf");
  if (all != schema.end() && all->is_array() && all->size() > 1) return true;
  std::size_t words = 0;
  bool stands = false;
  for (const auto& [word, value] : schema.items()) {
    stands = stands || is_among(std::string_view(word), kStanding);
    if (!is_among(std::string_view(word), kDescribing)) ++words;
  }
  return stands && words > 1;
}

Result<Json> merged_schema(const Json& schema, const Json& root, const std::string& path) {
  return SchemaMerger(root, path).merge(schema);
}

Result<const Json*> schema_of_reference(const Json& reference, const Json& root) {
  const auto wrong = [](std::string why) {
    return Error{ErrorCode::kInvalidArgument, std::move(why)};
  };
  if (!reference.is_string()) return wrong("must be a string");
  const auto& target = reference.get_ref<const std::string&>();
  if (!target.starts_with('#')) {
    return Error{ErrorCode::kUnsupported, "only within the schema (#...)"};
  }
  try {
    const Json::json_pointer pointer(target.substr(1));
    if (root.contains(pointer)) return &root.at(pointer);
  } catch (const Json::exception&) {
    return wrong(fmt::format("\"{}\" is no place", printable(target)));
  }
  return wrong(fmt::format("\"{}\" is not there", printable(target)));
}

}  // namespace stemma
