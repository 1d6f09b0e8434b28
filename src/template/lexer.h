// Lexer: a template's source as tokens, with Jinja's rules for white space applied.
//
// Thread:     pure function.
// Memory:     tokens are views into the source and into `texts`, where decoded strings go.
// Cost:       O(source).
// Not here:   what the tokens mean together (parser.h).
//
// Rules, as the families' own renderers set them: trim_blocks (one newline after a statement or
// comment goes), lstrip_blocks (white space between a line's begin and a statement or comment
// goes), `-` on either side strips all white space there, `+` switches the first two off for its
// tag, one newline at the end of the source goes.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"

namespace stemma::jinja {

enum class TokenKind : std::uint8_t {
  kText,
  kOutputBegin,
  kOutputEnd,
  kStatementBegin,
  kStatementEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // of a string: decoded, without its quotes
  std::int32_t line = 0;
};

// One failure of a template's source: "qwen3.jinja:12: ...".
Error source_error(ErrorCode code, std::string_view file_name, std::int32_t line,
                   std::string_view what);

// The source with "\n" for every line end, and without the one at its end.
std::string normalized_source(std::string_view source);

// The tokens of `source`, the last of which is kEnd. REQUIRES: `source` is normalized and outlives
// the tokens.
Result<std::vector<Token>> tokenize(std::string_view source, std::string_view file_name,
                                    std::deque<std::string>& texts);

}  // namespace stemma::jinja
