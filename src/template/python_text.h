// Python's text operations over UTF-8: templates are written against Python strings, which count
// code points.
//
// Thread:     pure functions.
// Memory:     views into the argument where the result is a part of it, else a new string.
// Cost:       O(bytes).
// Not here:   cases and repr (python_case.h), values of a template (value.h), JSON
//             (template_json.h).
// Limits:     a byte that is not part of a valid UTF-8 sequence counts as one character and equals
//             no other character than itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::jinja {

// The bytes of the character that begins at `text[at]`: 1..4. REQUIRES: at < text.size().
std::size_t character_bytes(std::string_view text, std::size_t at);

// The code point of one character; −1 for a byte that is part of no valid sequence.
std::int32_t code_point(std::string_view character);

// The number of characters.
std::int64_t character_count(std::string_view text);

// The characters in order, as views into `text`.
std::vector<std::string_view> characters(std::string_view text);

// Whether the character is white space to Python's str.isspace.
bool is_space(std::string_view character);

enum class Side : std::uint8_t { kBoth, kLeft, kRight };

// str.strip, lstrip, rstrip. Without `chars`, white space; else every leading or trailing character
// found in `chars`.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> chars = std::nullopt);

// str.split(separator, splits_max); a negative splits_max has no limit. REQUIRES: separator is not
// empty.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    std::int64_t splits_max);

// str.rsplit(separator, splits_max): cuts from the end. REQUIRES: as split.
std::vector<std::string_view> split_from_end(std::string_view text, std::string_view separator,
                                             std::int64_t splits_max);

// str.split(None, splits_max): runs of white space separate; no empty parts.
std::vector<std::string_view> split_on_space(std::string_view text, std::int64_t splits_max);

// What stands between the ends of lines that str.splitlines knows; behind the last one, too.
std::vector<std::string_view> split_lines(std::string_view text);

bool is_ascii(std::string_view text);

// repr(float): the shortest digits that read back equal, "1.0", "1e-05", "inf".
std::string float_text(double value);

// Appends the UTF-8 bytes of a code point. REQUIRES: code_point is a Unicode scalar value.
void append_code_point(std::string& out, std::uint32_t code_point);

}  // namespace stemma::jinja
