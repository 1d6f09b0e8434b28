// Covers requests of /v1/responses: the chat that each comes to, and a refusal that names the path
// in the request where it is wrong.
#include "openai/response_request.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/heap_counter.h"

namespace stemma {
namespace {

ApiResult<CompletionRequest> read(const std::string& fields) {
  RequestRules rules;
  rules.vocab_tokens = 100;
  return read_response_request("{" + fields + "}", rules);
}

CompletionRequest accepted(const std::string& fields) {
  const ApiResult<CompletionRequest> got = read(fields);
  const auto* const fault = std::get_if<ApiError>(&got);
  EXPECT_EQ(fault, nullptr) << fault->message;
  return fault == nullptr ? std::get<CompletionRequest>(got) : CompletionRequest();
}

std::string fault_of(const std::string& fields) {
  const ApiResult<CompletionRequest> got = read(fields);
  const auto* const fault = std::get_if<ApiError>(&got);
  return fault == nullptr ? "accepted" : fault->param;
}

TEST(ResponseRequest, ATextIsWhatAUserSaysBehindTheInstructions) {
  const CompletionRequest request = accepted(R"("input":"hi","instructions":"Be kind.")");
  EXPECT_EQ(request.kind, CompletionKind::kChat);
  EXPECT_EQ(request.messages.dump(),
            R"([{"role":"system","content":"Be kind."},{"role":"user","content":"hi"}])");
  EXPECT_FALSE(request.max_tokens.has_value());
}

TEST(ResponseRequest, ItemsAreMessagesInTheirOrder) {
  const CompletionRequest request = accepted(R"("input":[
      {"role":"developer","content":"d"},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},
                                                 {"type":"input_text","text":"b"}]},
      {"type":"reasoning","summary":[]},
      {"type":"message","id":"msg_1","role":"assistant",
       "content":[{"type":"output_text","text":"c","annotations":[]}]}])");
  EXPECT_EQ(request.messages.dump(),
            R"([{"role":"system","content":"d"},{"role":"user","content":"a\nb"},)"
            R"({"role":"assistant","content":"c"}])");
}

TEST(ResponseRequest, ThoughtsAreOfTheMessageBehindThem) {
  const CompletionRequest request = accepted(R"("input":[
      {"role":"user","content":"u"},
      {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"I look."}]},
      {"role":"assistant","content":"The sea."},
      {"role":"user","content":"v"},
      {"type":"reasoning","content":[{"type":"reasoning_text","text":"And go."}]},
      {"type":"function_call","call_id":"c1","name":"go","arguments":"{}"}])");
  ASSERT_EQ(request.messages.size(), 4U);
  EXPECT_EQ(request.messages[1]["reasoning_content"], "I look.");
  EXPECT_FALSE(request.messages[2].contains("reasoning_content"));
  EXPECT_EQ(request.messages[3]["reasoning_content"], "And go.");
}

// Of a turn that was cut off, or whose thoughts are all that was sent back.
TEST(ResponseRequest, ThoughtsThatNothingCameOfAreOfNoLaterTurn) {
  const CompletionRequest request = accepted(R"("input":[
      {"role":"user","content":"u"},
      {"type":"reasoning","content":[{"type":"reasoning_text","text":"I look."}]},
      {"role":"user","content":"v"},
      {"type":"reasoning","content":[{"type":"reasoning_text","text":"And go."}]},
      {"role":"assistant","content":"So."},
      {"type":"reasoning","content":[{"type":"reasoning_text","text":"Where?"}]},
      {"type":"function_call_output","call_id":"c1","output":"sea"},
      {"role":"assistant","content":"There."}])");
  ASSERT_EQ(request.messages.size(), 5U);
  EXPECT_EQ(request.messages[2]["reasoning_content"], "And go.");
  EXPECT_FALSE(request.messages[4].contains("reasoning_content"));
}

TEST(ResponseRequest, ThoughtsBeforeACallAreOfTheMessageThatItGoesOnFrom) {
  const CompletionRequest request = accepted(R"("input":[
      {"role":"user","content":"u"},
      {"role":"assistant","content":"I look."},
      {"type":"reasoning","content":[{"type":"reasoning_text","text":"At the sea."}]},
      {"type":"function_call","call_id":"c1","name":"look","arguments":"{}"},
      {"type":"reasoning","content":[{"type":"reasoning_text","text":"And the land."}]},
      {"type":"function_call","call_id":"c2","name":"look","arguments":"{}"},
      {"type":"function_call_output","call_id":"c1","output":"sea"},
      {"type":"function_call_output","call_id":"c2","output":"land"},
      {"role":"assistant","content":"So."}])");
  ASSERT_EQ(request.messages.size(), 5U);
  EXPECT_EQ(request.messages[1]["reasoning_content"], "At the sea.\nAnd the land.");
  EXPECT_EQ(request.messages[1]["tool_calls"].size(), 2U);
  EXPECT_FALSE(request.messages[4].contains("reasoning_content"));
}

// An agent thinks before each of its calls, and all of a turn are one message.
TEST(ResponseRequest, ThoughtsOfOneTurnAreJoinedOnce) {
  const auto bytes_of_reading = [](int pairs) {
    std::string input = R"({"role":"user","content":"u"})";
    for (int i = 0; i < pairs; ++i) {
      input += R"(,{"type":"reasoning","content":[{"type":"reasoning_text","text":")" +
               std::string(100, 'a') + R"("}]},)" +
               R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"})";
    }
    const std::int64_t before = heap_bytes;
    const CompletionRequest request = accepted(R"("input":[)" + input + "]");
    const std::int64_t bytes = heap_bytes - before;
    EXPECT_EQ(request.messages.back()["reasoning_content"].get_ref<const std::string&>().size(),
              static_cast<std::size_t>(101 * pairs - 1));
    return bytes;
  };
  const std::int64_t bytes = bytes_of_reading(4000);
  EXPECT_LT(bytes_of_reading(8000), 3 * bytes) << "twice as much of all but what doubles";
}

// As a chat has them: what an assistant says and calls in one turn is one message.
TEST(ResponseRequest, CallsOfOneTurnAreOneMessage) {
  const CompletionRequest request = accepted(R"("input":[
      {"role":"user","content":"u"},
      {"type":"function_call","call_id":"c1","name":"look","arguments":"{\"at\":1}"},
      {"type":"function_call","call_id":"c2","name":"go","arguments":""},
      {"type":"function_call_output","call_id":"c1","output":"sea"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"x"}]},
      {"role":"assistant","content":"so"},
      {"type":"function_call","call_id":"c3","name":"go","arguments":"{}"}])");
  const TemplateJson& messages = request.messages;
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[1]["tool_calls"].dump(),
            R"([{"id":"c1","type":"function","function":{"name":"look","arguments":{"at":1}}},)"
            R"({"id":"c2","type":"function","function":{"name":"go","arguments":{}}}])");
  EXPECT_EQ(messages[2].dump(), R"({"role":"tool","content":"sea","tool_call_id":"c1"})");
  EXPECT_EQ(messages[3]["content"], "x");
  EXPECT_EQ(messages[4]["content"], "so");
  EXPECT_EQ(messages[4]["tool_calls"][0]["id"], "c3");
}

TEST(ResponseRequest, FieldsOfChatsMeanTheSame) {
  const CompletionRequest request = accepted(
      R"("input":"x","model":"m","max_output_tokens":9,"temperature":0.5,"stream":true,"seed":3,
         "cache_salt":"s","prompt_cache_retention":"24h","parallel_tool_calls":false,
         "include":["message.output_text.logprobs"],"top_logprobs":2,
         "tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}])");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.sampling.seed, 3U);
  EXPECT_EQ(request.cache.salt, "s");
  EXPECT_EQ(request.cache.retention, Retention::kLong);
  EXPECT_FALSE(request.calls_in_parallel);
  EXPECT_EQ(request.logprobs, 2);
  EXPECT_EQ(request.tools.dump(), R"([{"type":"function","function":{"name":"f",)"
                                  R"("parameters":{"type":"object"},"strict":true}}])");
}

TEST(ResponseRequest, WhatChatsCallOtherwiseIsNotRead) {
  const CompletionRequest request = accepted(
      R"("input":"x","messages":[],"max_tokens":3,"n":4,"logprobs":true,"top_logprobs":2,
         "stream_options":{"include_obfuscation":false},"store":true,"user":"u","metadata":{})");
  EXPECT_EQ(request.messages.size(), 1U);
  EXPECT_FALSE(request.max_tokens.has_value());
  EXPECT_EQ(request.copies, 1);
  EXPECT_FALSE(request.logprobs.has_value()) << "only include asks for them";
}

TemplateJson repeated_of(const CompletionRequest& request) {
  return TemplateJson::parse(request.response);
}

TEST(ResponseRequest, AnAnswerRepeatsWhatWasAsked) {
  EXPECT_EQ(
      accepted(R"("input":"x","instructions":"i","metadata":{"k":"v"},"temperature":0.5)").response,
      R"({"instructions":"i","max_output_tokens":null,"metadata":{"k":"v"},)"
      R"("parallel_tool_calls":true,"temperature":0.5,"text":{"format":{"type":"text"}},)"
      R"("tool_choice":"auto","tools":[],"top_p":1.0})");
}

TEST(ResponseRequest, ToolsArePrintedWithTheIntegersThatTheyWereWrittenWith) {
  const CompletionRequest request =
      accepted(R"("input":"x","tools":[{"type":"function","name":"f",)"
               R"("parameters":{"const":36893488147419103232}}])");
  const std::string_view kNumber = "36893488147419103232";
  const auto printed = ChatTemplate::parse("{{ tools[0].function.parameters.const }}", "t.jinja");
  ASSERT_TRUE(printed.ok());
  EXPECT_EQ(*printed->render(request.messages, render_options_of(request)), kNumber);
  EXPECT_EQ(TemplateJson::parse(request.response)["tools"][0]["parameters"]["const"],
            36893488147419103232.0);
}

// Not as floats, nor as the nearest ones that are sampled with.
TEST(ResponseRequest, AnAnswerRepeatsNumbersAsTheyWereWritten) {
  const TemplateJson given = repeated_of(accepted(R"("input":"x","temperature":0.7,"top_p":0)"));
  EXPECT_EQ(given["temperature"].dump(), "0.7");
  EXPECT_EQ(given["top_p"].dump(), "0");
  RequestRules rules;
  rules.defaults.temperature = 0.6F;
  rules.defaults.top_p = 0.95F;
  const auto usual = read_response_request(R"({"input":"x","top_p":null})", rules);
  ASSERT_TRUE(std::holds_alternative<CompletionRequest>(usual));
  const TemplateJson repeated = repeated_of(std::get<CompletionRequest>(usual));
  EXPECT_EQ(repeated["temperature"].dump(), "0.6");
  EXPECT_EQ(repeated["top_p"].dump(), "0.95");
}

// Clients' types have a format wherever they have what a text is to be.
TEST(ResponseRequest, AnAnswerSaysWhatFormItsTextHas) {
  const auto form = [](const std::string& text) {
    return repeated_of(accepted(R"("input":"x","text":)" + text))["text"].dump();
  };
  EXPECT_EQ(form("null"), R"({"format":{"type":"text"}})");
  EXPECT_EQ(form(R"({"format":null})"), R"({"format":{"type":"text"}})");
  EXPECT_EQ(form(R"({"verbosity":"low"})"), R"({"verbosity":"low","format":{"type":"text"}})");
  EXPECT_EQ(form(R"({"format":{"type":"json_object"}})"), R"({"format":{"type":"json_object"}})");
}

std::string pairs(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":"v")";
  }
  return R"("input":"x","metadata":{)" + text + "}";
}

// It is kept while the request waits: OpenAI's bounds, in characters.
TEST(ResponseRequest, MetadataIsBounded) {
  EXPECT_EQ(fault_of(pairs(16)), "accepted");
  EXPECT_EQ(fault_of(pairs(17)), "metadata");
  const auto characters = [](std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += "\xC3\xA9";
    return text;
  };
  const auto fault = [](const std::string& key, const std::string& value) {
    return fault_of(R"("input":"x","metadata":{")" + key + "\":" + value + "}");
  };
  EXPECT_EQ(fault(characters(64), "\"" + characters(512) + "\""), "accepted");
  EXPECT_EQ(fault("k", "\"" + characters(513) + "\""), "metadata.k");
  EXPECT_EQ(fault(std::string(65, 'k'), R"("v")"), "metadata");
  EXPECT_EQ(fault("k", "7"), "metadata.k");
  EXPECT_EQ(fault_of(R"("input":"x","metadata":[])"), "metadata");
}

TEST(ResponseRequest, WhatAnAnswerRepeatsIsBounded) {
  const std::string much(600'000, 'm');
  const std::string more(900'000, 'm');
  const auto fault = [](const std::string& instructions, const std::string& description) {
    return fault_of(R"("input":"x","instructions":")" + instructions +
                    R"(","tools":[{"type":"function","name":"f","description":")" + description +
                    "\"}]");
  };
  EXPECT_EQ(fault("i", more), "accepted");
  EXPECT_EQ(fault(much, more), "tools");
  EXPECT_EQ(fault(more, much), "instructions");
  EXPECT_EQ(fault_of(R"("input":[{"role":"system","content":")" + more + more + R"("}])"),
            "accepted")
      << "it is not repeated";
}

TEST(ResponseRequest, RefusalsNameTheFieldOfTheRequest) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("model":"m")", "input"},
      {R"("input":7)", "input"},
      {R"("instructions":"i","input":[])", "input"},
      {R"("input":[{"type":"reasoning","summary":[]}])", "input"},
      {R"("input":[7])", "input[0]"},
      {R"("input":[{"role":"user"}])", "input[0].content"},
      {R"("input":[{"content":"x"}])", "input[0].role"},
      {R"("instructions":"i","input":[{"role":"user","content":"x"},{"role":"boss","content":""}])",
       "input[1].role"},
      {R"("input":[{"role":"user","content":[{"type":"input_image"}]}])",
       "input[0].content[0].type"},
      {R"("input":[{"type":"item_reference","id":"x"}])", "input[0].type"},
      {R"("input":[{"type":"function_call","call_id":"c"}])", "input[0].name"},
      {R"("input":[{"type":"function_call","name":"f"}])", "input[0].call_id"},
      {R"("input":[{"type":"function_call_output","call_id":"c"}])", "input[0].output"},
      {R"("input":"x","instructions":7)", "instructions"},
      {R"("input":"x","max_output_tokens":0)", "max_output_tokens"},
      {R"("input":"x","previous_response_id":"r")", "previous_response_id"},
      {R"("input":"x","conversation":"c")", "conversation"},
      {R"("input":"x","background":true)", "background"},
      {R"("input":"x","truncation":"auto")", "truncation"},
      {R"("input":"x","text":{"format":{"type":"xml"}})", "text.format.type"},
      {R"("input":"x","text":{"format":{"type":"json_schema","schema":1}})", "text.format.schema"},
      {R"("input":"x","text":{"format":{"type":"json_schema","strict":1}})", "text.format.strict"},
      {R"("input":"x","tools":[{"type":"web_search"}])", "tools[0].type"},
      {R"("input":"x","tools":[{"type":"function"}])", "tools[0].name"},
      {R"("input":"x","tool_choice":"required")", "tool_choice"},
      {R"("input":"x","tools":[{"type":"function","name":"f"}],
          "tool_choice":{"type":"function","name":"g"})",
       "tool_choice.name"},
      {R"("input":"x","temperature":3)", "temperature"},
  };
  for (const auto& [fields, param] : cases) EXPECT_EQ(fault_of(fields), param) << fields;
  EXPECT_EQ(fault_of(R"("input":"x","previous_response_id":null,"background":false,
                        "truncation":"disabled","text":{"format":{"type":"text"}})"),
            "accepted");
}

}  // namespace
}  // namespace stemma
