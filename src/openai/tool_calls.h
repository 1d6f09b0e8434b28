// ToolCalls: the calls of tools that a model writes into its text, taken out of it.
//
// A model was trained to write calls in one style, which its chat template shows: it prints the
// calls of earlier answers so. What looks like a call and is none stays text, byte for byte.
//
// Thread:     one answer, one reader.
// Memory:     the text held back: what may be a call, until it is known.
// Cost:       O(text).
// Not here:   how calls look in JSON (completion_answer), tools in prompts (template/), calls
//             whose arguments are texts between marks (xml_calls).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/marked_members.h"
#include "openai/bare_calls.h"
#include "openai/call_json.h"
#include "openai/listed_calls.h"
#include "openai/text_marks.h"
#include "openai/tool_types.h"
#include "openai/xml_calls.h"

namespace stemma {

enum class ToolCallStyle : std::uint8_t {
  kTagged,     // <tool_call>{"name": N, "arguments": {}}</tool_call>: Qwen, Hermes
  kBare,       // the whole answer is {"name": N, "parameters": {}}, or several: Llama 3
  kDeepseek,   // <｜tool▁calls▁begin｜> ... <｜tool▁calls▁end｜>: DeepSeek V3, R1, V3.1
  kFunctions,  // <tool_call><function=N><parameter=K>V</parameter></function></tool_call>, or
               // without the first mark: Qwen3-Coder
  kKeys,       // <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>: GLM-4.5
  kListed,     // [TOOL_CALLS][{"name": N, "arguments": {}}], or [TOOL_CALLS]N[ARGS]{}: Mistral
};

// That of a model with this chat template; nullopt where it shows none of these.
std::optional<ToolCallStyle> tool_call_style_of(std::string_view chat_template);

// How a model writes calls, for one that has to: `begin`, one call, perhaps others behind `between`
// each, `end`. A call is `call_begin`, its name, `arguments_begin`, its arguments, `call_end`. All
// of it begins with `mark`, which no other text has; empty: an answer is text or a call, never
// both.
struct ToolCallSpelling {
  std::string_view mark = {};
  std::string_view begin = {};
  std::string_view call_begin = {};
  std::string_view arguments_begin = {};
  std::string_view call_end = {};
  std::string_view between = {};
  std::string_view end = {};
  std::string_view other_mark = {};         // that a call is read behind, too, and none begins with
  bool name_is_json = true;                 // with quotes and escapes
  bool several = true;                      // may an answer have
  std::optional<MemberMarks> members = {};  // around arguments that are texts; else they are JSON
};

// Whether arguments are texts between marks, which the types of parameters say how to read.
bool has_text_arguments(ToolCallStyle style);

// REQUIRES: tool_call_style_of(chat_template) is `style`.
ToolCallSpelling spelling_of(ToolCallStyle style, std::string_view chat_template);

// What a piece of an answer says, and calls.
struct ToolCallText {
  std::string text;
  std::vector<ToolCall> calls;
  std::vector<std::size_t> places;  // of each call: the bytes of the text before it
};

// Takes an answer in pieces. What comes out does not depend on how it was cut. White space beside
// calls is dropped.
class ToolCallReader {
 public:
  // `types`, of the tools that may be called, must outlive the reader: texts of values are read by
  // them, where the style has such.
  ToolCallReader(ToolCallStyle style, const ToolTypes& types);

  // Appends to `out` what is known now. REQUIRES: not finished.
  void push(std::string_view piece, ToolCallText& out);
  // The answer ended: appends the rest. REQUIRES: not finished.
  void finish(ToolCallText& out);

 private:
  std::string_view held() const { return std::string_view(held_).substr(left_); }
  bool leave_text(ToolCallText& out);
  void begin_call(std::string_view mark);
  bool leave_call(ToolCallText& out);
  bool leave_xml_call(ToolCallText& out);
  bool leave_listed_calls(ToolCallText& out);
  void give_text(std::string_view text, ToolCallText& out);
  void give_xml_call(ToolCallText& out);
  bool give_calls(std::vector<ToolCall> calls, ToolCallText& out);

  ToolCallStyle style_;
  const ToolTypes& types_;
  std::string held_;
  std::size_t left_ = 0;                   // bytes of it, while a piece is taken in
  TextBeforeMarks before_mark_;            // of held(), outside of a call
  std::string before_call_;                // white space and mark that the call began with
  MarkSearch end_of_call_;                 // in held()
  std::optional<XmlCallReader> xml_call_;  // of held(), in a call of such a style
  std::optional<ListedCallReader> listed_calls_;
  bool in_call_ = false;
  bool after_call_ = false;    // nothing but white space came since
  BareCallSearch bare_calls_;  // of a bare style's answer
  bool is_plain_ = false;      // it is no call
};

}  // namespace stemma
