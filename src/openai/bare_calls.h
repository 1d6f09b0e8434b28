// BareCalls: an answer that is nothing but calls, {"name": N, "parameters": {...}} or several of
// them with semicolons or white space between, as Llama 3 writes them without any mark.
//
// A text that begins as an object may be an answer, too: it is let go as soon as it can be no call.
// Of a call the name and the arguments come before anything but a type and an identifier.
//
// Thread:     one answer, one search.
// Memory:     where it is.
// Cost:       linear in the answer, however it comes.
// Not here:   what the calls are (call_json).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "openai/call_json.h"

namespace stemma {

class BareCallSearch {
 public:
  // Whether `answer` is calls, or what may become some. Once it is not, nothing behind it counts.
  // REQUIRES: it begins with the answer of the last call.
  bool may_be_calls(std::string_view answer);

 private:
  enum class Step : std::uint8_t { kObject, kName, kColon, kValueBegin, kValue, kComma, kRest };
  // kGoesOn: more has to come; kNext: the step is done.
  enum class Found : std::uint8_t { kGoesOn, kNext, kNone };

  Found step(std::string_view answer);
  Found begin_object(char byte);
  Found take_name(std::string_view rest);
  Found take_byte(char byte, char wanted, Step next);
  Found begin_value(char byte);
  Found leave_value(std::string_view answer);

  Step step_ = Step::kObject;
  std::size_t at_ = 0;
  bool may_separate_ = false;  // a semicolon, behind an object
  std::size_t object_begin_ = 0;
  std::string_view name_;  // of the member that is read, in quotes
  bool has_name_ = false;
  bool has_arguments_ = false;
  std::size_t value_begin_ = 0;
  JsonValueSearch value_;
};

}  // namespace stemma
