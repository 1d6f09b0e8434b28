#include "grammar/schema_words.h"

#include <cmath>

namespace stemma {
namespace {

// Of those that say something of values of any type, or of a string or a list beside others.
constexpr std::array kSaying = {"type", "enum", "const", "format", "not", "additionalItems"};

bool allows(const WordNames& types, std::string_view type) {
  return types.contains(type) || (type == "integer" && types.contains("number"));
}

}  // namespace

bool says_something(std::string_view word) {
  if (is_among(word, kSaying) || is_among(word, kNarrowingWords)) return true;
  return std::any_of(std::begin(kTypes), std::end(kTypes), [&](const TypeWords& type) {
    return std::any_of(type.words.begin(), type.words.end(),
                       [&](const char* one) { return one != nullptr && word == one; });
  });
}

bool narrows(std::string_view word, const TemplateJson& value) {
  if (word == "uniqueItems") return value != false;
  if (word == "minProperties") return value != 0;
  if (word == "propertyNames") {
    const TemplateJson string_type = {{"type", "string"}};
    return value != true && value != TemplateJson::object() && value != string_type;
  }
  return is_among(word, kNarrowingWords);
}

std::string_view implied_type(const TemplateJson& schema) {
  for (const TypeWords& type : kTypes) {
    for (const char* const word : type.words) {
      if (word != nullptr && schema.contains(word)) return type.type;
    }
  }
  return {};
}

std::optional<ListedValues> values_of(const TemplateJson& schema) {
  const auto listed = schema.find("enum");
  const auto one = schema.find("const");
  if (listed == schema.end() && one == schema.end()) return std::nullopt;
  if (listed == schema.end()) return ListedValues{&*one};
  ListedValues values;
  for (const TemplateJson& value : *listed) {
    if (one == schema.end() || value == *one) values.push_back(&value);
  }
  return values;
}

WordNames names_of(const TemplateJson& names) {
  WordNames all;
  if (names.is_string()) all.insert(names.get<std::string>());
  if (!names.is_array()) return all;
  for (const TemplateJson& name : names) {
    if (name.is_string()) all.insert(name.get<std::string>());
  }
  return all;
}

std::string_view type_of_value(const TemplateJson& value) {
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (!value.is_number()) return "null";
  const auto number = value.get<double>();
  return std::floor(number) == number ? "integer" : "number";
}

bool is_of_types(const TemplateJson& value, const WordNames& types) {
  return allows(types, type_of_value(value));
}

WordNames types_of_both(const WordNames& a, const WordNames& b) {
  WordNames both;
  for (const std::string& type : a) {
    if (allows(b, type)) both.insert(type);
  }
  for (const std::string& type : b) {
    if (allows(a, type)) both.insert(type);
  }
  return both;
}

}  // namespace stemma
