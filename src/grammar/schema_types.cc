#include "grammar/schema_types.h"

#include <string>

namespace stemma {
namespace {

using Json = TemplateJson;

const WordNames kNotSaid;

WordNames known_types(const WordNames& names) {
  WordNames types;
  for (const TypeWords& type : kTypes) {
    if (names.contains(type.type)) types.emplace(type.type);
  }
  return types;
}

WordNames types_of_values(const Json& values) {
  WordNames types;
  for (const Json& value : values) {
    const std::string_view type = type_of_value(value);
    if (types.contains(type)) continue;
    types.emplace(type);
    if (type == "integer") types.emplace("number");
  }
  return types;
}

}  // namespace

const WordNames& SchemaTypes::of(const Json& schema) {
  if (!schema.is_object() || depth_ == kDepthMax) return kNotSaid;
  const auto [known, is_new] = known_.try_emplace(&schema);
  WordNames& types = known->second;  // stays where it is
  if (!is_new) return types;
  ++depth_;
  types = found_in(schema);
  --depth_;
  return types;
}

WordNames SchemaTypes::found_in(const Json& schema) {
  for (const auto& [word, value] : schema.get_ref<const Json::object_t&>()) {
    WordNames types = said_by(word, value);
    if (!types.empty()) return types;
  }
  for (const TypeWords& type : kTypes) {
    for (const char* const word : type.words) {
      if (word != nullptr && schema.contains(word)) return {std::string(type.type)};
    }
  }
  return {};
}

WordNames SchemaTypes::said_by(std::string_view word, const Json& value) {
  if (word == "type") return known_types(names_of(value));
  if (word == "const") return types_of_values(Json::array({value}));
  if (word == "enum") return types_of_values(value);
  if (word == "anyOf" || word == "oneOf") return of_any(value);
  if (word == "allOf") return of_all(value);
  if (word != "$ref") return {};
  const Result<const Json*> named = references_.named_by(value);
  return named.ok() ? of(**named) : WordNames();
}

WordNames SchemaTypes::of_any(const Json& schemas) {
  WordNames types;
  for (const Json& schema : schemas) {
    const WordNames& some = of(schema);
    if (some.empty()) return {};
    types.insert(some.begin(), some.end());
  }
  return types;
}

WordNames SchemaTypes::of_all(const Json& schemas) {
  WordNames types;
  for (const Json& schema : schemas) {
    const WordNames& some = of(schema);
    if (!some.empty()) types = types.empty() ? some : types_of_both(types, some);
  }
  return types;
}

}  // namespace stemma
