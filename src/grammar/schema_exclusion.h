// SchemaExclusion: schemas of JSON that say which values they do not allow, or which names members
// have, as ones that say what they allow.
//
//   {"type": ["integer", "null"], "not": {"type": "null"}}         {"type": ["integer"]}
//   {"enum": [1, 2, 3], "not": {"const": 2}}                       {"enum": [1, 3]}
//   {"propertyNames": {"enum": ["a"]},                             {"properties": {"a": S},
//    "additionalProperties": S}                                     "additionalProperties": false}
//
// Thread:     pure functions.
// Memory:     the schema that is made: a copy of what it is made of.
// Cost:       linear in what is copied; a look-up a value.
// Not here:   grammars (json_schema), several schemas together (schema_merge).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grammar/schema_reference.h"
#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

// The same without `not`: a boolean, an object, or {"anyOf": [such ones]}. What is left of strings
// where some are excluded stays as excludes_strings_alone has it. kUnsupported where there is no
// such schema; kInvalidArgument where it is none. REQUIRES: the schema is an object with a `not`,
// and with nothing that stands for other schemas.
Result<TemplateJson> without_not(TemplateJson schema);

// Whether it is {"type": "string", "not": {"enum": [strings]}} and nothing else.
bool excludes_strings_alone(const TemplateJson& schema);

// Why a `not` of this is not kept to.
Error no_exclusion(std::string_view of);

// The names that members may have, where propertyNames lists some; else none.
std::vector<std::string> listed_names(const TemplateJson& schema, SchemaReferences& references);

// The same with these names, and no others, as its properties, and without propertyNames.
// REQUIRES: listed_names gave some.
TemplateJson with_names(TemplateJson schema, const std::vector<std::string>& names);

}  // namespace stemma
