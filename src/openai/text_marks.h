// Text marks: finding what a model writes around a part of its answer, where that comes in pieces.
// White space beside a mark belongs to it.
//
// Thread:     pure functions; one text, one search.
// Memory:     none.
// Cost:       linear in the text, however it comes, and in the marks.
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

// What may become one of several marks when more comes: so many of the bytes that `text` ends with.
inline std::size_t bytes_of_begun_mark(std::string_view text,
                                       std::span<const std::string_view> marks) {
  std::size_t most = 0;
  for (const std::string_view mark : marks) {
    std::size_t begun = std::min(text.size(), mark.size() - 1);
    while (begun > most && !mark.starts_with(text.substr(text.size() - begun))) --begun;
    most = std::max(most, begun);
  }
  return most;
}

// Parts a text that comes in pieces from the marks in it and the white space before them. What may
// be such when more comes is held back, and however much space that is, it is looked at once.
class TextBeforeMarks {
 public:
  struct Part {
    std::string_view text;                     // which belongs to no mark
    std::string_view mark = {};                // that comes next, behind space; empty: none yet
    std::size_t end = std::string_view::npos;  // of the mark
  };

  // What `held` begins with. REQUIRES: it begins with what was held back at the last call, which is
  // all behind its part; `marks` are the same, and begin with the same byte, which is no space.
  Part next(std::string_view held, std::span<const std::string_view> marks) {
    const std::string_view fresh = held.substr(space_bytes_);
    const FoundMark found = find_first_mark(fresh, marks);
    const bool has_mark = found.at != std::string_view::npos;
    const std::size_t before =
        has_mark ? found.at : fresh.size() - bytes_of_begun_mark(fresh, marks);
    const std::size_t bytes = without_space_behind(fresh.substr(0, before)).size();
    Part part = {.text = held.substr(0, bytes == 0 ? 0 : space_bytes_ + bytes)};
    if (has_mark) {
      part.mark = found.mark;
      part.end = space_bytes_ + found.at + found.mark.size();
      space_bytes_ = 0;
    } else {
      space_bytes_ += before - part.text.size();
    }
    return part;
  }

 private:
  std::size_t space_bytes_ = 0;  // that the text held back begins with
};

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
