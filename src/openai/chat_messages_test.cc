// What is covered: messages of chats as clients send them, and as templates read them; the form of
// calls that a template prints. How: templates of a few lines with what DeepSeek's, Qwen's and
// others' own ones do with a call.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "openai/call_ids.h"
#include "openai/completion_request.h"
#include "openai/message_form.h"

namespace stemma {
namespace {

TemplateJson read(const char* messages, const MessageForm& form = {}) {
  std::optional<ApiError> fault;
  TemplateJson result = read_messages(TemplateJson::parse(messages), form, fault);
  EXPECT_FALSE(fault.has_value()) << fault->param << ' ' << fault->message;
  return result;
}

TEST(ChatMessages, AreReadAsTemplatesWantThem) {
  std::optional<ApiError> fault;
  const TemplateJson read =
      read_messages(TemplateJson::parse(R"([{"role":"developer","content":"d"},
          {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
          {"role":"assistant","content":null,"tool_calls":[
            {"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
            {"id":"2","type":"function","function":{"name":"g","arguments":""}}]},
          {"role":"tool","content":"r","tool_call_id":"1"}])"),
                    {}, fault);
  ASSERT_FALSE(fault.has_value()) << fault->message;
  EXPECT_EQ(read[0]["role"], "system");
  EXPECT_EQ(read[1]["content"], "a\nb");
  EXPECT_EQ(read[2]["tool_calls"][0]["function"]["arguments"]["x"], 1);
  EXPECT_EQ(read[2]["tool_calls"][1]["function"]["arguments"], TemplateJson::object());
  EXPECT_EQ(read[3]["tool_call_id"], "1");
}

TEST(ChatMessages, WrongOnesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "messages"},
      {"[1]", "messages[0]"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":"user","content":"x"},{"role":"robot","content":"x"}])", "messages[1].role"},
      {R"([{"role":"user"}])", "messages[0].content"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"user","content":[5]}])", "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
      {R"([{"role":"user","content":[{"type":"input_audio"}]}])", "messages[0].content[0].type"},
      {R"([{"role":"assistant","tool_calls":[1]}])", "messages[0].tool_calls[0]"},
      {R"([{"role":"assistant","tool_calls":[{}]}])", "messages[0].tool_calls[0].function"},
  };
  for (const auto& [messages, param] : cases) {
    std::optional<ApiError> fault;
    read_messages(TemplateJson::parse(messages), {}, fault);
    ASSERT_TRUE(fault.has_value()) << messages;
    EXPECT_EQ(fault->param, param) << messages;
  }
}

TEST(ChatMessages, AnAssistantMayHaveSaidNothing) {
  for (const char* const message :
       {R"([{"role":"assistant","content":null}])", R"([{"role":"assistant"}])",
        R"([{"role":"assistant","content":null,"refusal":null}])"}) {
    EXPECT_EQ(read(message)[0]["content"], "") << message;
  }
}

TEST(ChatMessages, ARefusalIsWhatAnAssistantSaid) {
  EXPECT_EQ(read(R"([{"role":"assistant","content":null,"refusal":"No."}])")[0]["content"], "No.");
}

TEST(ChatMessages, FieldsThatSayNothingAreNoCalls) {
  const TemplateJson messages = read(
      R"([{"role":"assistant","content":"a","tool_calls":null,"function_call":null},
          {"role":"assistant","content":"a","tool_calls":[]}])");
  EXPECT_FALSE(messages[0].contains("tool_calls"));
  EXPECT_FALSE(messages[0].contains("function_call"));
  EXPECT_FALSE(messages[1].contains("tool_calls"));
}

TEST(ChatMessages, CallsOfFunctionsAreCallsOfTools) {
  const TemplateJson messages = read(
      R"([{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"x\":1}"}},
          {"role":"function","name":"f","content":"r"},
          {"role":"assistant","function_call":{"name":"g","arguments":""}},
          {"role":"function","name":"g","content":"s"}])");
  EXPECT_FALSE(messages[0].contains("function_call"));
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"]["x"], 1);
  EXPECT_EQ(messages[1]["role"], "tool");
  EXPECT_EQ(messages[1]["tool_call_id"], messages[0]["tool_calls"][0]["id"]);
  EXPECT_EQ(messages[3]["tool_call_id"], messages[2]["tool_calls"][0]["id"]);
  EXPECT_NE(messages[1]["tool_call_id"], messages[3]["tool_call_id"]);
}

const char* const kCalls = R"([
    {"role":"assistant","content":null,"tool_calls":[
      {"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}}]},
    {"role":"assistant","content":"so","tool_calls":[
      {"id":"2","type":"function","function":{"name":"g","arguments":""}}]},
    {"role":"assistant","content":"","tool_calls":[
      {"id":"3","type":"function","function":{"name":"h","arguments":{"x":1}}}]}])";

// As answers give them out: with a name that repeats, with many names, or long.
TEST(ChatMessages, ArgumentsThatPythonReadsAreAnObject) {
  const auto arguments_of = [](const std::string& text) {
    TemplateJson message = {{"role", "assistant"}};
    message["tool_calls"][0] = {{"id", "1"}, {"function", {{"name", "f"}, {"arguments", text}}}};
    const TemplateJson messages = TemplateJson::array({message});
    return read(messages.dump().c_str())[0]["tool_calls"][0]["function"]["arguments"];
  };
  EXPECT_EQ(arguments_of(R"({"a": 1, "b": 2, "a": 3})").dump(), R"({"a":3,"b":2})");
  EXPECT_EQ(arguments_of(R"({"a": ")" + std::string(2'000'000, 'x') + "\"}")["a"].size(), 1U);
  std::string many = "{\"n\": 0";
  for (int i = 0; i < 2'000; ++i) many += ", \"" + std::to_string(i) + "\": 0";
  EXPECT_EQ(arguments_of(many + "}").size(), 2'001U);
}

// A double would be another number, and another text than the model wrote.
TEST(ChatMessages, ArgumentsHaveTheirIntegersHoweverLongTheyAre) {
  const TemplateJson messages = read(R"([{"role":"assistant","tool_calls":[{"id":"1","function":{
      "name":"f","arguments":"{\"wei\": 1500000000000000000001, \"x\": 1e21}"}}]}])");
  const auto chat =
      ChatTemplate::parse("{{ messages[0].tool_calls[0].function.arguments | tojson }}", "t.jinja");
  ASSERT_TRUE(chat.ok());
  const auto text = chat->render(messages, {});
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, R"({"wei": 1500000000000000000001, "x": 1e+21})");
}

TEST(ChatMessages, ArgumentsStayTextWhereTemplatesJoinThemToOne) {
  const TemplateJson messages = read(kCalls, {.arguments_are_text = true});
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"], "{\"x\": 1}");
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"], "{}");
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["arguments"], "{\"x\": 1}")
      << "an object, as models write it";
}

TEST(ChatMessages, SilenceIsNullWhereTemplatesAskForIt) {
  const TemplateJson messages = read(kCalls, {.silence_is_null = true});
  EXPECT_TRUE(messages[0]["content"].is_null());
  EXPECT_EQ(messages[1]["content"], "so");
  EXPECT_TRUE(messages[2]["content"].is_null());
}

TEST(ChatMessages, ACallIsAMessageOfItsOwnWhereATextWouldHideIt) {
  const TemplateJson messages = read(kCalls, {.silence_is_null = true, .calls_stand_alone = true});
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[1]["content"], "so");
  EXPECT_FALSE(messages[1].contains("tool_calls"));
  EXPECT_TRUE(messages[2]["content"].is_null());
  EXPECT_EQ(messages[2]["tool_calls"][0]["id"], "2");
}

// A template that prints calls as `call` says, after what `before` says of the message `m`.
MessageForm form_of(const std::string& before, const std::string& call) {
  const auto chat =
      ChatTemplate::parse("{% for m in messages %}" + before +
                              "{% for c in m.tool_calls or [] %}{% set c = c.function %}" + call +
                              "{% endfor %}{% endfor %}",
                          "t.jinja");
  EXPECT_TRUE(chat.ok()) << chat.error().detail;
  return message_form_of(*chat);
}

const char* const kText = "{{ m.role + ':' + (m.content or '') }}";
const char* const kObject = "{{ c.name }} {{ c.arguments | tojson }}";

TEST(MessageForm, ArgumentsAreAnObjectWhereThatIsPrinted) {
  EXPECT_FALSE(form_of(kText, kObject).arguments_are_text);
  for (const char* const argument :
       {"{{ k }}={{ v }}", "{{- '<parameter=' + k + '>\\n' }}{{ v | string }}",
        "<arg_key>{{ k }}</arg_key>{{ v | tojson(ensure_ascii=False) if v is not string else v "
        "}}"}) {
    const std::string call = "{% for k, v in c.arguments | items %}" + std::string(argument);
    EXPECT_FALSE(form_of(kText, call + "{% endfor %}").arguments_are_text) << argument;
  }
}

TEST(MessageForm, ArgumentsAreTextWhereAnObjectFailsOrIsShownAsPythonDoes) {
  EXPECT_TRUE(form_of(kText, "{{ c.name + c.arguments }}").arguments_are_text);
  EXPECT_TRUE(form_of(kText, "{{ c.name }} {{ c.arguments }}").arguments_are_text);
}

TEST(MessageForm, SilenceIsNullUnlessThatFailsOrIsPrinted) {
  EXPECT_TRUE(form_of(kText, kObject).silence_is_null);
  EXPECT_TRUE(form_of("{% if m.content is not none %}({{ m.content }}){% endif %}", kObject)
                  .silence_is_null);
  EXPECT_FALSE(form_of("{{ m.role + ':' + m.content }}", kObject).silence_is_null);
  EXPECT_FALSE(form_of("{% if '</think>' in m.content %}{% endif %}", kObject).silence_is_null);
  EXPECT_FALSE(form_of("{{ m.content }}", kObject).silence_is_null);
}

const char* const kParts =
    "{% if m.content is string %}{{ m.content | trim }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'text' %}{{ part.text | trim }}{% endif %}{% endfor %}{% endif %}";

// As Gemma's templates do, and those of models that see pictures.
TEST(MessageForm, PartsStayWhereTheTemplatePrintsThemOneBehindTheOther) {
  EXPECT_TRUE(form_of(kParts, kObject).user_parts_stay);
  EXPECT_FALSE(form_of(kText, kObject).user_parts_stay) << "it refuses them";
  EXPECT_FALSE(form_of("{{ m.content }}", kObject).user_parts_stay) << "as Python shows a list";
  EXPECT_FALSE(form_of("{{ m.content[0].text }}", kObject).user_parts_stay) << "one is lost";
  const std::string turns = "{% for part in m.content %}User: {{ part.text }}{% endfor %}";
  EXPECT_FALSE(form_of(turns, kObject).user_parts_stay) << "each is a turn of its own";
}

TEST(ChatMessages, PartsOfAUserStayWhereTheTemplateJoinsThem) {
  const char* const said = R"([
      {"role":"system","content":[{"type":"text","text":"s"},{"type":"text","text":"t"}]},
      {"role":"user","content":[{"type":"text","text":"a "},{"type":"input_text","text":"b"}]},
      {"role":"user","content":[{"type":"text","text":"c"}]}])";
  const TemplateJson joined = read(said);
  EXPECT_EQ(joined[1]["content"], "a \nb");
  const TemplateJson parts = read(said, {.user_parts_stay = true});
  EXPECT_EQ(parts[0]["content"], "s\nt") << "templates take the first of a system's alone";
  EXPECT_EQ(parts[1]["content"].dump(),
            R"([{"type":"text","text":"a "},{"type":"text","text":"b"}])");
  EXPECT_EQ(parts[2]["content"], "c");
  const auto chat = ChatTemplate::parse(
      "{% for m in messages %}" + std::string(kParts) + "|{% endfor %}", "gemma.jinja");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(*chat->render(parts, {}), "s\nt|ab|c|");
}

TEST(MessageForm, CallsStandAloneWhereATextHidesThem) {
  const auto chat = ChatTemplate::parse(
      "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}"
      "{{ c.function.name + c.function.arguments }}{% endfor %}{% else %}{{ m.content }}{% endif %}"
      "{% endfor %}",
      "deepseek_v3.jinja");
  ASSERT_TRUE(chat.ok()) << chat.error().detail;
  const MessageForm form = message_form_of(*chat);
  EXPECT_TRUE(form.silence_is_null);
  EXPECT_TRUE(form.calls_stand_alone);
  EXPECT_TRUE(form.arguments_are_text);
  EXPECT_FALSE(form_of(kText, kObject).calls_stand_alone);
}

TEST(MessageForm, IdentifiersAreShortWhereLongerOnesAreRefused) {
  const std::string refuses =
      "{% if m.tool_calls and m.tool_calls[0].id | length != 9 %}"
      "{{ raise_exception('of length 9') }}{% endif %}";
  EXPECT_TRUE(form_of(refuses + kText, kObject).short_ids);
  EXPECT_FALSE(form_of(kText, kObject).short_ids);
}

TEST(ChatMessages, IdentifiersOfACallAndItsOutcomeAreShortenedAlike) {
  const TemplateJson messages = read(R"([{"role":"assistant","tool_calls":[
      {"id":"call_of_others","type":"function","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"call_of_others","content":"x"}])",
                                     {.short_ids = true});
  EXPECT_EQ(messages[0]["tool_calls"][0]["id"], short_call_id("call_of_others"));
  EXPECT_EQ(messages[1]["tool_call_id"], messages[0]["tool_calls"][0]["id"]);
}

TEST(MessageForm, TemplatesThatPrintNoCallsGetObjectsBesideTexts) {
  for (const char* const source : {"{{ messages[0].content }}", "{{ raise_exception('no') }}"}) {
    const auto chat = ChatTemplate::parse(source, "t.jinja");
    ASSERT_TRUE(chat.ok());
    const MessageForm form = message_form_of(*chat);
    EXPECT_FALSE(form.silence_is_null || form.calls_stand_alone || form.arguments_are_text);
  }
}

// Clients repeat a message with all fields that it could have had.
TEST(ChatMessages, WhatIsNullIsNotSaid) {
  const TemplateJson thinks =
      read(R"([{"role":"assistant","content":"a","reasoning":"hm","reasoning_content":null}])");
  EXPECT_EQ(thinks[0]["reasoning_content"], "hm");
  const TemplateJson old = read(
      R"([{"role":"assistant","function_call":{"name":"f","arguments":null}},
          {"role":"function","name":"f","content":"r","tool_call_id":null}])");
  EXPECT_EQ(old[0]["tool_calls"][0]["function"]["arguments"], TemplateJson::object());
  EXPECT_EQ(old[1]["tool_call_id"], old[0]["tool_calls"][0]["id"]);
  const TemplateJson calls = read(
      R"([{"role":"assistant",
           "tool_calls":[{"id":"1","function":{"name":"f","arguments":null}}]}])",
      {.arguments_are_text = true});
  EXPECT_EQ(calls[0]["tool_calls"][0]["function"]["arguments"], "{}");
}

TEST(ChatMessages, OfAFunctionKeepTheIdentifierThatTheyName) {
  const TemplateJson read_messages =
      read(R"([{"role":"function","name":"f","content":"r","tool_call_id":"own"}])");
  EXPECT_EQ(read_messages[0]["tool_call_id"], "own");
}

// Of a turn that becomes two messages.
TEST(ChatMessages, ThoughtsStandBeforeWhatWasSaidAndNotAgainBeforeTheCall) {
  const TemplateJson turn = read(
      R"([{"role":"assistant","content":"a","reasoning_content":"hm",
           "tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}])",
      {.calls_stand_alone = true});
  ASSERT_EQ(turn.size(), 2U);
  EXPECT_EQ(turn[0]["reasoning_content"], "hm");
  EXPECT_FALSE(turn[0].contains("tool_calls"));
  EXPECT_FALSE(turn[1].contains("reasoning_content"));
}

}  // namespace
}  // namespace stemma
