// Answers read for their calls, whole and cut into pieces.
//
// Thread:     tests.
// Memory:     what was read.
// Cost:       the answer a dozen times.
// Not here:   anything that ships.
#pragma once

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string_view>

#include "openai/tool_calls.h"

namespace stemma {

inline ToolCallText read_calls_in_pieces(ToolCallStyle style, const ToolTypes& types,
                                         std::string_view answer, std::size_t piece_bytes) {
  ToolCallReader reader(style, types);
  ToolCallText read;
  for (std::size_t at = 0; at < answer.size(); at += piece_bytes) {
    reader.push(answer.substr(at, piece_bytes), read);
  }
  reader.finish(read);
  return read;
}

// However an answer is cut, the same comes of it.
inline ToolCallText read_calls(ToolCallStyle style, std::string_view answer,
                               const ToolTypes& types = {}) {
  ToolCallText whole = read_calls_in_pieces(style, types, answer, answer.size() + 1);
  for (std::size_t piece_bytes = 1; piece_bytes < 12; ++piece_bytes) {
    const ToolCallText cut = read_calls_in_pieces(style, types, answer, piece_bytes);
    EXPECT_EQ(cut.text, whole.text) << piece_bytes;
    EXPECT_EQ(cut.calls, whole.calls) << piece_bytes;
    EXPECT_EQ(cut.places, whole.places) << piece_bytes;
  }
  return whole;
}

// What has no call in it, and must come out as it went in.
inline void expect_no_calls(ToolCallStyle style, std::string_view answer,
                            const ToolTypes& types = {}) {
  const ToolCallText got = read_calls(style, answer, types);
  EXPECT_EQ(got.text, answer);
  EXPECT_THAT(got.calls, testing::IsEmpty()) << answer;
}

}  // namespace stemma
