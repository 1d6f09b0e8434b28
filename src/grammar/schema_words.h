// SchemaWords: the words of schemas of JSON, and the types of values that they name.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       O(words that there are).
// Not here:   what they allow (json_schema), what they say together (schema_merge).
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "template/chat_template.h"

namespace stemma {

// What stands for other schemas.
inline constexpr std::array kStandingWords = {"$ref", "allOf", "anyOf", "oneOf"};

// What tells something of a value of one type, in the order in which types are tried.
struct TypeWords {
  std::string_view type;
  std::array<const char*, 5> words;
};
inline constexpr TypeWords kTypes[] = {
    {"object", {"properties", "required", "additionalProperties"}},
    {"array", {"items", "prefixItems", "minItems", "maxItems"}},
    {"string", {"minLength", "maxLength", "pattern"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
    {"integer", {}},
    {"boolean", {}},
    {"null", {}},
};

// What narrows a schema and is not kept to.
inline constexpr std::array kNarrowingWords = {"minProperties",
                                               "maxProperties",
                                               "propertyNames",
                                               "patternProperties",
                                               "dependencies",
                                               "dependentRequired",
                                               "dependentSchemas",
                                               "uniqueItems",
                                               "contains",
                                               "minContains",
                                               "maxContains",
                                               "if",
                                               "then",
                                               "else",
                                               "unevaluatedProperties",
                                               "unevaluatedItems",
                                               "$dynamicRef",
                                               "$recursiveRef"};

template <typename Words>
bool is_among(std::string_view word, const Words& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Whether a word narrows the values of its schema: else it only describes (title, default,
// discriminator, $defs, what nobody knows), or stands for other schemas.
bool says_something(std::string_view word);

// Whether a word is one of kNarrowingWords and does narrow: uniqueItems that is false, no members
// at least and names that are strings are what all values keep to.
bool narrows(std::string_view word, const TemplateJson& value);

// The type that words of one type alone mean, of a schema that says none; empty: it has none. Who
// names properties means an object.
std::string_view implied_type(const TemplateJson& schema);

// The values that enum and const list; nullopt: neither is said.
using ListedValues = std::vector<const TemplateJson*>;
std::optional<ListedValues> values_of(const TemplateJson& schema);
// Values, for which looking another one up takes no walk through them.
struct IsLessValue {
  bool operator()(const TemplateJson* a, const TemplateJson* b) const { return *a < *b; }
};
using ValueSet = std::set<const TemplateJson*, IsLessValue>;

// Of types, or of members.
using WordNames = std::set<std::string, std::less<>>;
// Of a name or a list of names; what is none is passed over.
WordNames names_of(const TemplateJson& names);
// The narrowest type of a value, of those that schemas name.
std::string_view type_of_value(const TemplateJson& value);
// Whether a value is of one of the types. An integer is a number too.
bool is_of_types(const TemplateJson& value, const WordNames& types);
WordNames types_of_both(const WordNames& a, const WordNames& b);

}  // namespace stemma
