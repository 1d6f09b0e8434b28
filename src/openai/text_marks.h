// Text marks: finding what a model writes around a part of its answer, where that comes in pieces.
// White space beside a mark belongs to it.
//
// Thread:     pure functions; one text, one search.
// Memory:     none.
// Cost:       linear in the mark; a search in the text, however it comes.
// Not here:   what the parts are (tool_calls, thoughts).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
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

inline std::string_view trimmed(std::string_view text) {
  return without_space_behind(without_space_before(text));
}

// `text` up to what may become white space and `mark` when more comes. REQUIRES: text does not have
// the mark.
inline std::string_view decided_before(std::string_view text, std::string_view mark) {
  std::size_t begun = std::min(text.size(), mark.size() - 1);
  while (begun > 0 && !mark.starts_with(text.substr(text.size() - begun))) --begun;
  return without_space_behind(text.substr(0, text.size() - begun));
}

// The first of several marks in a text. npos: none is there.
struct FoundMark {
  std::size_t at = std::string_view::npos;
  std::string_view mark = {};
};
// REQUIRES: there are marks, and all begin with the same byte.
inline FoundMark find_first_mark(std::string_view text, std::span<const std::string_view> marks) {
  const char begin = marks.front().front();
  std::size_t at = text.find(begin);
  for (; at != std::string_view::npos; at = text.find(begin, at + 1)) {
    for (const std::string_view mark : marks) {
      if (text.substr(at).starts_with(mark)) return {at, mark};
    }
  }
  return {};
}

// As decided_before one mark, before each of several.
inline std::string_view decided_before(std::string_view text,
                                       std::span<const std::string_view> marks) {
  std::string_view decided = text;
  for (const std::string_view mark : marks) {
    decided = text.substr(0, std::min(decided.size(), decided_before(text, mark).size()));
  }
  return decided;
}

// Looks for a mark in JSON, or what goes for it, but not in its texts: there it is only said. No
// text goes on behind a line break.
class MarkSearch {
 public:
  // Where the mark begins; npos: it has not come. REQUIRES: `json` begins as at the last call, and
  // the mark is the same.
  std::size_t find(std::string_view json, std::string_view mark) {
    for (; at_ < json.size(); ++at_) {
      const std::string_view rest = json.substr(at_, mark.size());
      if (in_text_ && rest.front() == '\\') {
        if (at_ + 1 == json.size()) break;
        ++at_;
      } else if (rest.front() == '"') {
        in_text_ = !in_text_;
      } else if (rest.front() == '\n') {
        in_text_ = false;
      } else if (!in_text_ && mark.starts_with(rest)) {
        if (rest.size() < mark.size()) break;
        return at_;
      }
    }
    return std::string_view::npos;
  }

 private:
  std::size_t at_ = 0;
  bool in_text_ = false;
};

}  // namespace stemma
