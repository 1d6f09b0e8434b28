// Covers requests of /v1/messages: the chat that each comes to, and a refusal that names the path
// in the request where it is wrong.
#include "anthropic/message_request.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace stemma {
namespace {

ApiResult<CompletionRequest> read(const std::string& fields, MessageUse use = MessageUse::kAnswer) {
  RequestRules rules;
  rules.vocab_tokens = 100;
  return read_message_request("{" + fields + "}", rules, use);
}

CompletionRequest accepted(const std::string& fields) {
  const ApiResult<CompletionRequest> got = read(R"("max_tokens":9,)" + fields);
  const auto* const fault = std::get_if<ApiError>(&got);
  EXPECT_EQ(fault, nullptr) << fault->message;
  return fault == nullptr ? std::get<CompletionRequest>(got) : CompletionRequest();
}

CompletionRequest asked(const std::string& fields) {
  return accepted(fields + R"(,"messages":[{"role":"user","content":"hi"}])");
}

std::string fault_of(const std::string& fields) {
  const ApiResult<CompletionRequest> got = read(fields);
  const auto* const fault = std::get_if<ApiError>(&got);
  return fault == nullptr ? "accepted" : fault->param;
}

// Of a request that is right but for `fields`.
std::string fault_beside(const std::string& fields) {
  return fault_of(R"("max_tokens":9,"messages":[{"role":"user","content":"hi"}],)" + fields);
}

std::string fault_of_message(const std::string& message) {
  return fault_of(R"("max_tokens":9,"messages":[)" + message + "]");
}

TEST(MessageRequest, ATextIsWhatAUserSaysBehindTheSystemsWords) {
  const CompletionRequest request =
      accepted(R"("system":"Be kind.","messages":[{"role":"user","content":"hi"}])");
  EXPECT_EQ(request.kind, CompletionKind::kChat);
  EXPECT_EQ(request.shape, AnswerShape::kMessage);
  EXPECT_EQ(request.messages.dump(),
            R"([{"role":"system","content":"Be kind."},{"role":"user","content":"hi"}])");
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_TRUE(request.max_tokens_give_way);
  EXPECT_TRUE(request.add_generation_prompt);
}

TEST(MessageRequest, BlocksOfTextAreOneContent) {
  const CompletionRequest request = accepted(R"("system":[
      {"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}],
      "messages":[{"role":"user","content":[{"type":"text","text":"c"},
                                            {"type":"text","text":"d"}]}])");
  EXPECT_EQ(request.messages.dump(),
            R"([{"role":"system","content":"a\nb"},{"role":"user","content":"c\nd"}])");
}

TEST(MessageRequest, CallsAreOfTheAssistantAndWhatCameOfThemIsATools) {
  const CompletionRequest request = accepted(R"("messages":[
      {"role":"user","content":"Where?"},
      {"role":"assistant","content":[
          {"type":"thinking","thinking":"I look.","signature":""},
          {"type":"redacted_thinking","data":"x"},
          {"type":"text","text":"Wait."},
          {"type":"tool_use","id":"t1","name":"look","input":{"at":"sea"}},
          {"type":"tool_use","id":"t2","name":"go","input":{}}]},
      {"role":"user","content":[
          {"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a ship"}]},
          {"type":"tool_result","tool_use_id":"t2","content":"far","is_error":true},
          {"type":"text","text":"And now?"}]}])");
  EXPECT_EQ(request.messages.dump(),
            R"([{"role":"user","content":"Where?"},)"
            R"({"role":"assistant","content":"Wait.","reasoning_content":"I look.","tool_calls":[)"
            R"({"id":"t1","type":"function","function":{"name":"look","arguments":{"at":"sea"}}},)"
            R"({"id":"t2","type":"function","function":{"name":"go","arguments":{}}}]},)"
            R"({"role":"tool","content":"a ship","tool_call_id":"t1"},)"
            R"({"role":"tool","content":"far","tool_call_id":"t2"},)"
            R"({"role":"user","content":"And now?"}])");
}

// A double would be another number, and another text than the model wrote.
TEST(MessageRequest, InputsHaveTheirIntegersHoweverLongTheyAre) {
  const CompletionRequest request = accepted(R"("messages":[{"role":"assistant","content":[
      {"type":"tool_use","id":"t","name":"pay","input":{"wei":1500000000000000000001}}]}])");
  const auto chat =
      ChatTemplate::parse("{{ messages[0].tool_calls[0].function.arguments | tojson }}", "t.jinja");
  ASSERT_TRUE(chat.ok());
  const auto text = chat->render(request.messages, {});
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, R"({"wei": 1500000000000000000001})");
}

TEST(MessageRequest, ResultsKeepTheirPlaceAmongTexts) {
  const CompletionRequest request = accepted(R"("messages":[{"role":"user","content":[
      {"type":"text","text":"a"},{"type":"text","text":"b"},
      {"type":"tool_result","tool_use_id":"t"},{"type":"text","text":"c"}]}])");
  EXPECT_EQ(request.messages.dump(),
            R"([{"role":"user","content":"a\nb"},{"role":"tool","content":"","tool_call_id":"t"},)"
            R"({"role":"user","content":"c"}])");
}

// It would be another prompt each time, and nothing behind it would be found in a cache.
TEST(MessageRequest, TheLineOfBillsIsLeftOut) {
  const char* const kUser = R"(,"messages":[{"role":"user","content":"hi"}])";
  const auto system_of = [&](const std::string& system) {
    const TemplateJson messages = accepted(R"("system":)" + system + kUser).messages;
    return messages.size() == 2 ? messages[0]["content"].dump() : "none";
  };
  EXPECT_EQ(system_of(R"([{"type":"text","text":"x-anthropic-billing-header: cch=1;"},
                          {"type":"text","text":"You help."}])"),
            R"("You help.")");
  EXPECT_EQ(system_of(R"("x-anthropic-billing-header: cch=1;\nYou help.")"), R"("You help.")");
  EXPECT_EQ(system_of(R"("x-anthropic-billing-header: cch=1;")"), "none");
  EXPECT_EQ(system_of(R"("Say x-anthropic-billing-header:")"),
            R"("Say x-anthropic-billing-header:")");
  EXPECT_EQ(system_of(R"("")"), R"("")") << "said, if nothing";
}

TEST(MessageRequest, AnAssistantsTextAtTheEndIsHowTheAnswerBegins) {
  const std::string before = R"("messages":[{"role":"user","content":"hi"},)";
  const CompletionRequest goes_on =
      accepted(before + R"({"role":"assistant","content":"The answer is"}])");
  EXPECT_TRUE(goes_on.continue_final_message);
  EXPECT_FALSE(goes_on.add_generation_prompt);
  EXPECT_FALSE(accepted(before + R"({"role":"assistant","content":""}])").continue_final_message);
  EXPECT_FALSE(accepted(before + R"({"role":"assistant","content":[{"type":"text","text":""}]}])")
                   .continue_final_message);
  EXPECT_FALSE(accepted(before + R"({"role":"assistant","content":[{"type":"tool_use","id":"1",
                        "name":"f","input":{}}]}])")
                   .continue_final_message);
}

TEST(MessageRequest, ToolsAreFunctions) {
  const CompletionRequest request = asked(
      R"("tools":[{"name":"look","description":"Looks.","input_schema":{"type":"object"},
                   "cache_control":{"type":"ephemeral"}},
                  {"type":"custom","name":"go","strict":true,"input_schema":{}}])");
  EXPECT_EQ(request.tools.dump(),
            R"([{"type":"function","function":{"name":"look","description":"Looks.",)"
            R"("parameters":{"type":"object"}}},)"
            R"({"type":"function","function":{"name":"go","strict":true,"parameters":{}}}])");
}

TEST(MessageRequest, AChoiceOfToolsIsThatOfAChat) {
  const auto chosen = [](const std::string& choice) {
    return asked(R"("tools":[{"name":"go","input_schema":{}}],"tool_choice":)" + choice);
  };
  EXPECT_FALSE(chosen(R"({"type":"auto"})").tool_choice.forced);
  EXPECT_TRUE(chosen(R"({"type":"auto"})").calls_in_parallel);
  EXPECT_FALSE(chosen(R"({"type":"auto","disable_parallel_tool_use":true})").calls_in_parallel);
  EXPECT_TRUE(chosen(R"({"type":"any"})").tool_choice.forced);
  EXPECT_EQ(chosen(R"({"type":"tool","name":"go"})").tool_choice.name, "go");
  EXPECT_TRUE(chosen(R"({"type":"none"})").tools.is_null());
}

TEST(MessageRequest, WhetherToThinkIsToldToTheTemplate) {
  EXPECT_TRUE(asked(R"("thinking":null)").template_extra.is_null());
  const CompletionRequest thinks =
      asked(R"("thinking":{"type":"enabled","budget_tokens":1024,"display":"omitted"})");
  EXPECT_EQ(thinks.template_extra.dump(), R"({"enable_thinking":true,"thinking":true})");
  EXPECT_FALSE(thinks.tells_thoughts);
  EXPECT_EQ(thinks.thought_tokens_max, 1024);
  EXPECT_FALSE(asked(R"("thinking":{"type":"adaptive"})").thought_tokens_max.has_value());
  const CompletionRequest does_not = asked(R"("thinking":{"type":"disabled"})");
  EXPECT_EQ(does_not.template_extra.dump(), R"({"enable_thinking":false,"thinking":false})");
  EXPECT_TRUE(does_not.tells_thoughts);
}

TEST(MessageRequest, OtherFieldsAreThoseOfAChat) {
  const CompletionRequest request = asked(
      R"("model":"m","stop_sequences":["a","b"],"stream":true,"temperature":0.5,"top_k":3,
         "cache_salt":"s","cache_receipt":true,"metadata":{"user_id":"u"},"n":3,"logprobs":true)");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.cache.salt, "s");
  EXPECT_TRUE(request.wants_receipt);
  EXPECT_EQ(request.copies, 1) << "a message is one answer";
  EXPECT_FALSE(request.logprobs.has_value());
}

TEST(MessageRequest, WhatIsToBeKeptForAnHourIsRetained) {
  const std::string control = R"("cache_control":{"type":"ephemeral","ttl":"1h"})";
  EXPECT_EQ(asked(control).cache.retention, Retention::kLong);
  EXPECT_EQ(asked(R"("system":[{"type":"text","text":"s",)" + control + "}]").cache.retention,
            Retention::kLong);
  EXPECT_EQ(asked(R"("tools":[{"name":"f","input_schema":{},)" + control + "}]").cache.retention,
            Retention::kLong);
  EXPECT_EQ(asked(R"("cache_control":{"type":"ephemeral"})").cache.retention, Retention::kDefault);
}

TEST(MessageRequest, ASchemaIsTheFormOfTheAnswer) {
  const std::string format = R"({"type":"json_schema","schema":{"type":"object"}})";
  const CompletionRequest newer = asked(R"("output_config":{"format":)" + format + "}");
  EXPECT_EQ(newer.form.kind, TextForm::Kind::kSchema);
  EXPECT_TRUE(newer.form.path.starts_with("output_config.format")) << newer.form.path;
  const CompletionRequest older = asked(R"("output_format":)" + format);
  EXPECT_EQ(older.form.kind, TextForm::Kind::kSchema);
  EXPECT_TRUE(older.form.path.starts_with("output_format")) << older.form.path;
}

TEST(MessageRequest, WhatIsWrongIsToldByItsPathInTheRequest) {
  EXPECT_EQ(fault_of(R"("messages":[{"role":"user","content":"hi"}])"), "max_tokens");
  EXPECT_EQ(fault_of(R"("max_tokens":0)"), "max_tokens");
  EXPECT_EQ(fault_of(R"("max_tokens":9)"), "messages");
  EXPECT_EQ(fault_of(R"("max_tokens":9,"messages":[])"), "messages");
  EXPECT_EQ(fault_beside(R"("system":3)"), "system");
  EXPECT_EQ(fault_beside(R"("system":[{"type":"image"}])"), "system[0].type");
  EXPECT_EQ(fault_beside(R"("stop_sequences":[1])"), "stop_sequences[0]");
  EXPECT_EQ(fault_beside(R"("temperature":9)"), "temperature");
  EXPECT_EQ(fault_beside(R"("container":"c")"), "container");
  EXPECT_EQ(fault_beside(R"("thinking":{"type":"deep"})"), "thinking.type");
  EXPECT_EQ(fault_beside(R"("output_config":{"format":{"type":"xml"}})"),
            "output_config.format.type");
  EXPECT_EQ(fault_beside(R"("tools":[{"type":"bash_20250124","name":"bash"}])"), "tools[0].type");
  EXPECT_EQ(fault_beside(R"("tools":[{"name":"f"}])"), "tools[0].input_schema");
  EXPECT_EQ(fault_beside(R"("tool_choice":{"type":"tool"})"), "tool_choice.name");
  EXPECT_EQ(fault_beside(R"("tools":[{"name":"f","input_schema":{}}],
                            "tool_choice":{"type":"tool","name":"g"})"),
            "tool_choice.name");
}

TEST(MessageRequest, WhatIsWrongInAMessageIsToldByItsPath) {
  EXPECT_EQ(fault_of_message("3"), "messages[0]");
  EXPECT_EQ(fault_of_message(R"({"role":"tool","content":"x"})"), "messages[0].role");
  EXPECT_EQ(fault_of_message(R"({"role":"user"})"), "messages[0].content");
  EXPECT_EQ(fault_of_message(R"({"role":"user","content":7})"), "messages[0].content");
  EXPECT_EQ(fault_of_message(R"({"role":"assistant","content":7})"), "messages[0].content");
  EXPECT_EQ(fault_of_message(R"({"role":"user","content":["x"]})"), "messages[0].content[0]");
  const auto fault_of_part = [](const std::string& role, const std::string& part) {
    return fault_of_message(R"({"role":")" + role + R"(","content":[{"type":"text","text":"a"},)" +
                            part + "]}");
  };
  EXPECT_EQ(fault_of_part("user", R"({"type":"image","source":{}})"),
            "messages[0].content[1].type");
  EXPECT_EQ(fault_of_part("user", R"({"type":"tool_use"})"), "messages[0].content[1].type");
  EXPECT_EQ(fault_of_part("assistant", R"({"type":"tool_result"})"), "messages[0].content[1].type");
  EXPECT_EQ(fault_of_part("assistant", R"({"type":"tool_use","id":"1","name":"f"})"),
            "messages[0].content[1].input");
  EXPECT_EQ(fault_of_part("assistant", R"({"type":"thinking"})"),
            "messages[0].content[1].thinking");
  EXPECT_EQ(fault_of_part("user", R"({"type":"tool_result","content":"x"})"),
            "messages[0].content[1].tool_use_id");
  EXPECT_EQ(fault_of_part("user", R"({"type":"tool_result","tool_use_id":"1",
                                       "content":[{"type":"image"}]})"),
            "messages[0].content[1].content[0].type");
}

TEST(MessageRequest, CountingNeedsNoMaxTokens) {
  const auto counted = read(R"("messages":[{"role":"user","content":"hi"}])", MessageUse::kCount);
  EXPECT_TRUE(std::holds_alternative<CompletionRequest>(counted));
}

}  // namespace
}  // namespace stemma
