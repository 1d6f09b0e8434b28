// JsonSchema: the texts of JSON that keep to a schema, as a grammar.
//
// Of JSON Schema (2020-12, and the definitions of earlier drafts): type, enum, const, properties,
// required, additionalProperties, items, prefixItems (schema_items), minItems, maxItems, minLength,
// maxLength or pattern (byte_regex), format (string_format), minimum, maximum, their exclusive
// forms and multipleOf (number_schema), anyOf, oneOf, allOf, and $ref within the schema, recursive
// ones too; what is said beside those (schema_merge); propertyNames that lists names, and not of
// types and of values (schema_exclusion).
//
// A grammar gives less than a schema allows: members come in the order of `properties`, numbers
// have at most 18 digits (those with bounds six behind the point, and no exponent), white space is
// a space or a line's begin, and members that no property names only come where
// additionalProperties or, where the schema is not strict, patternProperties say so, under any
// name. It gives more in two things: what several schemas of a oneOf allow
// may come, and a name that no property has may come twice.
//
// A schema that nothing keeps to is left out of choices, and so is a member or an item of it that
// need not be; where it cannot be left out, the whole is refused with the place that says why.
// Values beside a type are those of that type. Words of one type alone, without a type, mean it.
//
// What else narrows a schema (uniqueItems, ...) is refused by name where the schema
// is strict, and not kept to where it is not; what only describes (title, default, other
// formats, a known one beside a pattern or a length, ...), or narrows nothing ("uniqueItems":
// false, "propertyNames": {"type": "string"}), is passed over.
//
// Thread:     pure functions.
// Memory:     the parts of the grammar, and what is copied where schemas say several things
//             (schema_budget).
// Cost:       linear in the schema and in what is copied.
// Not here:   checking a text that is there already.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "grammar/byte_grammar.h"
#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

struct JsonParts;

// The texts of a schema. kInvalidArgument or kUnsupported: where in the schema (behind `path`), and
// what is wrong there.
struct SchemaRules {
  bool strict = true;
  std::string path = "schema";
};
Result<ByteGrammar::Part> add_json_schema(const TemplateJson& schema, const SchemaRules& rules,
                                          ByteGrammar& grammar);
// The same over parts that several schemas share.
Result<ByteGrammar::Part> add_json_schema(const TemplateJson& schema, const SchemaRules& rules,
                                          const JsonParts& json);

// Several schemas that lie in `root`, or beside it: references are within it. One that nothing
// keeps to is for the caller to leave out, or to ask for (ByteGrammar::why_nothing). Strings may be
// plain where no schema allows an object or an array.
struct SchemaPlace {
  const TemplateJson* schema = nullptr;
  std::string path;
};
Result<std::vector<ByteGrammar::Part>> add_json_schemas(std::span<const SchemaPlace> places,
                                                        const TemplateJson& root, bool strict,
                                                        const JsonParts& json);

}  // namespace stemma
