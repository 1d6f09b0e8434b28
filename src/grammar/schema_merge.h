// SchemaMerge: one schema of JSON that says what several say together.
//
// A schema may say several things at once: by allOf, or by words beside $ref, anyOf and oneOf. A
// reader who turns words of one object into a grammar cannot read that; here they become words of
// one. What others say goes into each of several that are to choose from. A member of two schemas
// is allOf of both again, to be merged when it is read.
//
//   {"allOf": [{"$ref": "#/$defs/ship"}, {"properties": {"crew": ...}}], "required": ["name"]}
//       {"properties": {"name": ..., "crew": ...}, "required": ["name"]}
//
// Numbers bound from the nearer side, types and values are those of both, members and items at
// places those of either, where the other one lets them be. Two different patterns, formats or
// steps have no schema together and are refused by name. What only describes is left out.
//
// Thread:     pure functions.
// Memory:     the schema that is made: a copy of what it is made of.
// Cost:       linear in what is copied, which the budget bounds; of choices the product of their
//             numbers, kMergedChoicesMax at most.
// Not here:   grammars (json_schema).
#pragma once

#include <cstddef>
#include <string>

#include "grammar/schema_budget.h"
#include "grammar/schema_reference.h"
#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

inline constexpr std::size_t kMergedChoicesMax = 256;

// Whether it says several things at once.
bool says_several(const TemplateJson& schema);

// The same as one: a boolean, an object with neither allOf nor a $ref, or {"anyOf": [such ones]}.
// False: nothing keeps to all that it says; a member or an item of which nothing does may be left.
// kUnsupported: what two say and has no schema together, or more than the budget has left;
// kInvalidArgument: what is no schema. `path` is where the schema is, for errors.
Result<TemplateJson> merged_schema(const TemplateJson& schema, SchemaReferences& references,
                                   const std::string& path, SchemaBudget& budget);

}  // namespace stemma
