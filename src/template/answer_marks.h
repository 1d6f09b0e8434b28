// Answer marks: what a model writes where thoughts and calls of tools begin and end. Some
// tokenizers call such marks special tokens, which are no text to clients; whoever takes an answer
// apart needs them in its text.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       linear in the template.
// Not here:   what is between them (openai/thoughts, openai/tool_calls).
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace stemma {

inline constexpr std::array<std::string_view, 22> kAnswerMarks = {
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<seed:think>",
    "</seed:think>",
    "<thought>",
    "</thought>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
};

// Those that this chat template writes, or reads.
inline std::vector<std::string_view> answer_marks_in(std::string_view chat_template) {
  std::vector<std::string_view> marks;
  for (const std::string_view mark : kAnswerMarks) {
    if (chat_template.find(mark) != std::string_view::npos) marks.push_back(mark);
  }
  return marks;
}

}  // namespace stemma
