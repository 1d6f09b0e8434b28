// The escapes of a string literal: "\n", "\u00e9", "\x41" and the rest of Python's, decoded to
// UTF-8.
//
// Thread:     pure function.
// Memory:     one new string.
// Cost:       O(bytes).
// Not here:   finding where a literal ends (lexer.h).
#pragma once

#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma::jinja {

// The text that `body`, the inside of a quoted literal, stands for. A backslash before any other
// character stays, as in Python. Errors: a named character (\N{...}), a lone surrogate, a malformed
// number.
Result<std::string> decode_string_literal(std::string_view body);

}  // namespace stemma::jinja
