// TokenizerRegexSyntax: from the regular expressions of tokenizer.json to those of PCRE2.
//
// The files are written for Oniguruma with its own syntax, which is Ruby's. Most of it means the
// same to PCRE2 (with UTF, UCP and MULTILINE: ^ and $ are about lines). Translated:
//   - \s \S (White_Space), \w \W (Alphabetic, Mark, Nd, Pc and, outside of classes, the numbers of
//     Latin-1), \b \B (between such), \h \H (hexadecimal digits), \v, \uHHHH, [:names:] in classes;
//   - X{n,m}+ (repeats X{n,m}), X{n}? (is X{n} or nothing), {,m}, a brace that counts nothing;
//   - (?m) (the dot takes line ends), long names of general categories, and names of scripts (the
//     Script property, where PCRE2 alone would take Script_Extensions).
// Refused by name: nested classes, &&, \W and \H inside a class, [:graph:] and [:print:], (*VERBS),
// \Q \E \V \X, \g{ and \k{, and (?i) where several letters are one character elsewhere (ss and ß).
// Sources: Oniguruma, doc/RE, and what version 6.9.8 finds, but that [:punct:] has symbols, as in
// the later one that Hugging Face's tokenizers 0.22 have; PCRE2, pcre2pattern(3).
//
// Thread:     pure function.
// Memory:     the returned string.
// Cost:       one pass.
// Not here:   compiling and searching (tokenizer_regex).
#pragma once

#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

// The expression in PCRE2's syntax. An error's detail names the construct, not the file.
Result<std::string> translate_regex(std::string_view expression);

}  // namespace stemma
