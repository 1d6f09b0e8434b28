#include "grammar/schema_types.h"

#include <string>

namespace stemma {
namespace {

using Json = TemplateJson;

constexpr std::string_view kWords[] = {"true", "false"};

WordNames known_types(const WordNames& names) {
  WordNames types;
  for (const TypeWords& type : kTypes) {
    if (!names.contains(type.type)) continue;
    if (type.type == "boolean") {
      types.insert(std::begin(kWords), std::end(kWords));
    } else {
      types.emplace(type.type);
    }
  }
  return types;
}

void add_types_of_value(const Json& value, WordNames& types) {
  const std::string_view type =
      value.is_boolean() ? kWords[value.get<bool>() ? 0 : 1] : type_of_value(value);
  if (types.contains(type)) return;
  types.emplace(type);
  if (type == "integer") types.emplace("number");
}

}  // namespace

const SchemaTypes::Said& SchemaTypes::said_of(const Json& schema) {
  static const Said kNothing;
  if (!schema.is_object() || depth_ == kDepthMax) return kNothing;
  const auto [known, is_new] = known_.try_emplace(&schema);
  Said& said = known->second;  // stays where it is
  if (!is_new) return said;
  ++depth_;
  said = found_in(schema);
  --depth_;
  return said;
}

SchemaTypes::Said SchemaTypes::found_in(const Json& schema) {
  Said all;
  for (const auto& [word, value] : schema.get_ref<const Json::object_t&>()) {
    add(said_by(word, value), all);
  }
  if (!all.types.empty()) return all;
  const std::string_view implied = implied_type(schema);
  if (implied.empty()) return {};
  return {{std::string(implied)}, true};
}

// What both say; where one only implies it, what the other says.
void SchemaTypes::add(const Said& more, Said& all) {
  if (more.types.empty()) return;
  if (all.types.empty() || (all.is_implied && !more.is_implied)) {
    all = more;
  } else if (all.is_implied == more.is_implied) {
    all.types = types_of_both(all.types, more.types);
  }
}

SchemaTypes::Said SchemaTypes::said_by(std::string_view word, const Json& value) {
  Said said;
  if (word == "type") said.types = known_types(names_of(value));
  if (word == "const") add_types_of_value(value, said.types);
  if (word == "enum") {
    for (const Json& one : value) add_types_of_value(one, said.types);
  }
  if (word == "anyOf" || word == "oneOf") return said_by_any(value);
  if (word == "allOf") return said_by_all(value);
  if (word != "$ref") return said;
  const Result<const Json*> named = references_.named_by(value);
  return named.ok() ? said_of(**named) : said;
}

SchemaTypes::Said SchemaTypes::said_by_any(const Json& schemas) {
  Said any;
  for (const Json& schema : schemas) {
    const Said& some = said_of(schema);
    if (some.types.empty()) return {};
    any.types.insert(some.types.begin(), some.types.end());
    any.is_implied |= some.is_implied;
  }
  return any;
}

SchemaTypes::Said SchemaTypes::said_by_all(const Json& schemas) {
  Said all;
  for (const Json& schema : schemas) add(said_of(schema), all);
  return all;
}

}  // namespace stemma
