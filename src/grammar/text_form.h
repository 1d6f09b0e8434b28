// TextForm: what a user asks a text to be: JSON of a schema, what a regular expression matches, a
// text of a grammar, one of several texts, or one that has forms in some places (structural_tag).
//
// Thread:     pure functions and values.
// Memory:     the schema, the expression or grammar, the texts.
// Cost:       linear in them.
// Not here:   in which fields of a request it is said (openai/output_form).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/byte_grammar.h"
#include "grammar/grammar_book.h"
#include "grammar/json_parts.h"
#include "stemma/result.h"
#include "stemma/sampling.h"
#include "template/chat_template.h"

namespace stemma {

struct TextForm {
  enum class Kind : std::uint8_t { kFree, kSchema, kRegex, kEbnf, kOneOf, kTag };
  Kind kind = Kind::kFree;
  std::string path = {};                // of what says so, for errors
  TemplateJson schema = {};             // kSchema; kTag: the structural tag
  bool strict = true;                   // what the schema says and cannot be kept to is refused
  JsonSpace space = JsonSpace::kSome;   // kSchema: in its texts
  std::string expression = {};          // kRegex: the whole text is what it matches; UTF-8
  std::string rules = {};               // kEbnf: root is the whole text; UTF-8
  std::vector<std::string> texts = {};  // kOneOf: at least one
};

// Forms that are alike have one key.
std::string text_form_key(const TextForm& form);

// The texts of a form. Errors begin with its path. REQUIRES: not kFree.
Result<ByteGrammar::Part> add_text_form(const TextForm& form, ByteGrammar& grammar);

// A constraint to the form; none of kFree. Errors begin with its path.
Result<OwnedConstraint> open_text_form(const TextForm& form, GrammarBook& book);

}  // namespace stemma
