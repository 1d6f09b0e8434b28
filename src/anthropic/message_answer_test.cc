// Covers answers of /v1/messages: the golden shape of a body, and streams whose events, put
// together as clients do, are that body.
#include "anthropic/message_answer.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "anthropic/message_error.h"
#include "openai/ordered_answer_fixture.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kMaxTokens = 9;

AnswerHead head() {
  AnswerHead head;
  head.id = "msg_1";
  head.model = "m";
  return head;
}

AnswerPiece thoughts_of(std::string thoughts) {
  AnswerPiece piece;
  piece.thoughts = std::move(thoughts);
  return piece;
}

// The whole answer that comes in these pieces.
std::string body_of(const std::vector<AnswerPiece>& pieces, const AnswerUsage& usage = kUsage,
                    const TemplateJson& receipt = {}) {
  MessageAnswer whole(head(), kMaxTokens, /*streams=*/false);
  EXPECT_EQ(whole.begin(usage), "");
  for (const AnswerPiece& piece : pieces) EXPECT_EQ(whole.push(piece), "");
  return whole.end(usage, receipt);
}

std::vector<TemplateJson> streamed(const std::vector<AnswerPiece>& pieces,
                                   const AnswerUsage& usage = kUsage,
                                   const TemplateJson& receipt = {}) {
  MessageAnswer answer(head(), kMaxTokens, /*streams=*/true);
  AnswerUsage of_prompt = usage;
  of_prompt.completion_tokens = 0;
  std::string stream = answer.begin(of_prompt);
  for (const AnswerPiece& piece : pieces) stream += answer.push(piece);
  return named_events_of(stream + answer.end(usage, receipt));
}

// What a client puts together of a stream.
TemplateJson put_together(const std::vector<TemplateJson>& events) {
  TemplateJson message;
  std::string input;
  for (const TemplateJson& event : events) {
    const std::string type = event["type"];
    if (type == "message_start") {
      message = event["message"];
    } else if (type == "content_block_start") {
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      input.clear();
    } else if (type == "content_block_delta") {
      TemplateJson& part = message["content"].back();
      const TemplateJson& delta = event["delta"];
      for (const char* const name : {"text", "thinking"}) {
        if (delta.contains(name))
          part[name] = part[name].get<std::string>() + delta[name].get<std::string>();
      }
      if (delta.contains("partial_json")) input += delta["partial_json"].get<std::string>();
      if (part["type"] == "tool_use") part["input"] = TemplateJson::parse(input);
    } else if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"].update(event["usage"]);
    }
  }
  return message;
}

TEST(MessageAnswer, OfAText) {
  EXPECT_EQ(body_of({piece_of("hel"), piece_of("lo", {}, "stop")}),
            R"({"id":"msg_1","type":"message","role":"assistant","model":"m",)"
            R"("content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn",)"
            R"("stop_sequence":null,"usage":{"input_tokens":1,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":4,"output_tokens":2}})");
}

TEST(MessageAnswer, OfNothingHasNoBlocks) {
  const TemplateJson body = TemplateJson::parse(body_of({piece_of("", {}, "stop")}));
  EXPECT_TRUE(body["content"].empty());
}

// Arguments are what the model wrote, whatever repeats in them, and however long their numbers are.
TEST(MessageAnswer, OfThoughtsTextsAndCallsInTheirOrder) {
  AnswerPiece calls = piece_of("I look.And go.", {{"look", R"({"at": 123456789012345678901})"}});
  calls.call_places = {7};
  AnswerPiece last = piece_of("", {{"go", "{}"}}, "tool_calls");
  last.first_call = 1;
  const std::string body = body_of({thoughts_of("Hm"), thoughts_of("."), calls, last});
  EXPECT_NE(body.find(R"("content":[{"type":"thinking","thinking":"Hm.","signature":""},)"
                      R"({"type":"text","text":"I look."},)"
                      R"({"type":"tool_use","id":"toolu_msg_1_0","name":"look",)"
                      R"("input":{"at": 123456789012345678901}},)"
                      R"({"type":"text","text":"And go."},)"
                      R"({"type":"tool_use","id":"toolu_msg_1_1","name":"go","input":{}}])"),
            std::string::npos)
      << body;
  EXPECT_EQ(TemplateJson::parse(body)["stop_reason"], "tool_use");
}

TEST(MessageAnswer, CallsAreNamedShortWhereTemplatesWantThat) {
  AnswerHead shortly = head();
  shortly.short_call_ids = true;
  MessageAnswer answer(shortly, kMaxTokens, /*streams=*/false);
  answer.begin({});
  answer.push(piece_of("", {{"go", "{}"}}, "tool_calls"));
  const TemplateJson body = TemplateJson::parse(answer.end({}, {}));
  EXPECT_EQ(body["content"][0]["id"].get<std::string>().size(), 9U);
}

TEST(MessageAnswer, SaysWhyItStopped) {
  const auto stop = [](std::string_view reason, StopReason by, std::int64_t tokens) {
    AnswerPiece last = piece_of("x", {}, reason);
    last.stop_reason = std::move(by);
    AnswerUsage usage;
    usage.completion_tokens = tokens;
    const TemplateJson body = TemplateJson::parse(body_of({last}, usage));
    return body["stop_reason"].get<std::string>() + " " + body["stop_sequence"].dump();
  };
  EXPECT_EQ(stop("stop", {}, 2), "end_turn null");
  EXPECT_EQ(stop("stop", "\n\n", 2), R"(stop_sequence "\n\n")");
  EXPECT_EQ(stop("stop", TokenId{3}, 2), "end_turn null");
  EXPECT_EQ(stop("length", {}, kMaxTokens), "max_tokens null");
  EXPECT_EQ(stop("length", {}, kMaxTokens - 1), "model_context_window_exceeded null");
  EXPECT_EQ(stop("abort", {}, 2), "pause_turn null");
}

TEST(MessageAnswer, AStreamTellsOfAPartAtATime) {
  const auto events = streamed(
      {thoughts_of("Hm."), piece_of("I "), piece_of("look.", {{"go", "{}"}}, "tool_calls")});
  EXPECT_THAT(
      types_of(events),
      ElementsAre("message_start", "content_block_start", "content_block_delta",
                  "content_block_stop", "content_block_start", "content_block_delta",
                  "content_block_delta", "content_block_stop", "content_block_start",
                  "content_block_delta", "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(events[0]["message"]["usage"]["cache_read_input_tokens"], 4);
  EXPECT_EQ(events[0]["message"]["usage"]["output_tokens"], 0);
  EXPECT_TRUE(events[0]["message"]["stop_reason"].is_null());
}

TEST(MessageAnswer, AStreamPutTogetherIsTheWhole) {
  AnswerPiece between = piece_of("I look.And go.", {{"look", R"({"at": "sea"})"}});
  between.call_places = {7};
  AnswerPiece last = piece_of("Well.", {}, "stop");
  last.stop_reason = "X";
  const std::vector<AnswerPiece> pieces = {thoughts_of("Hm"), thoughts_of("."), piece_of("So: "),
                                           between, last};
  const AnswerUsage usage = {
      .prompt_tokens = 5, .completion_tokens = 2, .cached_tokens = 4, .thought_tokens = 1};
  EXPECT_EQ(put_together(streamed(pieces, usage)), TemplateJson::parse(body_of(pieces, usage)));
}

TEST(MessageAnswer, ReceiptsAreBesideTheUsage) {
  const TemplateJson receipt = {{"computed", 1}};
  EXPECT_EQ(TemplateJson::parse(body_of({}, kUsage, receipt))["cache_receipt"], receipt);
  const auto events = streamed({}, kUsage, receipt);
  EXPECT_EQ(events[events.size() - 2]["cache_receipt"], receipt);
}

TEST(MessageAnswer, AFaultInAStreamIsAnEventOfItsOwn) {
  MessageAnswer answer(head(), kMaxTokens, /*streams=*/true);
  answer.begin({});
  const auto events = named_events_of(answer.fail(server_error("the step failed")));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].dump(),
            R"({"type":"error","error":{"type":"api_error","message":"the step failed"}})");
}

TEST(MessageErrors, HaveAnthropicsTypes) {
  const auto type_of = [](const ApiError& error) {
    return TemplateJson::parse(message_error_body(error, "req-1"))["error"]["type"]
        .get<std::string>();
  };
  EXPECT_EQ(type_of(field_error("max_tokens", "missing")), "invalid_request_error");
  EXPECT_EQ(type_of(not_allowed("a key is wanted")), "authentication_error");
  EXPECT_EQ(type_of(forbidden("no")), "permission_error");
  EXPECT_EQ(type_of(not_found("no such model")), "not_found_error");
  EXPECT_EQ(type_of(too_large("a body")), "request_too_large");
  EXPECT_EQ(type_of(overloaded("full")), "rate_limit_error");
  EXPECT_EQ(type_of(server_error("broken")), "api_error");
  EXPECT_EQ(message_error_body(not_found("gone"), "req-1"),
            R"({"type":"error","error":{"type":"not_found_error","message":"gone"},)"
            R"("request_id":"req-1"})");
}

}  // namespace
}  // namespace stemma
