#include "server/output_grammar.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/prng.h"
#include "grammar/grammar_texts.h"
#include "openai/completion_request.h"
#include "openai/tool_calls.h"

namespace stemma {
namespace {

CompletionRequest request_of(const std::string& fields) {
  const std::string body = R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}";
  auto read = read_completion_request(CompletionKind::kChat, body, RequestRules());
  EXPECT_TRUE(std::holds_alternative<CompletionRequest>(read)) << fields;
  return std::get<CompletionRequest>(std::move(read));
}

const char* const kTools = R"("tools":[
    {"type":"function","function":{"name":"look \"up\"","strict":true,"parameters":
      {"type":"object","properties":{"at":{"type":"string","maxLength":9}},"required":["at"],
       "additionalProperties":false}}},
    {"type":"function","function":{"name":"go"}}])";

// A chat template that shows calls so.
struct Spelled {
  std::string name;
  std::string chat_template;
};

void PrintTo(const Spelled& spelled, std::ostream* out) {
  *out << spelled.name;
}

class ForcedCalls : public testing::TestWithParam<Spelled> {
 protected:
  ByteAutomaton automaton_of_request(const CompletionRequest& request) {
    types_ = tool_types_of(request.tools);
    ByteGrammar grammar;
    const Result<ByteGrammar::Part> whole =
        add_form(request, spelling_of(style_, GetParam().chat_template), grammar);
    EXPECT_TRUE(whole.ok()) << whole.error().detail;
    return automaton_of(grammar, *whole);
  }

  std::vector<ToolCall> calls_in(const std::string& text) const {
    ToolCallReader reader(style_, types_);
    ToolCallText read;
    reader.push(text, read);
    reader.finish(read);
    EXPECT_EQ(read.text, "") << "all of it is calls: " << text;
    return read.calls;
  }

  // Arguments are texts between marks.
  bool has_texts() const {
    return spelling_of(style_, GetParam().chat_template).members.has_value();
  }

  ToolTypes types_;
  ToolCallStyle style_ = *tool_call_style_of(GetParam().chat_template);
};

TEST_P(ForcedCalls, AreReadAsWhatTheyAre) {
  const ToolCallSpelling spelling = spelling_of(style_, GetParam().chat_template);
  ByteAutomaton automaton =
      automaton_of_request(request_of(std::string(kTools) + R"(,"tool_choice":"required")"));
  Prng prng(2);
  std::set<std::string> names;
  bool are_several = false;
  for (int i = 0; i < 60; ++i) {
    const std::vector<ToolCall> calls = calls_in(drawn_text(automaton, prng, 150));
    ASSERT_FALSE(calls.empty());
    are_several |= calls.size() > 1;
    for (const ToolCall& call : calls) {
      names.insert(call.name);
      const TemplateJson arguments = TemplateJson::parse(call.arguments);
      EXPECT_EQ(arguments.contains("at"), call.name != "go") << call.arguments;
    }
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("go", "look \"up\""));
  EXPECT_EQ(are_several, spelling.several);
  EXPECT_TRUE(spelling.name_is_json || has_texts() || style_ == ToolCallStyle::kDeepseek);
}

TEST_P(ForcedCalls, AreOneWhereSeveralAreNotWanted) {
  ByteAutomaton automaton = automaton_of_request(
      request_of(std::string(kTools) + R"(,"tool_choice":"required","parallel_tool_calls":false)"));
  Prng prng(3);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(calls_in(drawn_text(automaton, prng, 400)).size(), 1U);
  }
}

// As clients of OpenAI's interface expect, who read the first.
TEST_P(ForcedCalls, AreOneOfTheToolThatIsNamed) {
  ByteAutomaton automaton = automaton_of_request(request_of(
      std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"go"}})"));
  Prng prng(4);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(calls_in(drawn_text(automaton, prng, 400)),
                testing::ElementsAre(ToolCall{"go", "{}"}));
  }
}

// Whatever else a schema would allow.
TEST_P(ForcedCalls, HaveArgumentsThatAreAnObject) {
  const std::string member =
      R"("properties":{"a":{"type":"boolean"}},"additionalProperties":false)";
  for (const std::string& parameters :
       {R"({"type":["object","null"],)" + member + "}",
        R"({"type":["string","object"],)" + member + "}",
        R"({"anyOf":[{"type":"null"},{"type":"object",)" + member + "}]}",
        R"({"$ref":"#/$defs/it","$defs":{"it":{"type":["null","object"],)" + member + "}}}",
        std::string(R"({"enum":[1,{"a":true},null]})"), std::string("{}"), std::string("true")}) {
    // Of texts others are refused, or any text: TextArguments below.
    const bool has_members = parameters.find("properties") != parameters.npos;
    if (has_texts() && !has_members) continue;
    ByteAutomaton automaton =
        automaton_of_request(request_of(R"("tools":[{"function":{"name":"f","parameters":)" +
                                        parameters + R"(}}],"tool_choice":"required")"));
    Prng prng(5);
    for (int i = 0; i < 40; ++i) {
      const std::vector<ToolCall> calls = calls_in(drawn_text(automaton, prng, 200));
      ASSERT_FALSE(calls.empty()) << parameters;
      EXPECT_TRUE(calls[0].arguments.starts_with("{")) << calls[0].arguments;
    }
  }
}

TEST_P(ForcedCalls, MayTakeThePlaceOfAText) {
  ByteAutomaton automaton = automaton_of_request(
      request_of(std::string(kTools) + R"(,"response_format":{"type":"json_object"})"));
  EXPECT_TRUE(accepts(automaton, R"({"a": 1})"));
  const std::string begin(spelling_of(style_, GetParam().chat_template).call_begin);
  EXPECT_FALSE(accepts(automaton, "x"));
  EXPECT_TRUE(begin.front() == '{' || state_behind(automaton, "<") != ByteAutomaton::kDead);
}

const auto kStyles = testing::Values(
    Spelled{"Tagged", "<tool_call>"}, Spelled{"Bare", R"({"name": function name, "parameters": )"},
    Spelled{"Deepseek", "<｜tool▁calls▁begin｜>"},
    Spelled{"DeepseekFenced", "<｜tool▁calls▁begin｜> ```json"},
    Spelled{"Functions", "<tool_call><function="}, Spelled{"Keys", "<tool_call><arg_key>"},
    Spelled{"KeysWithoutLines", "<tool_call><arg_key></arg_key><arg_value>"});
const auto kNameOfStyle = [](const auto& one) { return one.param.name; };
INSTANTIATE_TEST_SUITE_P(Styles, ForcedCalls, kStyles, kNameOfStyle);

// Of a tool that is strict, in answers that may call and may not.
class StrictCalls : public ForcedCalls {
 protected:
  // How a call of a function begins, up to its arguments.
  std::string begin_of_call(const std::string& name) const {
    const ToolCallSpelling calls = spelling_of(style_, GetParam().chat_template);
    return std::string(calls.begin) + std::string(calls.call_begin) +
           (calls.name_is_json ? '"' + name + '"' : name) + std::string(calls.arguments_begin);
  }
  // A call without arguments, and one with an argument.
  std::string call(const std::string& name) const {
    return begin_of_call(name) + (has_texts() ? "" : "{}") + end_of_call();
  }
  std::string call_with(const std::string& name, const std::string& key) const {
    const ToolCallSpelling calls = spelling_of(style_, GetParam().chat_template);
    if (!has_texts()) return begin_of_call(name) + "{\"" + key + "\":1}" + end_of_call();
    return begin_of_call(name) + std::string(calls.members->name_begin) + key +
           std::string(calls.members->name_end) + "1" + std::string(calls.members->value_end) +
           end_of_call();
  }
  std::string end_of_call() const {
    const ToolCallSpelling calls = spelling_of(style_, GetParam().chat_template);
    return std::string(calls.call_end) + std::string(calls.end);
  }
};

TEST_P(StrictCalls, KeepToTheirSchemasWhereTheyCome) {
  ByteAutomaton automaton = automaton_of_request(request_of(kTools));
  for (const std::string& text :
       {std::string(), std::string("I go."), call("go"), call_with("look \"up\"", "at")}) {
    const bool is_number = !has_texts() && text.find("look") != text.npos;
    EXPECT_EQ(accepts(automaton, text), !is_number) << text;
  }
  EXPECT_FALSE(accepts(automaton, call("stay")));
  EXPECT_FALSE(accepts(automaton, call_with("go", "a")));
}

TEST_P(StrictCalls, MayComeBehindTextWhereAStyleHasIt) {
  ByteAutomaton automaton = automaton_of_request(request_of(kTools));
  const std::string text = "So, <tool: " + call("go");
  const bool may = style_ != ToolCallStyle::kBare;
  EXPECT_TRUE(accepts(automaton, text)) << "in the bare style it is text";
  EXPECT_EQ(accepts(automaton, "So, " + call("stay")), !may);
  EXPECT_EQ(accepts(automaton, text + "\n" + begin_of_call("stay")), !may);
}

TEST_P(StrictCalls, AreOneWhereSeveralAreNotWanted) {
  ByteAutomaton automaton =
      automaton_of_request(request_of(std::string(kTools) + R"(,"parallel_tool_calls":false)"));
  EXPECT_TRUE(accepts(automaton, call("go")));
  EXPECT_FALSE(accepts(automaton, call("go") + call("go")));
}

INSTANTIATE_TEST_SUITE_P(Styles, StrictCalls, kStyles, kNameOfStyle);

// Arguments that are texts between marks, of one parameter `x` that is required.
class TextArguments : public testing::TestWithParam<Spelled> {
 protected:
  static std::string tools_with(const std::string& schema) {
    return R"("tools":[{"function":{"name":"f","strict":true,"parameters":{"type":"object",)"
           R"("properties":{"x":)" +
           schema + R"(},"required":["x"]}}}],"tool_choice":"required")";
  }
  Result<ByteGrammar::Part> form_of(const CompletionRequest& request, ByteGrammar& grammar) const {
    return add_form(request, spelling_of(style_, GetParam().chat_template), grammar);
  }
  std::string refusal_of(const std::string& fields) const {
    ByteGrammar grammar;
    const auto form = form_of(request_of(fields), grammar);
    return form.ok() ? "" : form.error().detail;
  }
  // The values that `x` has in calls drawn from its schema.
  std::vector<TemplateJson> values_of(const std::string& schema) const {
    const CompletionRequest request = request_of(tools_with(schema));
    ByteGrammar grammar;
    const auto form = form_of(request, grammar);
    EXPECT_TRUE(form.ok()) << schema << form.error().detail;
    ByteAutomaton automaton = automaton_of(grammar, *form);
    const ToolTypes types = tool_types_of(request.tools);
    const ToolCallSpelling calls = spelling_of(style_, GetParam().chat_template);
    Prng prng(7);
    std::vector<TemplateJson> values;
    for (int i = 0; i < 40; ++i) {
      const std::string text = drawn_text(automaton, prng, 120, 1 << 20, calls.members->value_end);
      ToolCallReader reader(style_, types);
      ToolCallText read;
      reader.push(text, read);
      reader.finish(read);
      EXPECT_EQ(read.text, "") << text;
      for (const ToolCall& call : read.calls) {
        const TemplateJson arguments = TemplateJson::parse(call.arguments);
        EXPECT_TRUE(arguments.contains("x")) << text;
        values.push_back(arguments["x"]);
      }
    }
    EXPECT_GE(values.size(), 40U);
    return values;
  }
  void expect_all(const std::string& schema, bool (*is_right)(const TemplateJson&)) const {
    for (const TemplateJson& value : values_of(schema)) {
      EXPECT_TRUE(is_right(value)) << schema << ' ' << value;
    }
  }

  ToolCallStyle style_ = *tool_call_style_of(GetParam().chat_template);
};

TEST_P(TextArguments, AreReadAsValuesOfTheirSchemas) {
  expect_all(R"({"type":"integer","minimum":3,"maximum":12})",
             [](const auto& value) { return value >= 3 && value <= 12; });
  expect_all(R"({"type":"boolean"})", [](const auto& value) { return value.is_boolean(); });
  expect_all(R"({"type":"array","items":{"type":"string"},"minItems":1})", [](const auto& value) {
    return value.is_array() && !value.empty() && value[0].is_string();
  });
  expect_all(R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a"]})",
             [](const auto& value) { return value.is_object() && value.at("a").is_null(); });
}

// Whatever they look like.
TEST_P(TextArguments, ThatAreAnyTextAreStrings) {
  expect_all(R"({"type":"string"})", [](const auto& value) { return value.is_string(); });
}

TEST_P(TextArguments, AreNotReadAsWordsThatTheirSchemasForbid) {
  expect_all(R"({"type":["string","null"],"enum":["None","null","Low"]})",
             [](const auto& value) { return value.is_string(); });
  expect_all(
      R"({"type":["string","boolean"],"enum":["TRUE","auto",false]})",
      [](const auto& value) { return value == "TRUE" || value == "auto" || value == false; });
  expect_all(R"({"type":["string","null"],"allOf":[{"maxLength":3}]})", [](const auto& value) {
    return value.is_null() || value.template get_ref<const std::string&>().size() <= 3 * 4;
  });
}

TEST_P(TextArguments, KeepToWhatIsSaidOfStrings) {
  expect_all(R"({"enum":["a","</parameter></arg_value>","5"],"type":"string"})",
             [](const auto& value) { return value == "a" || value == "5"; });
  expect_all(R"({"type":"string","pattern":"^[a-c<]{2}$"})", [](const auto& value) {
    const auto& text = value.template get_ref<const std::string&>();
    return text.size() == 2 && text.find_first_not_of("abc") == text.npos;
  });
  expect_all(R"({"anyOf":[{"type":"string","maxLength":2},{"type":"null"}]})",
             [](const auto& value) { return value.is_string() || value.is_null(); });
  expect_all(R"({"type":"string","format":"date"})", [](const auto& value) {
    return value.template get_ref<const std::string&>().size() == 10;
  });
}

TEST_P(TextArguments, MayBeNumbersBesideStringsThatAreListed) {
  expect_all(R"({"anyOf":[{"const":"auto"},{"type":"integer","minimum":3,"maximum":40}]})",
             [](const auto& value) { return value == "auto" || (value >= 3 && value <= 40); });
  expect_all(R"({"enum":["low",2,null]})",
             [](const auto& value) { return value == "low" || value == 2 || value.is_null(); });
}

// One that stands for others.
TEST_P(TextArguments, AreOfAnyOfTheSchemasOfAWhole) {
  const std::string tools =
      R"("tools":[{"function":{"name":"f","strict":true,"parameters":{"$ref":"#/$defs/a","$defs":{)"
      R"("n":{"type":"integer","minimum":1,"maximum":9},"a":{"anyOf":[)"
      R"({"properties":{"x":{"$ref":"#/$defs/n"}},"required":["x"]},)"
      R"({"properties":{"x":{"type":"null"},"y":{"type":"boolean"}},"required":["x","y"]}]}}}}}],)"
      R"("tool_choice":"required")";
  const CompletionRequest request = request_of(tools);
  ByteGrammar grammar;
  const auto form = form_of(request, grammar);
  ASSERT_TRUE(form.ok()) << form.error().detail;
  ByteAutomaton automaton = automaton_of(grammar, *form);
  const ToolTypes types = tool_types_of(request.tools);
  Prng prng(7);
  std::set<bool> numbers;
  for (int i = 0; i < 40; ++i) {
    ToolCallReader reader(style_, types);
    ToolCallText read;
    reader.push(drawn_text(automaton, prng, 120), read);
    reader.finish(read);
    for (const ToolCall& call : read.calls) {
      const TemplateJson arguments = TemplateJson::parse(call.arguments);
      const TemplateJson& x = arguments.at("x");
      numbers.insert(x.is_number());
      EXPECT_TRUE(x.is_number() ? x >= 1 && x <= 9 && arguments.size() == 1
                                : x.is_null() && arguments.at("y").is_boolean())
          << arguments;
    }
  }
  EXPECT_EQ(numbers.size(), 2U);
}

TEST_P(TextArguments, MayBeAnyTextUpToTheirMark) {
  const ToolCallSpelling calls = spelling_of(style_, GetParam().chat_template);
  const auto call = [&](const std::string& text) {
    return std::string(calls.call_begin) + "f" + std::string(calls.arguments_begin) +
           std::string(calls.members->name_begin) + "x" + std::string(calls.members->name_end) +
           text + std::string(calls.members->value_end) + std::string(calls.call_end);
  };
  const std::string any_names =
      R"("tools":[{"function":{"name":"f","parameters":{}}}],"tool_choice":"required")";
  for (const std::string& fields :
       {tools_with(R"({"type":"string"})"), tools_with("{}"), any_names}) {
    ByteGrammar grammar;
    const auto form = form_of(request_of(fields), grammar);
    ASSERT_TRUE(form.ok()) << form.error().detail;
    ByteAutomaton automaton = automaton_of(grammar, *form);
    EXPECT_TRUE(accepts(automaton, call("")));
    EXPECT_TRUE(accepts(automaton, call("<b>\n\"</tool_call>\n\n")));
    EXPECT_FALSE(accepts(automaton, call("a" + std::string(calls.members->end) + "b")));
  }
}

TEST_P(TextArguments, MayBeLeftOutWhereTheyNeedNotBe) {
  const CompletionRequest request = request_of(
      R"("tools":[{"function":{"name":"f","parameters":{"properties":{"x":{"type":"integer"},)"
      R"("y":{"type":"string","maxLength":3}}}}}],)"
      R"("tool_choice":"required","parallel_tool_calls":false)");
  ByteGrammar grammar;
  const auto form = form_of(request, grammar);
  ASSERT_TRUE(form.ok());
  ByteAutomaton automaton = automaton_of(grammar, *form);
  Prng prng(8);
  std::set<std::string> keys;
  for (int i = 0; i < 60; ++i) {
    const std::string text = drawn_text(automaton, prng, 60);
    keys.insert(
        (text.find(">x<") != text.npos || text.find("=x>") != text.npos ? "x" : "-") +
        std::string(text.find(">y<") != text.npos || text.find("=y>") != text.npos ? "y" : "-"));
  }
  EXPECT_EQ(keys, (std::set<std::string>{"--", "-y", "x-", "xy"}));
}

TEST_P(TextArguments, ThatCannotBeKeptToAreRefusedByTheirPlace) {
  const std::string at = "tools[0].function.parameters";
  const std::string x = at + ".properties.x";
  EXPECT_EQ(refusal_of(tools_with(R"({"type":["string","integer"],"minimum":1})")),
            x + ": a text that may be this is not supported");
  EXPECT_EQ(refusal_of(tools_with(R"({"type":"string","not":{"minLength":2}})")),
            x + ": not of minLength is not supported");
  EXPECT_EQ(refusal_of(tools_with(R"({"type":"string","not":{"const":"a"}})")),
            x + ": not of a text between marks is not supported");
  EXPECT_EQ(refusal_of(tools_with(R"({"enum":["</parameter></arg_value>"]})")),
            x + ": no value is of its type");
  EXPECT_EQ(refusal_of(R"("tools":[{"function":{"name":"f","parameters":{"enum":[{}]}}}],)"
                       R"("tool_choice":"required")"),
            at + ".enum: not supported of arguments that are written between marks");
  EXPECT_EQ(refusal_of(R"("tools":[{"function":{"name":"f","parameters":{"anyOf":[false]}}}],)"
                       R"("tool_choice":"required")"),
            at + ": nothing keeps to all that it says");
  EXPECT_EQ(refusal_of(R"("tools":[{"function":{"name":"f","parameters":{"required":["z"]}}}],)"
                       R"("tool_choice":"required")"),
            at + ".required: \"z\" is no property");
  EXPECT_EQ(refusal_of(R"("tools":[{"function":{"name":"a>b"}}],"tool_choice":"required")"),
            "tools[0].function.name: this name cannot be written as the model calls");
  EXPECT_EQ(
      refusal_of(R"("tools":[{"function":{"name":"f","parameters":{"properties":{"a<b":{}}}}}],)"
                 R"("tool_choice":"required")"),
      at + ".properties.a<b: this name cannot be written as the model calls");
}

INSTANTIATE_TEST_SUITE_P(Styles, TextArguments,
                         testing::Values(Spelled{"Functions", "<tool_call><function="},
                                         Spelled{"Keys", "<tool_call><arg_key>"}),
                         kNameOfStyle);

// Where the first mark is left out, too, a model is read as calling, whatever the arguments are.
TEST(OutputGrammar, FunctionsOfStrictToolsBeginWithTheirFirstMark) {
  ByteGrammar grammar;
  const auto form = add_form(
      request_of(kTools), spelling_of(ToolCallStyle::kFunctions, "<tool_call><function="), grammar);
  ASSERT_TRUE(form.ok()) << form.error().detail;
  ByteAutomaton automaton = automaton_of(grammar, *form);
  const std::string call = "\n<function=go>\n</function>\n</tool_call>";
  EXPECT_TRUE(accepts(automaton, "I <func<tool_call>" + call + " so."));
  EXPECT_FALSE(accepts(automaton, "I " + call));
  EXPECT_FALSE(accepts(automaton, "<tool_call>" + call + "<function="));
}

TEST(OutputGrammar, SomeRequestsHaveNoForm) {
  const std::optional<ToolCallSpelling> none;
  const std::optional<ToolCallSpelling> tagged = spelling_of(ToolCallStyle::kTagged, "<tool_call>");
  const std::string tools = kTools;
  EXPECT_FALSE(has_form(request_of(R"("response_format":{"type":"text"})"), none));
  EXPECT_TRUE(has_form(request_of(R"("response_format":{"type":"json_object"})"), none));
  EXPECT_TRUE(has_form(request_of(tools + R"(,"tool_choice":"required")"), none));
  EXPECT_FALSE(has_form(request_of(R"("tools":[{"function":{"name":"go"}}])"), tagged));
  EXPECT_TRUE(has_form(request_of(tools), tagged)) << "one of them is strict";
  EXPECT_FALSE(has_form(request_of(tools), none)) << "the model does not call";
  EXPECT_FALSE(has_form(request_of(tools + R"(,"tool_choice":"none")"), tagged));
}

// Of digits, behind what an answer has at this place.
ByteAutomaton digits_behind(ThoughtPlace place) {
  ByteGrammar grammar;
  const auto form = add_form(request_of(R"("guided_regex":"\\d{2}")"), std::nullopt, grammar);
  EXPECT_TRUE(form.ok());
  const auto whole = add_thoughts(place, *form, grammar);
  EXPECT_TRUE(whole.ok());
  return automaton_of(grammar, *whole);
}

TEST(OutputGrammar, AFormMayHaveThoughtsBeforeIt) {
  ByteAutomaton automaton = digits_behind(ThoughtPlace::kBefore);
  for (const char* const text :
       {"42", "<think></think>42", "<think>\nI look.\n</think>\n\n42", "<think>é < 3</think>42",
        "<think><<think></thin></ think<//think</think>42"}) {
    EXPECT_TRUE(accepts(automaton, text)) << text;
  }
  for (const char* const text :
       {"", "x", "think>a</think>42", "<think>42", "<think>a</think>x", "<think>a</think>",
        "<think>a</think>42</think>42", "\n<think>a</think>42"}) {
    EXPECT_FALSE(accepts(automaton, text)) << text;
  }
}

TEST(OutputGrammar, AFormComesBehindThoughtsThatWereOpened) {
  ByteAutomaton automaton = digits_behind(ThoughtPlace::kInside);
  EXPECT_TRUE(accepts(automaton, "I look.</think>42"));
  EXPECT_TRUE(accepts(automaton, "</think>\n42"));
  EXPECT_FALSE(accepts(automaton, "42"));
}

// As they are read: what is no line break is the form's.
TEST(OutputGrammar, AFormBehindThoughtsKeepsItsSpaces) {
  ByteGrammar grammar;
  const auto form = add_form(request_of(R"("guided_choice":[" yes"])"), std::nullopt, grammar);
  const auto whole = add_thoughts(ThoughtPlace::kInside, *form, grammar);
  ASSERT_TRUE(whole.ok());
  ByteAutomaton automaton = automaton_of(grammar, *whole);
  for (const char* const text : {"</think> yes", "so</think>\n\n yes", "</think>\r\n yes"}) {
    EXPECT_TRUE(accepts(automaton, text)) << text;
    ThoughtReader reader(ThoughtPlace::kInside, /*has_form=*/true);
    ThoughtText read;
    reader.push(text, read);
    reader.finish(read);
    EXPECT_EQ(read.text, " yes");
  }
  for (const char* const text : {"</think>yes", "</think>  yes", "</think> \n yes"}) {
    EXPECT_FALSE(accepts(automaton, text)) << text;
  }
}

TEST(OutputGrammar, AFormBehindThoughtsHasNoMore) {
  ByteAutomaton automaton = digits_behind(ThoughtPlace::kBehind);
  EXPECT_TRUE(accepts(automaton, "42"));
  EXPECT_FALSE(accepts(automaton, "<think></think>42"));
}

// Parts of the mark, one behind the other.
TEST(OutputGrammar, ThoughtsAreAnyTextWithoutTheMark) {
  ByteAutomaton automaton = digits_behind(ThoughtPlace::kInside);
  const std::string mark(ThoughtMarks().end);
  for (std::size_t kept = 0; kept < mark.size(); ++kept) {
    for (std::size_t again = 0; again < mark.size(); ++again) {
      const std::string thoughts = mark.substr(0, kept) + mark.substr(0, again) + "<";
      EXPECT_TRUE(accepts(automaton, thoughts + mark + "42")) << thoughts;
    }
  }
}

TEST(OutputGrammar, ToolsMayBeMany) {
  std::string tools = "\"tools\":[";
  for (int i = 0; i < 200; ++i) {
    tools += (i > 0 ? "," : "") + (R"({"function":{"name":"f)" + std::to_string(i)) +
             R"(","parameters":{"type":"object","properties":{"x":{"type":"integer"},)" +
             R"("y":{"type":"number","minimum":0},"z":{}}}}})";
  }
  ByteGrammar grammar;
  const auto whole = add_form(request_of(tools + R"(],"tool_choice":"required")"),
                              spelling_of(ToolCallStyle::kTagged, "<tool_call>"), grammar);
  ASSERT_TRUE(whole.ok());
  ByteAutomaton automaton = automaton_of(grammar, *whole);
  EXPECT_TRUE(accepts(automaton,
                      "<tool_call>\n{\"name\": \"f199\", \"arguments\": "
                      "{\"x\": -17, \"y\": 0.5, \"z\": [1]}}\n</tool_call>"));
}

TEST(OutputGrammar, OneKeyIsOneForm) {
  const auto key = [](const std::string& fields) {
    return form_key(request_of(fields), ThoughtPlace::kBehind);
  };
  EXPECT_EQ(key(R"("guided_json":{"type":"null"})"), key(R"("guided_json":"{\"type\":\"null\"}")"));
  const std::vector<std::string> keys = {
      key(R"("guided_json":{"type":"null"})"),
      key(R"("guided_json":{"properties":{"a":{},"b":{}}})"),
      key(R"("guided_json":{"properties":{"b":{},"a":{}}})"),
      key(R"("guided_choice":["a"])"),
      key(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"null"}}})"),
      key(kTools),
      key(std::string(kTools) + R"(,"parallel_tool_calls":false)"),
      key(std::string(kTools) + R"(,"tool_choice":"required")"),
      key(std::string(kTools) + R"(,"tool_choice":"required","parallel_tool_calls":false)"),
      key(std::string(kTools) + R"(,"guided_json":{"type":"null"})"),
      key(std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"go"}})")};
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size());
  const CompletionRequest request = request_of(R"("guided_choice":["a"])");
  EXPECT_NE(form_key(request, ThoughtPlace::kBehind, "one"),
            form_key(request, ThoughtPlace::kBehind, "other"));
}

std::string refusal(const std::string& fields, bool calls = true) {
  std::optional<ToolCallSpelling> spelling;
  if (calls) spelling = spelling_of(ToolCallStyle::kTagged, "<tool_call>");
  ByteGrammar grammar;
  const auto whole = add_form(request_of(fields), spelling, grammar);
  return whole.ok() ? "" : whole.error().detail;
}

TEST(OutputGrammar, ErrorsSayWhere) {
  const std::string forced = R"(,"tool_choice":"required")";
  EXPECT_EQ(refusal(R"("guided_json":{"items":{"type":"x"}})"),
            "guided_json.items.type: \"x\" is no type");
  EXPECT_EQ(refusal(std::string(kTools) + forced, /*calls=*/false),
            "tool_choice: the model's template does not show how it would call");
  EXPECT_EQ(refusal(R"("tools":[{"type":"function"}])" + forced), "tools[0].function: missing");
  EXPECT_EQ(refusal(R"("tools":[{"function":{}}])" + forced), "tools[0].function.name: missing");
  const std::string text = R"("tools":[{"function":{"name":"f","parameters":{"type":"string"}}}])";
  EXPECT_EQ(refusal(text + forced),
            "tools[0].function.parameters.type: arguments are an \"object\"");
  const std::string bad = R"({"name":"f","parameters":{"properties":{"a":{"uniqueItems":true}}})";
  EXPECT_EQ(refusal(R"("tools":[{"function":)" + bad + "}}]" + forced), "");
  EXPECT_EQ(
      refusal(R"("tools":[{"function":)" + bad + R"(,"strict":true}}])" + forced),
      "tools[0].function.parameters.properties.a.uniqueItems: not supported where a schema is "
      "strict");
}

}  // namespace
}  // namespace stemma
