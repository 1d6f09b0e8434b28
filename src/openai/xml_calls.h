// XmlCalls: calls that a model writes as marks with its arguments between them, as plain texts.
//
//   <tool_call>                               <tool_call>look
//   <function=look>                           <arg_key>at</arg_key>
//   <parameter=at>                            <arg_value>sea</arg_value>
//   sea                                       </tool_call>
//   </parameter>
//   </function>
//   </tool_call>
//
// Models leave the outer marks of a function (left) out, or write several functions between them:
// where there is such a tool, it is a call without them.
//
// Such a text does not say whether 5 is a number: the tool's schema does. A value of a parameter
// that may be a string, and nothing else, is the text as it is written; of others it is JSON where
// the text is such of one of the types, as it is written too (True, False and None go for JSON's
// words), else a string. Where a schema says nothing, a function's value (left) is a string, and
// one between keys (right) is JSON if it can be.
//
// A value goes up to its closing mark, whatever is in it. What has to be JSON may say the mark in
// its texts.
//
// Thread:     one call, one reader.
// Memory:     the arguments.
// Cost:       linear in the call, however it comes.
// Not here:   where calls are in an answer (tool_calls).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "openai/text_marks.h"
#include "openai/tool_types.h"

namespace stemma {

// What is around the parts of a call, in its order; empty: nothing is. White space may be between
// them.
struct XmlMarks {
  std::string_view name_begin;
  std::string_view name_end;
  std::string_view key_begin;
  std::string_view key_end;
  std::string_view value_begin;
  std::string_view value_end;
  std::string_view end;
  std::string_view call_end;
  bool is_opened = true;      // by a mark before the name
  bool has_lines = false;     // a line's end around a value is none of it
  bool guesses_json = false;  // where no type is said
};

inline constexpr XmlMarks kFunctionMarks = {.name_begin = "<function=",
                                            .name_end = ">",
                                            .key_begin = "<parameter=",
                                            .key_end = ">",
                                            .value_begin = "",
                                            .value_end = "</parameter>",
                                            .end = "</function>",
                                            .call_end = "</tool_call>",
                                            .has_lines = true};
// Of a call that begins with kFunctionMarks.name_begin.
inline constexpr XmlMarks kUnopenedFunctionMarks = {.name_begin = "",
                                                    .name_end = kFunctionMarks.name_end,
                                                    .key_begin = kFunctionMarks.key_begin,
                                                    .key_end = kFunctionMarks.key_end,
                                                    .value_begin = "",
                                                    .value_end = kFunctionMarks.value_end,
                                                    .end = kFunctionMarks.end,
                                                    .call_end = kFunctionMarks.call_end,
                                                    .is_opened = false,
                                                    .has_lines = true};
inline constexpr XmlMarks kKeyMarks = {.name_begin = "",
                                       .name_end = "",
                                       .key_begin = "<arg_key>",
                                       .key_end = "</arg_key>",
                                       .value_begin = "<arg_value>",
                                       .value_end = "</arg_value>",
                                       .end = "",
                                       .call_end = "</tool_call>",
                                       .guesses_json = true};

// Reads one call, behind the mark that it begins with.
class XmlCallReader {
 public:
  enum class Outcome : std::uint8_t { kGoesOn, kCall, kNone };

  // Both must outlive the reader.
  XmlCallReader(const XmlMarks& marks, const ToolTypes& types) : marks_(marks), types_(types) {}

  // What `text` begins with: a call, none whatever comes, or what may become one.
  // REQUIRES: it begins with the text of the last call, and that went on.
  Outcome read(std::string_view text);
  // Where the call ends. REQUIRES: it is one, or whole.
  std::size_t end() const { return at_; }
  // Where the last of its values ended; 0: none did.
  std::size_t values_end() const { return values_end_; }
  // Whether nothing but the mark behind the call is missing: where it says itself that it ends.
  // REQUIRES: `text` as read last, and that went on.
  bool is_whole(std::string_view text) const {
    if (step_ != Step::kClose || marks_.end.empty()) return false;
    return is_call_without_close() || without_space_before(text.substr(at_)).empty();
  }

  const std::string& name() const { return name_; }
  // An object of JSON. REQUIRES: the call is whole.
  std::string arguments() const { return "{" + arguments_ + "}"; }

 private:
  enum class Step : std::uint8_t { kName, kKey, kValueBegin, kValue, kClose };
  // kGoesOn: more has to come; kNext: the step is done.
  enum class Found : std::uint8_t { kGoesOn, kNext, kNone };

  Found step(std::string_view text);
  Found read_name(std::string_view text);
  Found read_key(std::string_view text);
  Found read_value(std::string_view text);
  Found read_close(std::string_view text);
  static Found take(std::string_view text, std::string_view mark, std::size_t& at);
  Found take_name(std::string_view text, std::string_view begin, std::string_view end,
                  std::string& name);
  bool is_call_without_close() const { return !marks_.end.empty() && types_.contains(name_); }
  void begin_value();
  std::size_t end_of_value(std::string_view text);
  std::string json_of(std::string_view value) const;

  const XmlMarks& marks_;
  const ToolTypes& types_;
  Step step_ = Step::kName;
  std::size_t at_ = 0;
  std::size_t values_end_ = 0;
  std::string name_;
  std::string key_;
  const WordNames* types_of_value_ = nullptr;  // nullptr: not said
  MarkSearch end_in_json_;
  std::size_t searched_ = 0;  // bytes of the text that have no end of the value
  std::string arguments_;
};

}  // namespace stemma
