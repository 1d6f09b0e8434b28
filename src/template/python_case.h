// What Python knows of characters: their cases, and which of them repr shows as they are.
//
// Thread:     pure functions.
// Memory:     a new string where there is one.
// Cost:       O(bytes).
// Not here:   text operations that need neither (python_text.h).
// Limits:     Unicode as utf8proc has it. Of texts whose cases are more than one character for
//             another (Σ at a word's end, ligatures) nothing is said, and title() is of ASCII: the
//             caller refuses those, none is passed through.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stemma::jinja {

// str.upper, lower and capitalize; str.title of ASCII. nullopt: see the limits.
std::optional<std::string> upper(std::string_view text);
std::optional<std::string> lower(std::string_view text);
std::optional<std::string> capitalize(std::string_view text);
std::optional<std::string> title(std::string_view text);
// The filter of that name: what follows white space, a hyphen or an opening bracket is upper case,
// all else lower.
std::optional<std::string> words_begun_upper(std::string_view text);

// repr(str).
std::string quoted_text(std::string_view text);

}  // namespace stemma::jinja
