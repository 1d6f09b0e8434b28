#include "openai/thoughts.h"

#include <algorithm>

#include "openai/text_marks.h"

namespace stemma {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

// Qwen's, DeepSeek's and others'; Magistral's; Seed's; EXAONE's.
constexpr ThoughtMarks kAllMarks[] = {{"<think>", "</think>"},
                                      {"[THINK]", "[/THINK]"},
                                      {"<seed:think>", "</seed:think>"},
                                      {"<thought>", "</thought>"}};

void drop_before(std::string& text, std::string_view dropped) {
  text.erase(0, std::min(text.find_first_not_of(dropped), text.size()));
}

}  // namespace

// Templates that take thoughts out of earlier answers may name the end alone.
std::optional<ThoughtMarks> thought_marks_of(std::string_view chat_template) {
  for (const ThoughtMarks& marks : kAllMarks) {
    if (chat_template.find(marks.end) != kNone) return marks;
  }
  return std::nullopt;
}

ThoughtPlace thought_place_behind(std::string_view prompt, const ThoughtMarks& marks) {
  const std::string_view text = without_space_behind(prompt);
  if (text.ends_with(marks.begin)) return ThoughtPlace::kInside;
  return text.ends_with(marks.end) ? ThoughtPlace::kBehind : ThoughtPlace::kBefore;
}

void ThoughtReader::push(std::string_view piece, ThoughtText& out) {
  held_ += piece;
  if (place_ == ThoughtPlace::kBefore) begin();
  if (place_ == ThoughtPlace::kInside) go_on(out);
  if (place_ == ThoughtPlace::kBehind) say(out);
}

// An answer that begins with anything else is only text, white space included.
void ThoughtReader::begin() {
  const std::string_view text = without_space_before(std::string_view(held_).substr(space_bytes_));
  space_bytes_ = held_.size() - text.size();
  if (text.starts_with(marks_.begin)) {
    held_.erase(0, space_bytes_ + marks_.begin.size());
    place_ = ThoughtPlace::kInside;
  } else if (!marks_.begin.starts_with(text)) {
    place_ = ThoughtPlace::kBehind;
    has_text_ = true;
  }
}

void ThoughtReader::go_on(ThoughtText& out) {
  has_thought_ = true;
  if (!has_text_) drop_before(held_, kMarkSpace);
  const TextBeforeMarks::Part known = before_end_.next(held_, {&marks_.end, 1});
  const bool ends = !known.mark.empty();
  out.thoughts += known.text;
  has_text_ = has_text_ || !known.text.empty();
  held_.erase(0, ends ? known.end : known.text.size());
  if (!ends) return;
  place_ = ThoughtPlace::kBehind;
  has_text_ = false;
}

void ThoughtReader::say(ThoughtText& out) {
  if (!has_text_) drop_before(held_, has_form_ ? "\r\n" : kMarkSpace);
  has_text_ = has_text_ || !held_.empty();
  out.text += held_;
  held_.clear();
}

// Thoughts whose end a model left out are all there is.
void ThoughtReader::finish(ThoughtText& out) {
  if (place_ == ThoughtPlace::kInside) {
    out.thoughts += without_space_behind(held_);
  } else {
    out.text += held_;
  }
  held_.clear();
}

}  // namespace stemma
