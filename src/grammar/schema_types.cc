#include "grammar/schema_types.h"

#include <string>

#include "grammar/schema_reference.h"

namespace stemma {
namespace {

using Json = TemplateJson;

class TypeFinder {
 public:
  explicit TypeFinder(const Json& root) : root_(root) {}

  // References may go in circles, and choices of choices grow: what is not found soon is not said.
  WordNames find(const Json& schema) {
    if (!schema.is_object() || ++looks_ > kLooksMax) return {};
    for (const auto& [word, value] : schema.items()) {
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

 private:
  static constexpr int kLooksMax = 256;

  WordNames said_by(const std::string& word, const Json& value) {
    if (word == "type") return known(names_of(value));
    if (word == "const") return types_of_values(Json::array({value}));
    if (word == "enum") return types_of_values(value);
    if (word == "anyOf" || word == "oneOf") return of_any(value);
    if (word == "allOf") return of_all(value);
    if (word != "$ref") return {};
    const Result<const Json*> named = schema_of_reference(value, root_);
    return named.ok() ? find(**named) : WordNames();
  }

  static WordNames known(const WordNames& names) {
    WordNames types;
    for (const TypeWords& type : kTypes) {
      if (names.contains(type.type)) types.emplace(type.type);
    }
    return types;
  }

  static WordNames types_of_values(const Json& values) {
    WordNames types;
    for (const Json& value : values) {
      for (const TypeWords& type : kTypes) {
        if (is_of_types(value, {std::string(type.type)})) types.emplace(type.type);
      }
    }
    return types;
  }

  WordNames of_any(const Json& schemas) {
    WordNames types;
    for (const Json& schema : schemas) {
      WordNames some = find(schema);
      if (some.empty()) return {};
      types.merge(some);
    }
    return types;
  }

  WordNames of_all(const Json& schemas) {
    WordNames types;
    for (const Json& schema : schemas) {
      const WordNames some = find(schema);
      if (!some.empty()) types = types.empty() ? some : types_of_both(types, some);
    }
    return types;
  }

  const Json& root_;
  int looks_ = 0;
};

}  // namespace

WordNames types_of_schema(const TemplateJson& schema, const TemplateJson& root) {
  return TypeFinder(root).find(schema);
}

}  // namespace stemma
