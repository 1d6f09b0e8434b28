// Calls in an answer: taken out of the text in the style of the model, the same however the answer
// was cut into pieces; what is no call stays text, byte for byte.
#include "openai/tool_calls.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <utility>

#include "openai/tool_calls_fixture.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const ToolTypes& tool_types() {
  static const ToolTypes kTypes;
  return kTypes;
}

TEST(TaggedCalls, AreTakenOutOfTheText) {
  const ToolCallText got = read_calls(ToolCallStyle::kTagged,
                                      "I look.\n\n<tool_call>\n"
                                      R"({"name": "look", "arguments": {"at": "sea"}})"
                                      "\n</tool_call>");
  EXPECT_EQ(got.text, "I look.");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"look", R"({"at": "sea"})"}));
}

TEST(TaggedCalls, MayBeSeveralWithTextBehindThem) {
  const ToolCallText got = read_calls(
      ToolCallStyle::kTagged, R"(<tool_call>{"name":"a","arguments":{}}</tool_call>)"
                              "\n"
                              R"(<tool_call>{"arguments":{"x":[1,"}"]},"name":"b"}</tool_call>)"
                              "\n Done. ");
  EXPECT_EQ(got.text, "Done. ");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"a", "{}"}, ToolCall{"b", R"({"x":[1,"}"]})"}));
}

// Numbers are not made anew: 1.0 stays 1.0, and no digit of a long one goes.
TEST(TaggedCalls, KeepTheBytesOfTheirArguments) {
  const std::string arguments =
      R"({ "n": 1.0, "id": 123456789012345678901234567890, "q": "\"{\u00e9", "e": {} })";
  const ToolCallText got = read_calls(
      ToolCallStyle::kTagged, R"(<tool_call>{"name": "f", "more": [{}, "]"], "arguments": )" +
                                  arguments + R"( , "z": null}</tool_call>)");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"f", arguments}));
}

// Grammars do not count what they allow: whoever is made to call does call.
TEST(TaggedCalls, MayRepeatAndNestTheirArguments) {
  const std::string deep = std::string(1000, '[') + std::string(1000, ']');
  std::string wide = "{\"x\": 1";
  for (int i = 0; i < 1000; ++i) wide += ", \"x" + std::to_string(i) + "\": 1";
  for (const std::string& arguments :
       {std::string(R"({"a": 1, "a": 2})"), "{\"a\": " + deep + "}", wide + "}"}) {
    const ToolCallText got = read_calls(
        ToolCallStyle::kTagged,
        "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>");
    EXPECT_EQ(got.text, "");
    EXPECT_THAT(got.calls, ElementsAre(ToolCall{"f", arguments}));
  }
}

TEST(TaggedCalls, MaySayWhatEndsThem) {
  const std::string arguments = R"({"a": "\"</tool_call>", "</tool_call>": "<tool_call>\\"})";
  const std::string call =
      R"(<tool_call>{"name": "f", "arguments": )" + arguments + "}</tool_call>";
  const ToolCallText got = read_calls(ToolCallStyle::kTagged, call + "\n" + call + " so");
  EXPECT_EQ(got.text, "so");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"f", arguments}, ToolCall{"f", arguments}));
}

// Of a text that its line does not end.
TEST(TaggedCalls, ThatAreNoneAreNotPartsOfOthers) {
  const std::string none =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\n}}</tool_call>";
  const std::string call = R"(<tool_call>{"name": "g", "arguments": {}}</tool_call>)";
  const ToolCallText got = read_calls(ToolCallStyle::kTagged, none + call);
  EXPECT_EQ(got.text, none);
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"g", "{}"}));
}

TEST(TaggedCalls, HaveTheirPlacesInTheText) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  const ToolCallText got =
      read_calls(ToolCallStyle::kTagged, call + "one " + call + " " + call + " two" + call);
  EXPECT_EQ(got.text, "onetwo");
  EXPECT_EQ(got.calls.size(), 4U);
  EXPECT_THAT(got.places, ElementsAre(0, 3, 3, 6));
}

TEST(TaggedCalls, MayHaveTheirArgumentsAsAText) {
  const ToolCallText got = read_calls(
      ToolCallStyle::kTagged, R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"f", R"({"a": 1})"}));
}

TEST(TaggedCalls, MayLackTheirEnd) {
  const ToolCallText got =
      read_calls(ToolCallStyle::kTagged, R"(<tool_call>{"name": "f", "arguments": {}})");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"f", "{}"}));
  EXPECT_EQ(got.text, "");
}

TEST(TaggedCalls, ThatAreNoneStayText) {
  for (const char* const answer : {
           "",
           " plain, with <tool and < and\n ",
           "\n <tool_call> {no JSON} </tool_call> behind ",
           R"(x <tool_call>{"name": "f"}</tool_call>)",
           R"(<tool_call>{"name": 1, "arguments": {}}</tool_call>)",
           R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)",
           R"(<tool_call>{"name": "f", "arguments": "no object"}</tool_call>)",
           R"(<tool_call>{"name": "f", "name": "g", "arguments": {}}</tool_call>)",
           R"(<tool_call>{"name": "f", "arguments": {}} and more</tool_call>)",
           "before  <tool_call>{\"name\": \"f\", \"argu",
           "ends <tool_",
           "<tool_call>",
           "</tool_call>\n",
       }) {
    expect_no_calls(ToolCallStyle::kTagged, answer);
  }
}

TEST(TaggedCalls, HoldBackOnlyWhatMayBeOne) {
  ToolCallReader reader(ToolCallStyle::kTagged, tool_types());
  const auto pushed = [&](std::string_view piece) {
    ToolCallText out;
    reader.push(piece, out);
    return out.text;
  };
  EXPECT_EQ(pushed("a < b"), "a < b");
  EXPECT_EQ(pushed(" \n"), "");
  EXPECT_EQ(pushed("<tool_"), "");
  EXPECT_EQ(pushed("box>"), " \n<tool_box>");
}

// Where each piece had all of the space before it looked at again, these would take hours.
TEST(MarkedCalls, SpaceBeforeTheirMarksIsLookedAtOnce) {
  const std::string space(std::size_t{4} << 20, ' ');
  for (const ToolCallStyle style :
       {ToolCallStyle::kTagged, ToolCallStyle::kDeepseek, ToolCallStyle::kFunctions,
        ToolCallStyle::kKeys, ToolCallStyle::kListed}) {
    const std::string mark(spelling_of(style, "").mark);
    const std::string begun = mark.substr(0, mark.size() - 1);
    for (const std::string& answer : {space, "a" + space, "a" + space + begun + space + begun}) {
      const ToolCallText got = read_calls_in_pieces(style, tool_types(), answer, 4);
      EXPECT_EQ(got.text, answer);
      EXPECT_THAT(got.calls, IsEmpty());
    }
  }
}

TEST(BareCalls, AreTheWholeAnswer) {
  const ToolCallText got = read_calls(ToolCallStyle::kBare,
                                      "\n"
                                      R"({"name": "look", "parameters": {"at": "sea; land"}};)"
                                      R"( {"type": "function", "name": "go", "arguments": {}})");
  EXPECT_EQ(got.text, "");
  EXPECT_THAT(got.calls,
              ElementsAre(ToolCall{"look", R"({"at": "sea; land"})"}, ToolCall{"go", "{}"}));
}

TEST(BareCalls, ThatAreNoneStayText) {
  for (const char* const answer : {
           " {",
           "{\"weather\": \"fine\"}",
           R"({"weather": "fine", "name": "look", "parameters": {}})",
           R"({"name": "look", "parameters": {}} is what I would call)",
           R"(I call {"name": "look", "parameters": {}})",
           R"({"name": "look", "parameters": {)",
           R"({"name": "look", "parameters": {}]})",
       }) {
    expect_no_calls(ToolCallStyle::kBare, answer);
  }
}

TEST(BareCalls, HoldBackNoOtherText) {
  ToolCallReader reader(ToolCallStyle::kBare, tool_types());
  ToolCallText out;
  reader.push(" The", out);
  EXPECT_EQ(out.text, " The");
  reader.push(" {", out);
  EXPECT_EQ(out.text, " The {");
}

// At the last byte of each of these it is known to be none.
TEST(BareCalls, AreHeldBackAsLongAsTheyMayBeSome) {
  for (const std::string_view answer : {
           "x",
           "{}",
           "{1",
           "{\"names",
           "{ \"w",
           "{\"name\" \"",
           "{\"name\": 1",
           "{\"name\": {",
           "{\"name\": \"Bob\"}",
           "{\"name\": \"Bob\", \"a\"",
           "{\"name\": \"Bob\n",
           "{\"parameters\": [",
           "{\"parameters\": {}}",
           "{\"name\": \"go\", \"arguments\": {}, \"x\": {{}}}",
           "{\"name\": \"go\", \"arguments\": {}} x",
           "{\"name\": \"go\", \"arguments\": {}};;",
       }) {
    ToolCallReader reader(ToolCallStyle::kBare, tool_types());
    ToolCallText out;
    reader.push(answer.substr(0, answer.size() - 1), out);
    EXPECT_EQ(out.text, "") << answer;
    reader.push(answer.substr(answer.size() - 1), out);
    EXPECT_EQ(out.text, answer);
  }
}

TEST(BareCalls, MayHaveMoreMembersBehindTheirArguments) {
  const ToolCallText got = read_calls(
      ToolCallStyle::kBare,
      R"({"id": "1", "arguments": {"a": ["}"]}, "type": "\"", "name": "go", "why": [1.5, null]})");
  EXPECT_EQ(got.text, "");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"go", R"({"a": ["}"]})"}));
}

TEST(DeepseekCalls, HaveAFenceOrNone) {
  const ToolCallText got = read_calls(ToolCallStyle::kDeepseek,
                                      "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function"
                                      "<｜tool▁sep｜>look\n```json\n{\"at\": \"sea\"}\n```"
                                      "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>go<｜tool▁sep｜>{}"
                                      "<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
  EXPECT_EQ(got.text, "I look.");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"look", R"({"at": "sea"})"}, ToolCall{"go", "{}"}));
}

TEST(DeepseekCalls, MaySayWhatEndsThem) {
  const std::string arguments = R"({"a": "<｜tool▁call▁end｜><｜tool▁calls▁end｜>```"})";
  const ToolCallText got = read_calls(
      ToolCallStyle::kDeepseek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>go<｜tool▁sep｜>" +
                                    arguments + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
  EXPECT_EQ(got.text, "");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"go", arguments}));
}

TEST(DeepseekCalls, BeforeOneThatIsCutOffAreCalls) {
  const std::string cut = "<｜tool▁call▁begin｜>look<｜tool▁sep｜>{\"at\": ";
  const ToolCallText got = read_calls(
      ToolCallStyle::kDeepseek,
      "So.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>go<｜tool▁sep｜>{}<｜tool▁call▁end｜>\n" +
          cut);
  EXPECT_EQ(got.text, "So." + cut);
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"go", "{}"}));
}

// What a client would lose otherwise.
TEST(DeepseekCalls, WithAnythingElseBetweenTheirMarksAreText) {
  expect_no_calls(ToolCallStyle::kDeepseek,
                  "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>go<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
                  " and so on<｜tool▁calls▁end｜>");
}

TEST(DeepseekCalls, ThatAreNoneStayText) {
  for (const char* const answer : {
           "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>",
           "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>go<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
           "x <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>g\n```json\n{",
           "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>g<｜tool▁call▁end｜>",
           "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜><｜tool▁sep｜>{}<｜tool▁call▁end｜>",
       }) {
    expect_no_calls(ToolCallStyle::kDeepseek, answer);
  }
}

TEST(DeepseekCalls, HaveArgumentsThatAreJsonToTheirLastByte) {
  using namespace std::string_view_literals;
  for (const std::string_view arguments : {"{}\0"sv, "{\"a\": 1}\0, x"sv}) {
    const std::string answer = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>" +
                               std::string(arguments) + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    const ToolCallText got = read_calls(ToolCallStyle::kDeepseek, answer);
    EXPECT_EQ(got.text, answer);
    EXPECT_THAT(got.calls, IsEmpty());
  }
}

TEST(ToolCallStyleOf, ATemplateThatPrintsCalls) {
  EXPECT_EQ(tool_call_style_of("{{ '<tool_call>\\n{\"name\": \"' }}"), ToolCallStyle::kTagged);
  EXPECT_EQ(tool_call_style_of("{{ '<｜tool▁calls▁begin｜>' }}"), ToolCallStyle::kDeepseek);
  EXPECT_EQ(
      tool_call_style_of(
          R"({{- 'Respond in the format {"name": function name, "parameters": dictionary' }})"),
      ToolCallStyle::kBare);
  EXPECT_EQ(tool_call_style_of("{{ '<tool_call>\\n<function=' + call.name }}"),
            ToolCallStyle::kFunctions);
  EXPECT_EQ(tool_call_style_of("{{ '<tool_call>' + call.name }} <arg_key>"), ToolCallStyle::kKeys);
  EXPECT_EQ(tool_call_style_of("{{ '[TOOL_CALLS][' }}"), ToolCallStyle::kListed);
  EXPECT_EQ(tool_call_style_of("{{ messages }}"), std::nullopt);
}

}  // namespace
}  // namespace stemma
