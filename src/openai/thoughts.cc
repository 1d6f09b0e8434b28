#include "openai/thoughts.h"

#include <algorithm>

namespace stemma {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kNone = std::string_view::npos;

std::string_view without_space_behind(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kSpace);
  return last == kNone ? std::string_view() : text.substr(0, last + 1);
}

// How many bytes at the end of `text` may be the begin of the end of thoughts, with the white space
// before it.
std::size_t undecided(std::string_view text) {
  std::size_t begun = std::min(text.size(), kThoughtsEnd.size() - 1);
  while (begun > 0 && !kThoughtsEnd.starts_with(text.substr(text.size() - begun))) --begun;
  const std::string_view before = text.substr(0, text.size() - begun);
  return text.size() - without_space_behind(before).size();
}

void drop_space(std::string& text) {
  text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
}

}  // namespace

bool thinks(std::string_view chat_template) {
  return chat_template.find(kThoughtsEnd) != kNone;
}

ThoughtPlace thought_place_behind(std::string_view prompt) {
  const std::string_view text = without_space_behind(prompt);
  if (text.ends_with(kThoughtsBegin)) return ThoughtPlace::kInside;
  return text.ends_with(kThoughtsEnd) ? ThoughtPlace::kBehind : ThoughtPlace::kBefore;
}

void ThoughtReader::push(std::string_view piece, ThoughtText& out) {
  held_ += piece;
  if (place_ == ThoughtPlace::kBefore) begin();
  if (place_ == ThoughtPlace::kInside) go_on(out);
  if (place_ == ThoughtPlace::kBehind) say(out);
}

// An answer that begins with anything else is only text, white space included.
void ThoughtReader::begin() {
  const std::size_t first = held_.find_first_not_of(kSpace);
  if (first == kNone) return;
  const std::string_view text = std::string_view(held_).substr(first);
  if (text.starts_with(kThoughtsBegin)) {
    held_.erase(0, first + kThoughtsBegin.size());
    place_ = ThoughtPlace::kInside;
  } else if (!kThoughtsBegin.starts_with(text)) {
    place_ = ThoughtPlace::kBehind;
    has_text_ = true;
  }
}

void ThoughtReader::go_on(ThoughtText& out) {
  has_thought_ = true;
  if (!has_text_) drop_space(held_);
  const std::size_t end = held_.find(kThoughtsEnd);
  const std::size_t known =
      end == kNone ? held_.size() - undecided(held_)
                   : without_space_behind(std::string_view(held_).substr(0, end)).size();
  out.thoughts.append(held_, 0, known);
  has_text_ = has_text_ || known > 0;
  if (end == kNone) {
    held_.erase(0, known);
    return;
  }
  held_.erase(0, end + kThoughtsEnd.size());
  place_ = ThoughtPlace::kBehind;
  has_text_ = false;
}

void ThoughtReader::say(ThoughtText& out) {
  if (!has_text_) drop_space(held_);
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
