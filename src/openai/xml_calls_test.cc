// Calls whose arguments are texts between marks: values become JSON by the tools' schemas, and the
// same calls come of an answer however it was cut.
#include "openai/xml_calls.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include "grammar/marked_members.h"
#include "openai/tool_calls_fixture.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A tool `look` whose parameters have these properties, and a tool `go` without any.
ToolTypes types_of(const std::string& properties) {
  const std::string tools =
      R"([{"function":{"name":"look","parameters":{"type":"object","properties":)" + properties +
      R"(,"$defs":{"place":{"type":"object"},"circle":{"$ref":"#/$defs/circle"}}}}},)"
      R"({"function":{"name":"go"}}])";
  return tool_types_of(TemplateJson::parse(tools));
}

ToolCallText read(ToolCallStyle style, std::string_view answer,
                  const ToolTypes& types = types_of("{}")) {
  return read_calls(style, answer, types);
}

void expect_text(ToolCallStyle style, std::string_view answer) {
  expect_no_calls(style, answer, types_of("{}"));
}

// The value of the parameter `x` of this schema, as JSON.
std::string value_of(ToolCallStyle style, const std::string& schema, std::string_view written) {
  const std::string text(written);
  const std::string call = style == ToolCallStyle::kKeys
                               ? "<tool_call>look\n<arg_key>x</arg_key>\n<arg_value>" + text +
                                     "</arg_value>\n</tool_call>"
                               : "<tool_call>\n<function=look>\n<parameter=x>\n" + text +
                                     "\n</parameter>\n</function>\n</tool_call>";
  const ToolCallText got = read(style, call, types_of("{\"x\":" + schema + "}"));
  EXPECT_EQ(got.text, "") << call;
  if (got.calls.size() != 1) return "no call";
  const std::string& arguments = got.calls[0].arguments;
  constexpr std::string_view kBegin = "{\"x\": ";
  EXPECT_TRUE(arguments.starts_with(kBegin)) << arguments;
  EXPECT_TRUE(TemplateJson::accept(arguments)) << arguments;
  return arguments.substr(kBegin.size(), arguments.size() - kBegin.size() - 1);
}

TEST(FunctionCalls, AreTakenOutOfTheText) {
  const ToolCallText got = read(ToolCallStyle::kFunctions,
                                "I look.\n\n<tool_call>\n<function=look>\n<parameter=at>\nthe sea\n"
                                "</parameter>\n<parameter=for>\nships\nand \"men\"\n</parameter>\n"
                                "</function>\n</tool_call>\n<tool_call>\n<function=go>\n"
                                "</function>\n</tool_call> So.");
  EXPECT_EQ(got.text, "I look.So.");
  EXPECT_THAT(got.calls,
              ElementsAre(ToolCall{"look", R"({"at": "the sea", "for": "ships\nand \"men\""})"},
                          ToolCall{"go", "{}"}));
  EXPECT_THAT(got.places, ElementsAre(7, 7));
}

TEST(FunctionCalls, NeedNoLines) {
  const ToolCallText got =
      read(ToolCallStyle::kFunctions,
           "<tool_call><function=look><parameter=at> a </parameter></function></tool_call>");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"look", R"({"at": " a "})"}));
}

// Of lines' ends one on either side is the style's; the others are the value's, as is what looks
// like a mark.
TEST(FunctionCalls, HaveTextsAsTheyAreWritten) {
  const auto text = [](std::string_view written) {
    return value_of(ToolCallStyle::kFunctions, R"({"type":"string"})", written);
  };
  EXPECT_EQ(text("\n  a\n\n"), R"("\n  a\n\n")");
  EXPECT_EQ(text(""), R"("")");
  EXPECT_EQ(text("<b>\"</parameter</tool_call>\\<parameter=y></function>"),
            R"("<b>\"</parameter</tool_call>\\<parameter=y></function>")");
  EXPECT_EQ(text("5"), R"("5")");
  EXPECT_EQ(text("null"), R"("null")");
  EXPECT_EQ(text("{\"a\": 1}"), R"("{\"a\": 1}")");
}

TEST(FunctionCalls, MayLackTheirLastMark) {
  const std::string call = "<tool_call>\n<function=go>\n</function>\n";
  EXPECT_THAT(read(ToolCallStyle::kFunctions, call).calls, ElementsAre(ToolCall{"go", "{}"}));
  for (const std::string_view behind : {"</tool_", "<func", "and more"}) {
    const ToolCallText got = read(ToolCallStyle::kFunctions, call + std::string(behind));
    EXPECT_EQ(got.text, behind);
    EXPECT_THAT(got.calls, ElementsAre(ToolCall{"go", "{}"}));
  }
}

// Qwen3-Coder forgets it, and writes the last one all the same.
TEST(FunctionCalls, MayLackTheirFirstMark) {
  for (const std::string_view end : {"", "\n</tool_call>", "</tool_call>\n"}) {
    const ToolCallText got =
        read(ToolCallStyle::kFunctions,
             "I look.\n<function=look>\n<parameter=at>\nsea\n</parameter>\n</function>" +
                 std::string(end));
    EXPECT_EQ(got.text, "I look.");
    EXPECT_THAT(got.calls, ElementsAre(ToolCall{"look", R"({"at": "sea"})"}));
    EXPECT_THAT(got.places, ElementsAre(7));
  }
}

TEST(FunctionCalls, MayBeSeveralBetweenTwoMarks) {
  const std::string go = "<function=go>\n</function>\n";
  for (const std::string_view begin : {"", "<tool_call>\n"}) {
    const ToolCallText got = read(ToolCallStyle::kFunctions,
                                  std::string(begin) + go + go + "</tool_call>\nSo. </tool_call>");
    EXPECT_EQ(got.text, "So. </tool_call>");
    EXPECT_THAT(got.calls, ElementsAre(ToolCall{"go", "{}"}, ToolCall{"go", "{}"}));
  }
}

TEST(FunctionCalls, WithoutTheirMarksAreOfToolsThatThereAre) {
  for (const char* const answer : {
           " as in <function=stay>\n</function> or so",
           "<function=stay></function></tool_call>",
           "<tool_call><function=stay></function> and </tool_call>",
           "<tool_call>\n<function=stay>\n</function>\n</tool_",
       }) {
    expect_text(ToolCallStyle::kFunctions, answer);
  }
  const ToolCallText got =
      read(ToolCallStyle::kFunctions, "<tool_call><function=stay></function></tool_call>");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"stay", "{}"})) << "the client tells the model so";
}

TEST(FunctionCalls, ThatAreNoneStayText) {
  for (const char* const answer : {
           "a <tool_call> b </tool_call>\n",
           "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>",
           "<tool_call><function=look></tool_call>",
           "<tool_call><function=></function></tool_call>",
           "<tool_call><function=a<b></function></tool_call>",
           "<tool_call><function=look>at</function></tool_call>",
           "<tool_call><function=look><parameter=>x</parameter></function></tool_call>",
           "Write <function=look> and its end, </function>.",
           "<function=look",
           "<function=look>\n<parameter=at>\nsea\n</parameter>\n",
           "a < b <func(x)> <function",
           " x  <tool_call>\n<function=look>\n<parameter=at>\nsea\n</tool_call>",
           "<tool_call>\n<function=look>\n<parameter=at>\nsea\n</parameter>\n",
           "<tool_call>\n<func",
       }) {
    expect_text(ToolCallStyle::kFunctions, answer);
  }
}

TEST(FunctionCalls, MayComeBehindTheMarkOfNone) {
  const ToolCallText got = read(ToolCallStyle::kFunctions,
                                "In <tool_call> marks:\n<tool_call>\n<function=go>\n</function>\n"
                                "</tool_call>");
  EXPECT_EQ(got.text, "In <tool_call> marks:");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"go", "{}"}));
}

// A value goes up to its mark, whatever is in it, also where it is of no call.
TEST(FunctionCalls, DoNotBeginInTheValuesOfNone) {
  const std::string call = "<tool_call><function=go></function></tool_call>";
  const std::string none = "<tool_call><function=look><parameter=at>" + call + "</parameter>x";
  expect_text(ToolCallStyle::kFunctions, none);
  const ToolCallText got = read(ToolCallStyle::kFunctions, none + call);
  EXPECT_EQ(got.text, none);
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"go", "{}"}));
}

// Where each mark were looked for an end of its own, these would take minutes.
TEST(FunctionCalls, ThatAreNoneAreLookedThroughOnce) {
  for (const char* const type : {"string", "integer"}) {
    const ToolTypes types = types_of(std::string(R"({"x":{"type":")") + type + R"("}})");
    std::string answer;
    for (int i = 0; i < 100'000; ++i) answer += "<tool_call><function=look><parameter=x>";
    answer += "</parameter>x";
    for (const std::size_t piece_bytes : {std::size_t{4}, answer.size()}) {
      const ToolCallText got =
          read_calls_in_pieces(ToolCallStyle::kFunctions, types, answer, piece_bytes);
      EXPECT_EQ(got.text, answer);
      EXPECT_THAT(got.calls, IsEmpty());
    }
  }
}

TEST(FunctionCalls, HoldBackOnlyWhatMayBeOne) {
  const ToolTypes types;
  ToolCallReader reader(ToolCallStyle::kFunctions, types);
  ToolCallText out;
  reader.push("The <tool_call>", out);
  EXPECT_EQ(out.text, "The");
  reader.push(" mark", out);
  EXPECT_EQ(out.text, "The <tool_call> mark");
  reader.push(" <funct", out);
  EXPECT_EQ(out.text, "The <tool_call> mark");
  reader.push("ion=none>", out);
  EXPECT_EQ(out.text, "The <tool_call> mark <function=none>");
}

TEST(FunctionCalls, HaveNamesOfSomeLength) {
  const std::string begin = "<tool_call><function=";
  const std::string end = "></function></tool_call>";
  const std::string longest(kMarkedNameBytesMax, 'n');
  EXPECT_THAT(read(ToolCallStyle::kFunctions, begin + longest + end).calls,
              ElementsAre(ToolCall{longest, "{}"}));
  expect_text(ToolCallStyle::kFunctions, begin + longest + "n" + end);
}

TEST(KeyCalls, AreTakenOutOfTheText) {
  const ToolCallText got =
      read(ToolCallStyle::kKeys,
           "I look.\n<tool_call>look\n<arg_key>at</arg_key>\n<arg_value>the sea</arg_value>\n"
           "<arg_key>far</arg_key>\n<arg_value>true</arg_value>\n</tool_call>\n"
           "<tool_call>go\n</tool_call>",
           types_of(R"({"at":{"type":"string"},"far":{"type":"boolean"}})"));
  EXPECT_EQ(got.text, "I look.");
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"look", R"({"at": "the sea", "far": true})"},
                                     ToolCall{"go", "{}"}));
}

// As GLM-4.7 writes them.
TEST(KeyCalls, NeedNoLines) {
  const ToolCallText got =
      read(ToolCallStyle::kKeys,
           "<tool_call>look<arg_key>a</arg_key><arg_value>\n x\n</arg_value></tool_call>"
           "<tool_call>go</tool_call>",
           types_of(R"({"a":{"type":"string"}})"));
  EXPECT_THAT(got.calls, ElementsAre(ToolCall{"look", R"({"a": "\n x\n"})"}, ToolCall{"go", "{}"}));
}

TEST(KeyCalls, ThatAreNoneStayText) {
  for (const char* const answer : {
           "put it in <tool_call>...</tool_call>",
           "<tool_call>stay\n</tool_call>",
           "<tool_call>go",
           "<tool_call>go\n",
           "<tool_call>{\"name\": \"go\", \"arguments\": {}}",
           "<tool_call>look\n<arg_key>at</arg_key>\n</tool_call>",
           "<tool_call>look\n<arg_value>at</arg_value>\n</tool_call>",
           "<tool_call>look\n<arg_key>at</arg_key>\n<arg_value>sea</arg_value>\n",
           "<tool_call>look\nout\n<arg_key>at</arg_key>\n<arg_value>sea</arg_value>\n</tool_call>",
       }) {
    expect_text(ToolCallStyle::kKeys, answer);
  }
}

class XmlValues : public testing::TestWithParam<ToolCallStyle> {
 protected:
  std::string value(const std::string& schema, std::string_view written) const {
    return value_of(GetParam(), schema, written);
  }
};

// Numbers are not made anew: 1.0 stays 1.0, and no digit of a long one goes.
TEST_P(XmlValues, AreJsonOfTheirTypes) {
  EXPECT_EQ(value(R"({"type":"integer"})", " 12345678901234567890123 "), "12345678901234567890123");
  EXPECT_EQ(value(R"({"type":"number"})", "1.0"), "1.0");
  EXPECT_EQ(value(R"({"type":"number"})", "-3"), "-3");
  EXPECT_EQ(value(R"({"type":"boolean"})", "false"), "false");
  EXPECT_EQ(value(R"({"type":"array"})", "[1,\n \"a\"]"), "[1,\n \"a\"]");
  EXPECT_EQ(value(R"({"type":"object"})", R"({ "a": "</arg_value></parameter>" })"),
            R"({ "a": "</arg_value></parameter>" })");
}

TEST_P(XmlValues, MayHaveWordsAsPythonWritesThem) {
  EXPECT_EQ(value(R"({"type":"boolean"})", "True"), "true");
  EXPECT_EQ(value(R"({"type":["boolean","null"]})", "None"), "null");
  EXPECT_EQ(value(R"({"type":"integer"})", "null"), "null") << "whatever may not be a text";
  EXPECT_EQ(value(R"({"type":"string"})", "None"), "\"None\"");
}

// What a word stands for is none of the values, though the type would allow it.
TEST_P(XmlValues, AreWordsOnlyWhereThoseAreAmongTheirValues) {
  EXPECT_EQ(value(R"({"type":["string","null"],"enum":["None","Low"]})", "None"), "\"None\"");
  EXPECT_EQ(value(R"({"enum":["null","Low"],"type":["string","null"]})", "null"), "\"null\"");
  EXPECT_EQ(value(R"({"type":["string","null"],"enum":["None",null]})", "None"), "null");
  EXPECT_EQ(value(R"({"enum":["TRUE","auto",false]})", "TRUE"), "\"TRUE\"");
  EXPECT_EQ(value(R"({"enum":["TRUE","auto",false]})", "False"), "false");
  EXPECT_EQ(value(R"({"type":"boolean","const":true})", "False"), "false") << "no text may be";
}

TEST_P(XmlValues, ThatAreNotOfTheirTypesAreStrings) {
  EXPECT_EQ(value(R"({"type":"integer"})", "many"), "\"many\"");
  EXPECT_EQ(value(R"({"type":"integer"})", "1.5"), "\"1.5\"");
  EXPECT_EQ(value(R"({"type":"boolean"})", "1"), "\"1\"");
  EXPECT_EQ(value(R"({"type":"object"})", "[1]"), "\"[1]\"");
  EXPECT_EQ(value(R"({"type":"array"})", "[1,"), "\"[1,\"");
  EXPECT_EQ(value(R"({"type":"array"})", ""), "\"\"");
}

TEST_P(XmlValues, HaveTypesHoweverASchemaSaysThem) {
  for (const char* const schema :
       {R"({"type":["string","integer"]})", R"({"anyOf":[{"type":"string"},{"type":"integer"}]})",
        R"({"oneOf":[{"enum":["a"]},{"const":1}]})", R"({"enum":["a",1]})"}) {
    EXPECT_EQ(value(schema, "5"), "5") << schema;
    EXPECT_EQ(value(schema, "five"), "\"five\"") << schema;
    EXPECT_EQ(value(schema, "true"), "\"true\"") << schema;
  }
  for (const char* const schema :
       {R"({"$ref":"#/$defs/place"})", R"({"allOf":[{"$ref":"#/$defs/place"},{"title":"x"}]})",
        R"({"properties":{"a":{}}})"}) {
    EXPECT_EQ(value(schema, "{}"), "{}") << schema;
    EXPECT_EQ(value(schema, "5"), "\"5\"") << schema;
  }
}

TEST_P(XmlValues, OfWhichNothingIsSaidAreWhatTheStyleGuesses) {
  const bool guesses = GetParam() == ToolCallStyle::kKeys;
  for (const char* const schema :
       {"{}", "true", R"({"$ref":"#/$defs/circle"})", R"({"$ref":"#/nowhere"})",
        R"({"anyOf":[{"type":"null"},{}]})"}) {
    EXPECT_EQ(value(schema, "5"), guesses ? "5" : "\"5\"") << schema;
    EXPECT_EQ(value(schema, "five"), "\"five\"") << schema;
  }
}

// A parser may take a byte 0 for the end of the text, and pass over a mark of byte order.
TEST_P(XmlValues, AreJsonOnlyIfAllOfTheTextIs) {
  using namespace std::string_view_literals;
  for (const char* const schema :
       {"{}", R"({"type":["integer","array","object"]})", R"({"type":["string","integer"]})"}) {
    EXPECT_EQ(value(schema, "5\0, \"admin\": true"sv), R"("5\u0000, \"admin\": true")");
    EXPECT_EQ(value(schema, "5\0"sv), R"("5\u0000")");
    EXPECT_EQ(value(schema, "{}\0"sv), R"("{}\u0000")");
    EXPECT_EQ(value(schema, "\xEF\xBB\xBF\x35"), "\"\xEF\xBB\xBF\x35\"");
    EXPECT_EQ(value(schema, "\xEF\xBB\xBF[1]"), "\"\xEF\xBB\xBF[1]\"");
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, XmlValues,
                         testing::Values(ToolCallStyle::kFunctions, ToolCallStyle::kKeys),
                         [](const auto& style) {
                           return style.param == ToolCallStyle::kKeys ? "Keys" : "Functions";
                         });

// Where one of them says nothing it may be anything, whichever comes first.
TEST(ToolTypes, AParameterOfSeveralSchemasHasTheTypesOfAll) {
  const auto types_in = [](const std::string& one, const std::string& other) {
    const std::string tools = R"([{"function":{"name":"f","parameters":{"anyOf":[)"
                              R"({"properties":{"x":)" +
                              one + R"(}},{"properties":{"x":)" + other + "}}]}}}]";
    const ToolTypes types = tool_types_of(TemplateJson::parse(tools));
    const auto found = types.at("f").find("x");
    return found == types.at("f").end() ? std::size_t{0} : found->second.size();
  };
  EXPECT_EQ(types_in(R"({"type":"integer"})", R"({"type":"boolean"})"),
            types_in(R"({"type":["integer","boolean"]})", R"({"type":"integer"})"));
  EXPECT_EQ(types_in(R"({"type":"integer"})", "{}"), 0U);
  EXPECT_EQ(types_in("{}", R"({"type":"integer"})"), 0U);
}

}  // namespace
}  // namespace stemma
