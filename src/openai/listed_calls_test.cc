// Calls as Mistral's models write them: behind a mark, to the end of their JSON.
#include "openai/listed_calls.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include "openai/tool_calls_fixture.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;

ToolCallText read_listed(std::string_view answer) {
  return read_calls(ToolCallStyle::kListed, answer);
}

TEST(ListedCalls, AreAnArrayBehindTheMark) {
  const ToolCallText got =
      read_listed(R"(I look. [TOOL_CALLS] [{"name": "look", "arguments": {"at": "sea"}}, )"
                  R"({"arguments": {}, "name": "go", "id": "abc123def"}] )");
  EXPECT_EQ(got.text, "I look.");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"look", R"({"at": "sea"})"}, ToolCall{"go", "{}"}));
}

TEST(ListedCalls, HaveANameAndAnObjectBehindAMarkEach) {
  const ToolCallText got = read_listed(
      R"(So.[TOOL_CALLS]look[ARGS]{"at": "}]"}[TOOL_CALLS]my.go-1[CALL_ID]a1b2c3d4e[ARGS]{})"
      R"([TOOL_CALLS]stop{"n": 1.0})");
  EXPECT_EQ(got.text, "So.");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"look", R"({"at": "}]"})"}, ToolCall{"my.go-1", "{}"},
                                     ToolCall{"stop", R"({"n": 1.0})"}));
}

TEST(ListedCalls, AreThereAsSoonAsTheirJsonEnds) {
  ToolCallReader reader(ToolCallStyle::kListed, {});
  ToolCallText out;
  reader.push(R"([TOOL_CALLS]look[ARGS]{"at": {}})", out);
  EXPECT_THAT(out.calls, ElementsAre(ToolCall{"look", R"({"at": {}})"}));
  reader.push(" and more", out);
  EXPECT_EQ(out.text, "and more");
}

TEST(ListedCalls, MaySayTheirMark) {
  const std::string arguments = R"({"a": "\"[TOOL_CALLS][ARGS]{", "[TOOL_CALLS]": []})";
  EXPECT_THAT(read_listed("[TOOL_CALLS]f[ARGS]" + arguments).calls,
              ElementsAre(ToolCall{"f", arguments}));
  EXPECT_THAT(read_listed(R"([TOOL_CALLS][{"name":"f","arguments":)" + arguments + "}]").calls,
              ElementsAre(ToolCall{"f", arguments}));
}

TEST(ListedCalls, ThatAreNoneStayText) {
  for (const char* const answer : {
           "[TOOL_CALLS]",
           " x [TOOL_CALLS] ",
           "[TOOL_CALLS][]",
           "[TOOL_CALLS]I would call {\"a\": 1}",
           "[TOOL_CALLS]\nf \n words",
           "[TOOL_CALLS][1, {\"name\": \"f\", \"arguments\": {}}]",
           "[TOOL_CALLS][{\"name\": \"f\"}]",
           "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {",
           "[TOOL_CALLS][ARGS]{}",
           "[TOOL_CALLS]f[ARGS]x{}",
           "[TOOL_CALLS]f[OTHER]{}",
           "[TOOL_CALLS]f[ARGS]{a: 1} behind",
           "[TOOL_CALLS]f[ARGS][1]",
           "[TOOL_CALLS]f[ARGS]{\"a\": \"x\ny\"}",
           "ends [TOOL_",
       }) {
    expect_no_calls(ToolCallStyle::kListed, answer);
  }
  expect_no_calls(ToolCallStyle::kListed, "[TOOL_CALLS]" + std::string(5000, 'f') + "{}");
}

TEST(ListedCalls, FollowThoseThatAreNone) {
  const ToolCallText got = read_listed("[TOOL_CALLS]f[ARGS]{a} [TOOL_CALLS]g[ARGS]{}");
  EXPECT_EQ(got.text, "[TOOL_CALLS]f[ARGS]{a}");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"g", "{}"}));
}

}  // namespace
}  // namespace stemma
