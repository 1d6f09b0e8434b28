// Thoughts: what a model writes for itself before its answer, taken out of it: "<think>", the
// thoughts, "</think>", or others' marks, as models with such chat templates do. White space beside
// the marks is dropped; before an answer that has a form only line breaks are, as one may begin
// with spaces.
//
// Thread:     one answer, one reader.
// Memory:     the text held back: what may be a mark, or white space before one.
// Cost:       O(text).
// Not here:   which answers have thoughts (server/preparation), how JSON says them
//             (completion_answer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "openai/text_marks.h"

namespace stemma {

// What is around them.
struct ThoughtMarks {
  std::string_view begin = "<think>";
  std::string_view end = "</think>";
};

// Those of a model with this chat template; nullopt: it does not think.
std::optional<ThoughtMarks> thought_marks_of(std::string_view chat_template);

// Where an answer begins.
enum class ThoughtPlace : std::uint8_t {
  kBehind,  // it has no thoughts, or the prompt ends with them
  kBefore,  // it may begin with them
  kInside,  // the prompt opened them
};

// That of an answer behind this prompt, or its end, of a model that thinks.
ThoughtPlace thought_place_behind(std::string_view prompt, const ThoughtMarks& marks = {});

// What a piece of an answer thinks, and says.
struct ThoughtText {
  std::string thoughts;
  std::string text;
};

// Takes an answer in pieces. What comes out does not depend on how it was cut.
class ThoughtReader {
 public:
  explicit ThoughtReader(ThoughtPlace place, bool has_form = false, const ThoughtMarks& marks = {})
      : place_(place),
        has_form_(has_form),
        marks_(marks),
        has_text_(place == ThoughtPlace::kBehind) {}

  // Appends to `out` what is known now. REQUIRES: not finished.
  void push(std::string_view piece, ThoughtText& out);
  // The answer ended: appends the rest. REQUIRES: not finished.
  void finish(ThoughtText& out);

  // Whether it is known yet if the answer begins with thoughts.
  bool is_decided() const noexcept { return place_ != ThoughtPlace::kBefore; }
  // Whether what comes next may be thoughts; whether some were begun.
  bool may_think() const noexcept { return place_ != ThoughtPlace::kBehind; }
  bool has_thought() const noexcept { return has_thought_; }

 private:
  void begin();
  void go_on(ThoughtText& out);
  void say(ThoughtText& out);

  ThoughtPlace place_;
  bool has_form_;
  ThoughtMarks marks_;
  std::string held_;
  std::size_t space_bytes_ = 0;  // that it begins with, where the answer may begin with thoughts
  TextBeforeMarks before_end_;   // of it, while the answer thinks
  bool has_thought_ = false;
  bool has_text_;  // of thoughts, or behind them: white space counts from now on
};

}  // namespace stemma
