// ByteRegex: the texts that a regular expression matches, as a grammar.
//
// Alternatives, groups, quantifiers (lazy ones match the same texts), classes, \d \w \s and their
// opposites (of ASCII, as in ECMAScript), escapes of characters, the dot, and ^ and $ at the ends
// of the whole expression or of its alternatives. What looks beside a text or back (lookaround,
// \b, backreferences), possessive quantifiers and Unicode's properties are refused by name.
// Source of the syntax: ECMA-262, Patterns.
//
// Thread:     pure functions.
// Memory:     the parts of the grammar.
// Cost:       linear in the expression.
// Not here:   regular expressions of tokenizers (model/tokenizer_regex), searching a text.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "grammar/byte_grammar.h"
#include "stemma/result.h"

namespace stemma {

enum class RegexMatch : std::uint8_t {
  kWhole,     // the text is all that the expression matches
  kAnywhere,  // somewhere in the text, unless ^ and $ say where
};

// How one of these characters is written.
using CharWriter = FunctionRef<ByteGrammar::Part(std::span<const CharRange>)>;

// kInvalidArgument for a mistake, kUnsupported for what has no grammar: the byte at which it is,
// and what; kTooLarge where the grammar is full, behind which nothing is read. REQUIRES:
// `expression` is well-formed UTF-8.
Result<ByteGrammar::Part> add_regex(std::string_view expression, RegexMatch match,
                                    ByteGrammar& grammar, CharWriter write);
// The same of characters that stand for themselves.
Result<ByteGrammar::Part> add_regex(std::string_view expression, RegexMatch match,
                                    ByteGrammar& grammar);

}  // namespace stemma
