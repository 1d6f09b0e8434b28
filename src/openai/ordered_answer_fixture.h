// Pieces of answers, and the events of their streams as clients read them.
//
// Thread:     tests.
// Memory:     the events.
// Cost:       O(text).
// Not here:   anything that ships.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "openai/ordered_answer.h"

namespace stemma {

inline constexpr AnswerUsage kUsage = {
    .prompt_tokens = 5, .completion_tokens = 2, .cached_tokens = 4};

inline AnswerPiece piece_of(std::string text, std::vector<ToolCall> calls = {},
                            std::string_view reason = "") {
  AnswerPiece piece;
  piece.text = std::move(text);
  piece.calls = std::move(calls);
  piece.finish_reason = reason;
  return piece;
}

// Events of a stream, each of which says in two places what it is.
inline std::vector<TemplateJson> named_events_of(const std::string& stream) {
  std::vector<TemplateJson> events;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    const std::size_t data = stream.find("\ndata: ", at);
    EXPECT_TRUE(stream.starts_with("event: ") && data < end && end != std::string::npos);
    const TemplateJson event = TemplateJson::parse(stream.substr(data + 7, end - data - 7));
    EXPECT_EQ(stream.substr(at + 7, data - at - 7), event["type"].get<std::string>());
    events.push_back(event);
    at = end + 2;
  }
  return events;
}

inline std::vector<std::string> types_of(const std::vector<TemplateJson>& events) {
  std::vector<std::string> types;
  for (const TemplateJson& event : events) types.push_back(event["type"]);
  return types;
}

}  // namespace stemma
