// Ebnf: the texts of a grammar that a user has written, as a ByteGrammar.
//
// The notation is that of llama.cpp (GBNF), which XGrammar reads too: rules `name ::= body`, of
// which `root` is the whole text. A body has alternatives (|), sequences, groups, "texts",
// [classes] of characters, the dot for any one, names of rules, and quantifiers * + ? {n} {n,}
// {n,m} behind any of these. A rule ends where the next one begins. # begins a comment.
//
// Names have letters, digits, - and _; XGrammar's dots too, where a rule is called so: else the dot
// is any character. Texts may go over lines, and have C's escapes, \xHH, \uHHHH and \UHHHHHHHH, as
// classes do, which are those of regular expressions (byte_regex).
//
// What looks ahead, `(=`, tokens of llama.cpp, `<[1]>`, and macros are refused by name, and so are
// grammars of Lark. A rule that begins with itself is refused when the grammar is compiled.
//
// Thread:     pure functions.
// Memory:     the parts of the grammar, the names of the rules.
// Cost:       linear in the text.
// Not here:   what of a grammar may come next (byte_automaton).
#pragma once

#include <string_view>

#include "grammar/byte_grammar.h"
#include "stemma/result.h"

namespace stemma {

// kInvalidArgument for a mistake, kUnsupported for what has no grammar: the line, and what;
// kTooLarge where the grammar is full, behind which nothing is read. REQUIRES: `text` is
// well-formed UTF-8.
Result<ByteGrammar::Part> add_ebnf(std::string_view text, ByteGrammar& grammar);

}  // namespace stemma
