// StructuralTag: texts that are free in some places and have a form in others, as XGrammar writes
// it: {"type": "structural_tag", "format": F}, or of old {"structures": [{"begin", "schema",
// "end"}], "triggers": []}.
//
// Formats: const_string, json_schema, regex, grammar, any_text, sequence, or, optional, plus, star,
// repeat, tag, triggered_tags, tags_with_separator, dispatch. What is free goes up to the first end
// of the tag around it. Refused by name: formats of tokens, and schemas in other styles than JSON.
// Source: XGrammar's documentation, Structural Tag.
//
// Thread:     pure functions.
// Memory:     the parts of the grammar.
// Cost:       linear in the description, its schemas and grammars; see free_text of marks.
// Not here:   which field of a request says it (openai/output_form).
#pragma once

#include <string>

#include "grammar/byte_grammar.h"
#include "stemma/result.h"
#include "template/chat_template.h"

namespace stemma {

// kInvalidArgument, kUnsupported or kTooLarge: where in the description (behind `path`), and what
// is wrong there. Schemas are strict. REQUIRES: texts of `tag` are well-formed UTF-8.
Result<ByteGrammar::Part> add_structural_tag(const TemplateJson& tag, const std::string& path,
                                             ByteGrammar& grammar);

}  // namespace stemma
