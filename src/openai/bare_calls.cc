#include "openai/bare_calls.h"

#include <algorithm>
#include <array>

#include "openai/text_marks.h"

namespace stemma {
namespace {

constexpr std::string_view kName = "\"name\"";
constexpr std::array<std::string_view, 2> kArguments = {"\"parameters\"", "\"arguments\""};
constexpr std::array<std::string_view, 5> kMembers = {kName, kArguments[0], kArguments[1],
                                                      "\"type\"", "\"id\""};

bool names_arguments(std::string_view name) {
  return std::find(kArguments.begin(), kArguments.end(), name) != kArguments.end();
}

}  // namespace

bool BareCallSearch::may_be_calls(std::string_view answer) {
  Found found = Found::kNext;
  while (found == Found::kNext) found = step(answer);
  return found == Found::kGoesOn;
}

BareCallSearch::Found BareCallSearch::step(std::string_view answer) {
  if (step_ == Step::kValue || step_ == Step::kRest) return leave_value(answer);
  at_ = std::min(answer.find_first_not_of(kMarkSpace, at_), answer.size());
  if (at_ == answer.size()) return Found::kGoesOn;
  const char byte = answer[at_];
  if (step_ == Step::kObject) return begin_object(byte);
  if (step_ == Step::kName) return take_name(answer.substr(at_));
  if (step_ == Step::kColon) return take_byte(byte, ':', Step::kValueBegin);
  if (step_ == Step::kComma) return take_byte(byte, ',', Step::kName);
  return begin_value(byte);
}

BareCallSearch::Found BareCallSearch::begin_object(char byte) {
  if (byte == ';' && may_separate_) {
    may_separate_ = false;
    return take_byte(byte, ';', Step::kObject);
  }
  object_begin_ = at_;
  has_name_ = has_arguments_ = false;
  return take_byte(byte, '{', Step::kName);
}

BareCallSearch::Found BareCallSearch::take_byte(char byte, char wanted, Step next) {
  if (byte != wanted) return Found::kNone;
  ++at_;
  step_ = next;
  return Found::kNext;
}

BareCallSearch::Found BareCallSearch::take_name(std::string_view rest) {
  Found found = Found::kNone;
  for (const std::string_view name : kMembers) {
    if (rest.starts_with(name)) {
      name_ = name;
      at_ += name.size();
      step_ = Step::kColon;
      return Found::kNext;
    }
    if (name.starts_with(rest)) found = Found::kGoesOn;
  }
  return found;
}

// Texts, but for arguments, which may be an object.
BareCallSearch::Found BareCallSearch::begin_value(char byte) {
  if (byte != '"' && !(byte == '{' && names_arguments(name_))) return Found::kNone;
  value_begin_ = at_;
  value_ = JsonValueSearch();
  step_ = Step::kValue;
  return Found::kNext;
}

// Of the value of a member; where name and arguments have come, of the whole object.
BareCallSearch::Found BareCallSearch::leave_value(std::string_view answer) {
  const std::size_t bytes = value_.find_end(answer.substr(value_begin_));
  if (value_.is_broken()) return Found::kNone;
  if (bytes == std::string_view::npos) return Found::kGoesOn;
  at_ = value_begin_ + bytes;
  if (step_ == Step::kRest) {
    if (!call_of_object(answer.substr(value_begin_, bytes)).has_value()) return Found::kNone;
    may_separate_ = true;
    step_ = Step::kObject;
    return Found::kNext;
  }
  has_name_ = has_name_ || name_ == kName;
  has_arguments_ = has_arguments_ || names_arguments(name_);
  step_ = Step::kComma;
  if (!has_name_ || !has_arguments_) return Found::kNext;
  value_begin_ = object_begin_;
  value_ = JsonValueSearch();
  step_ = Step::kRest;
  return Found::kNext;
}

}  // namespace stemma
