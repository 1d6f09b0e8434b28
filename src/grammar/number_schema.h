// Numbers as a schema of JSON wants them: between bounds, multiples of a step.
//
// Thread:     one thread a grammar.
// Memory:     the parts of the grammar.
// Cost:       that of the parts (json_parts, number_multiples).
// Not here:   everything else that a schema says (json_schema).
#pragma once

#include <string>

#include "grammar/byte_grammar.h"
#include "grammar/json_parts.h"
#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

// minimum, maximum, their exclusive forms and multipleOf. Integers have at most 18 digits; numbers
// with bounds at most six behind the point, and those that are multiples as many as their step.
// Where that allows none, a part that is nothing. kInvalidArgument, which begins with `path`: what
// it says is no number. kUnsupported: a step of too many digits, where the schema is strict;
// elsewhere it is passed over.
Result<ByteGrammar::Part> integer_of_schema(const TemplateJson& schema, bool strict,
                                            const std::string& path, const JsonParts& json);
Result<ByteGrammar::Part> number_of_schema(const TemplateJson& schema, bool strict,
                                           const std::string& path, const JsonParts& json);

}  // namespace stemma
