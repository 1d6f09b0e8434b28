#include "grammar/schema_exclusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "grammar/schema_words.h"

namespace stemma {
namespace {

using Json = TemplateJson;

// Of values of any type: an integer is a number too.
constexpr std::array kAllTypes = {"object", "array", "string", "number", "boolean", "null"};

// What a schema says of values, without what only describes.
Json words_of(const Json& schema) {
  Json words = Json::object();
  for (const auto& [word, value] : schema.items()) {
    if (says_something(word) || is_among(word, kStandingWords)) words[word] = value;
  }
  return words;
}

WordNames types_of(const Json& schema) {
  if (schema.contains("type")) return names_of(schema["type"]);
  const std::string_view implied = implied_type(schema);
  if (!implied.empty()) return {std::string(implied)};
  return {kAllTypes.begin(), kAllTypes.end()};
}

// Of the values that it lists those that are kept; false: none is.
template <typename IsKept>
Json with_values(Json schema, const ListedValues& listed, const IsKept& is_kept) {
  Json values = Json::array();
  for (const Json* const value : listed) {
    if (is_kept(*value)) values.push_back(*value);
  }
  if (values.empty()) return false;
  schema.erase("const");
  schema["enum"] = std::move(values);
  return schema;
}

Result<Json> without_types(Json schema, const Json& names) {
  const WordNames excluded = names_of(names);
  const auto is_type = [](const std::string& name) {
    return std::any_of(std::begin(kTypes), std::end(kTypes),
                       [&](const TypeWords& type) { return type.type == name; });
  };
  if (excluded.empty() || !std::all_of(excluded.begin(), excluded.end(), is_type)) {
    return Error{ErrorCode::kInvalidArgument, "not.type must be a name or a list of names"};
  }
  if (const auto listed = values_of(schema); listed.has_value()) {
    return with_values(schema, *listed,
                       [&](const Json& value) { return !is_of_types(value, excluded); });
  }
  Json kept = Json::array();
  for (const std::string& type : types_of(schema)) {
    const bool is_number = type == "integer" && excluded.contains("number");
    if (is_number || excluded.contains(type)) continue;
    if (type == "number" && excluded.contains("integer")) return no_exclusion("of integers");
    kept.push_back(type);
  }
  if (kept.empty()) return Json(false);
  schema["type"] = std::move(kept);
  return schema;
}

// What of one type is none of these values, some of which are of that type.
Result<Json> type_without_values(const Json& schema, std::string_view type, Json values) {
  if (type == "null") return Json(false);
  if (type == "boolean") {
    const Json both = {{"enum", {true, false}}};
    return with_values(both, *values_of(both), [&](const Json& value) {
      return std::find(values.begin(), values.end(), value) == values.end();
    });
  }
  const Json words = words_of(schema);
  const bool says_more = words.size() > (words.contains("type") ? 1U : 0U);
  if (type != "string" || says_more) return no_exclusion(fmt::format("of values of {}", type));
  return Json{{"type", "string"}, {"not", {{"enum", std::move(values)}}}};
}

Result<Json> without_values(const Json& schema, const Json& excluded) {
  if (!excluded.is_array()) {
    return Error{ErrorCode::kInvalidArgument, "not.enum must be a list"};
  }
  if (const auto listed = values_of(schema); listed.has_value()) {
    ValueSet values;
    for (const Json& value : excluded) values.insert(&value);
    return with_values(schema, *listed,
                       [&](const Json& value) { return !values.contains(&value); });
  }
  Json choices = Json::array();
  for (const std::string& type : types_of(schema)) {
    Json of_type = Json::array();
    for (const Json& value : excluded) {
      if (is_of_types(value, {type})) of_type.push_back(value);
    }
    Json one = schema;
    one["type"] = type;
    if (!of_type.empty()) {
      STEMMA_ASSIGN_OR_RETURN(one, type_without_values(schema, type, std::move(of_type)));
    }
    if (one != false) choices.push_back(std::move(one));
  }
  if (choices.empty()) return Json(false);
  if (choices.size() == 1) return std::move(choices[0]);
  return Json{{"anyOf", std::move(choices)}};
}

// What `schema` allows and `excluded` does not.
Result<Json> without(Json schema, const Json& excluded) {
  if (excluded == false) return schema;
  if (excluded == true) return Json(false);
  if (!excluded.is_object()) {
    return Error{ErrorCode::kInvalidArgument, "not must be an object or a boolean"};
  }
  const Json words = words_of(excluded);
  if (words.empty()) return Json(false);
  if (words.size() > 1) return no_exclusion("of several words");
  const std::string& word = words.begin().key();
  const Json& value = words.begin().value();
  if (word == "type") return without_types(std::move(schema), value);
  if (word == "const") return without_values(schema, Json::array({value}));
  if (word == "enum") return without_values(schema, value);
  return no_exclusion("of " + word);
}

}  // namespace

Error no_exclusion(std::string_view of) {
  return {ErrorCode::kUnsupported, fmt::format("not {} is not supported", of)};
}

bool excludes_strings_alone(const Json& schema) {
  const bool is_of_strings = schema.is_object() && schema.size() == 2 &&
                             schema.value("type", Json()) == "string" && schema.contains("not");
  if (!is_of_strings || !schema["not"].is_object() || schema["not"].size() != 1) return false;
  const Json values = schema["not"].value("enum", Json());
  return values.is_array() && std::all_of(values.begin(), values.end(),
                                          [](const Json& value) { return value.is_string(); });
}

// None of several: without one after the other, as long as what is left is one schema.
Result<Json> without_not(Json schema) {
  const Json excluded = std::move(schema["not"]);
  schema.erase("not");
  const bool has_several = excluded.is_object() && words_of(excluded).size() == 1 &&
                           excluded.contains("anyOf") && excluded["anyOf"].is_array();
  if (!has_several) return without(std::move(schema), excluded);
  for (const Json& one : excluded["anyOf"]) {
    if (schema.contains("anyOf")) return no_exclusion("of several schemas");
    STEMMA_ASSIGN_OR_RETURN(schema, without(std::move(schema), one));
    if (schema == false) break;
  }
  return schema;
}

std::vector<std::string> listed_names(const Json& schema, SchemaReferences& references) {
  const auto found = schema.find("propertyNames");
  if (found == schema.end()) return {};
  const Json& said = references.followed(*found);
  if (!said.is_object() || !schema.value("properties", Json::object()).is_object()) return {};
  Json words = words_of(said);
  if (words.value("type", Json("string")) != "string") return {};
  words.erase("type");
  const auto listed = values_of(words);
  const bool is_list = words.contains("const") || words.value("enum", Json()).is_array();
  if (words.size() != 1 || !listed.has_value() || !is_list) return {};
  std::vector<std::string> names;
  for (const Json* const name : *listed) {
    if (name->is_string()) names.push_back(name->get<std::string>());
  }
  return names;
}

Json with_names(Json schema, const std::vector<std::string>& names) {
  const Json own = schema.value("properties", Json::object());
  const Json others = schema.value("additionalProperties", Json(true));
  std::set<std::string_view> wanted(names.begin(), names.end());
  Json members = Json::object();
  auto& list = members.get_ref<Json::object_t&>();  // whose names are known to be different
  for (const auto& [name, member] : own.items()) {
    if (wanted.erase(name) > 0) list.emplace_back(name, member);
  }
  for (const std::string& name : names) {
    if (wanted.erase(name) > 0 && others != false) list.emplace_back(name, others);
  }
  schema.erase("propertyNames");
  schema["properties"] = std::move(members);
  schema["additionalProperties"] = false;
  return schema;
}

}  // namespace stemma
