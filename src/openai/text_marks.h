// Text marks: finding what a model writes around a part of its answer, where that comes in pieces.
// White space beside a mark belongs to it.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       linear in the mark.
// Not here:   what the parts are (tool_calls, thoughts).
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace stemma {

inline constexpr std::string_view kMarkSpace = " \t\r\n";

// `text` without the white space that it begins with, or ends with.
inline std::string_view without_space_before(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kMarkSpace), text.size()));
  return text;
}
inline std::string_view without_space_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kMarkSpace) + 1);
}

// `text` up to what may become white space and `mark` when more comes. REQUIRES: text does not have
// the mark.
inline std::string_view decided_before(std::string_view text, std::string_view mark) {
  std::size_t begun = std::min(text.size(), mark.size() - 1);
  while (begun > 0 && !mark.starts_with(text.substr(text.size() - begun))) --begun;
  return without_space_behind(text.substr(0, text.size() - begun));
}

}  // namespace stemma
