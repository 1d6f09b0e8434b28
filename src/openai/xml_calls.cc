#include "openai/xml_calls.h"

#include <algorithm>

#include "base/ascii.h"
#include "grammar/marked_members.h"
#include "openai/completion_answer.h"
#include "template/chat_template.h"

namespace stemma {
namespace {

constexpr auto kNowhere = std::string_view::npos;
constexpr std::string_view kBrackets = "<>";

// Of a parameter that may be a string the words of JSON are texts, but for those that it may be.
bool may_be_word(std::string_view word, const WordNames& types) {
  if (types.contains(word)) return true;
  const bool may_be_boolean = types.contains("true") || types.contains("false");
  return !types.contains("string") && (word == "null" || may_be_boolean);
}

// A word of JSON, also as Python writes it; empty: it is none.
std::string_view word_of(std::string_view text) {
  for (const std::string_view word : {"true", "false", "null"}) {
    if (equals_ignoring_case(text, word) || (word == "null" && text == "None")) return word;
  }
  return {};
}

bool is_json_of(std::string_view text, const WordNames& types) {
  if (!is_json(text)) return false;
  if (text.front() == '{') return types.contains("object");
  if (text.front() == '[') return types.contains("array");
  const bool is_number = text.front() == '-' || (text.front() >= '0' && text.front() <= '9');
  return is_number && is_of_types(TemplateJson::parse(text), types);
}

}  // namespace

XmlCallReader::Outcome XmlCallReader::read(std::string_view text) {
  Found found = Found::kNext;
  while (found == Found::kNext) {
    const bool closes = step_ == Step::kClose;
    found = step(text);
    if (closes && found == Found::kNext) return Outcome::kCall;
  }
  return found == Found::kNone ? Outcome::kNone : Outcome::kGoesOn;
}

XmlCallReader::Found XmlCallReader::step(std::string_view text) {
  if (step_ == Step::kValue) return read_value(text);
  at_ = std::min(text.find_first_not_of(kMarkSpace, at_), text.size());
  if (step_ == Step::kName) return read_name(text);
  if (step_ == Step::kKey) return read_key(text);
  if (step_ == Step::kClose) return read_close(text);
  const Found found = take(text, marks_.value_begin, at_);
  if (found == Found::kNext) begin_value();
  return found;
}

XmlCallReader::Found XmlCallReader::take(std::string_view text, std::string_view mark,
                                         std::size_t& at) {
  const std::string_view rest = text.substr(at, mark.size());
  if (!mark.starts_with(rest)) return Found::kNone;
  if (rest.size() < mark.size()) return Found::kGoesOn;
  at += mark.size();
  return Found::kNext;
}

// A name between two marks.
XmlCallReader::Found XmlCallReader::take_name(std::string_view text, std::string_view begin,
                                              std::string_view end, std::string& name) {
  std::size_t at = at_;
  if (const Found found = take(text, begin, at); found != Found::kNext) return found;
  const std::string_view rest = text.substr(at, kMarkedNameBytesMax + 1);
  const std::size_t bytes = rest.find_first_of(kBrackets);
  if (bytes == kNowhere) return rest.size() > kMarkedNameBytesMax ? Found::kNone : Found::kGoesOn;
  name = trimmed(rest.substr(0, bytes));
  if (!is_marked_name(name)) return Found::kNone;
  at += bytes;
  const Found found = take(text, end, at);
  if (found == Found::kNext) at_ = at;
  return found;
}

XmlCallReader::Found XmlCallReader::read_name(std::string_view text) {
  const Found found = take_name(text, marks_.name_begin, marks_.name_end, name_);
  if (found != Found::kNext) return found;
  if (!marks_.is_opened && !types_.contains(name_)) return Found::kNone;
  step_ = Step::kKey;
  return found;
}

// The key of the next value, or the end of them all. What has neither is only a call if there is
// such a tool: any word between the marks would be one.
XmlCallReader::Found XmlCallReader::read_key(std::string_view text) {
  if (marks_.key_begin.starts_with(text.substr(at_, marks_.key_begin.size()))) {
    const Found found = take_name(text, marks_.key_begin, marks_.key_end, key_);
    step_ = found == Found::kNext ? Step::kValueBegin : step_;
    if (step_ == Step::kValueBegin && marks_.value_begin.empty()) begin_value();
    return found;
  }
  const bool says_end = !marks_.end.empty();
  if (!says_end && arguments_.empty() && !types_.contains(name_)) return Found::kNone;
  const Found found = take(text, marks_.end, at_);
  if (found == Found::kNext) step_ = Step::kClose;
  return found;
}

// The mark behind the call, which others than of unknown tools do without.
XmlCallReader::Found XmlCallReader::read_close(std::string_view text) {
  const Found closed = take(text, marks_.call_end, at_);
  return closed == Found::kNone && is_call_without_close() ? Found::kNext : closed;
}

void XmlCallReader::begin_value() {
  step_ = Step::kValue;
  searched_ = at_;
  end_in_json_ = MarkSearch();
  types_of_value_ = nullptr;
  const auto tool = types_.find(name_);
  if (tool == types_.end()) return;
  const auto types = tool->second.find(key_);
  if (types != tool->second.end()) types_of_value_ = &types->second;
}

XmlCallReader::Found XmlCallReader::read_value(std::string_view text) {
  const std::size_t end = end_of_value(text);
  if (end == kNowhere) return Found::kGoesOn;
  std::string_view value = text.substr(at_, end - at_);
  if (marks_.has_lines && value.starts_with('\n')) value.remove_prefix(1);
  if (marks_.has_lines && value.ends_with('\n')) value.remove_suffix(1);
  if (!arguments_.empty()) arguments_ += ", ";
  arguments_ += json_text(key_) + ": " + json_of(value);
  at_ = values_end_ = end + marks_.value_end.size();
  step_ = Step::kKey;
  return Found::kNext;
}

std::size_t XmlCallReader::end_of_value(std::string_view text) {
  const bool has_to_be_json = types_of_value_ != nullptr && !types_of_value_->contains("string");
  if (has_to_be_json) {
    const std::size_t end = end_in_json_.find(text.substr(at_), marks_.value_end);
    return end == kNowhere ? end : at_ + end;
  }
  const std::size_t end = text.find(marks_.value_end, searched_);
  const std::size_t begun = std::min(text.size() - at_, marks_.value_end.size() - 1);
  searched_ = std::max(searched_, text.size() - begun);
  return end;
}

std::string XmlCallReader::json_of(std::string_view value) const {
  const std::string_view json = trimmed(value);
  if (types_of_value_ == nullptr) {
    const bool passes_on = marks_.guesses_json && is_json(json);
    return passes_on ? std::string(json) : json_text(std::string(value));
  }
  const std::string_view word = word_of(json);
  if (!word.empty() && may_be_word(word, *types_of_value_)) return std::string(word);
  return is_json_of(json, *types_of_value_) ? std::string(json) : json_text(std::string(value));
}

}  // namespace stemma
