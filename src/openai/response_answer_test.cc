// Covers answers of /v1/responses: the golden shape of a body, and streams whose events, put
// together as clients do, are that body.
#include "openai/response_answer.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stemma {
namespace {

using ::testing::ElementsAre;

AnswerHead head() {
  AnswerHead head;
  head.id = "resp_1";
  head.model = "m";
  head.created_s = 7;
  return head;
}

constexpr AnswerUsage kUsage = {.prompt_tokens = 5, .completion_tokens = 2, .cached_tokens = 4};

AnswerPiece piece_of(std::string text, std::vector<ToolCall> calls = {},
                     std::string_view reason = "") {
  AnswerPiece piece;
  piece.text = std::move(text);
  piece.calls = std::move(calls);
  piece.finish_reason = reason;
  return piece;
}

// Events of a stream, each of which says in two places what it is, and has the next number.
std::vector<TemplateJson> events_of(const std::string& stream) {
  std::vector<TemplateJson> events;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    const std::size_t data = stream.find("\ndata: ", at);
    EXPECT_TRUE(stream.starts_with("event: ") && data < end && end != std::string::npos);
    const TemplateJson event = TemplateJson::parse(stream.substr(data + 7, end - data - 7));
    EXPECT_EQ(stream.substr(at + 7, data - at - 7), event["type"].get<std::string>());
    EXPECT_EQ(event["sequence_number"], events.size());
    events.push_back(event);
    at = end + 2;
  }
  return events;
}

std::vector<std::string> types_of(const std::vector<TemplateJson>& events) {
  std::vector<std::string> types;
  for (const TemplateJson& event : events) types.push_back(event["type"]);
  return types;
}

// The items that events of this type are of.
std::vector<std::int64_t> places_of(const std::vector<TemplateJson>& events,
                                    std::string_view type) {
  std::vector<std::int64_t> places;
  for (const TemplateJson& event : events) {
    if (event["type"] == type) places.push_back(event["output_index"]);
  }
  return places;
}

TEST(ResponseAnswer, OfAText) {
  EXPECT_EQ(
      response_body(head(), {{"tools", TemplateJson::array()}}, piece_of("hello", {}, "stop"),
                    kUsage, TemplateJson()),
      R"({"id":"resp_1","object":"response","created_at":7,"status":"completed","error":null,)"
      R"("incomplete_details":null,"model":"m","output":[{"type":"message","id":"msg_resp_1_0",)"
      R"("status":"completed","role":"assistant","content":[{"type":"output_text","text":"hello",)"
      R"("annotations":[],"logprobs":[]}]}],"previous_response_id":null,)"
      R"("reasoning":{"effort":null,"summary":null},"store":false,)"
      R"("text":{"format":{"type":"text"}},"truncation":"disabled","usage":{"input_tokens":5,)"
      R"("input_tokens_details":{"cached_tokens":4},)"
      R"("output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":7},)"
      R"("tools":[]})");
}

TEST(ResponseAnswer, OfCallsHasNoMessageWithoutAText) {
  const auto json = TemplateJson::parse(
      response_body(head(), TemplateJson::object(),
                    piece_of("", {{"look", R"({"at": "sea"})"}, {"go", "{}"}}, "tool_calls"), {},
                    TemplateJson()));
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(
      json["output"].dump(),
      R"([{"type":"function_call","id":"fc_resp_1_0","call_id":"call_resp_1_0","name":"look",)"
      R"("arguments":"{\"at\": \"sea\"}","status":"completed"},)"
      R"({"type":"function_call","id":"fc_resp_1_1","call_id":"call_resp_1_1","name":"go",)"
      R"("arguments":"{}","status":"completed"}])");
}

TEST(ResponseAnswer, ThatWasCutOffSaysWhy) {
  const auto json = TemplateJson::parse(
      response_body(head(), TemplateJson::object(), piece_of("so", {}, "length"), {}, {}));
  EXPECT_EQ(json["status"], "incomplete");
  EXPECT_EQ(json["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(json["output"][0]["status"], "incomplete");
}

TEST(ResponseStream, OfATextIsItsBodyInPieces) {
  ResponseStream stream(head(), TemplateJson::object());
  std::string said = stream.begin();
  said += stream.push(piece_of("he"));
  said += stream.push(piece_of(""));
  said += stream.push(piece_of("llo", {}, "stop"));
  said += stream.end(kUsage, TemplateJson());
  const auto events = events_of(said);
  EXPECT_THAT(
      types_of(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.delta", "response.output_text.done",
                  "response.content_part.done", "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[4]["delta"], "he");
  EXPECT_EQ(events[5]["delta"], "llo");
  EXPECT_EQ(events[4]["item_id"], events[2]["item"]["id"]);
  EXPECT_EQ(events[6]["text"], "hello");
  EXPECT_EQ(events.back()["response"].dump(),
            response_body(head(), TemplateJson::object(), piece_of("hello", {}, "stop"), kUsage,
                          TemplateJson()));
}

//   output   0: message "I look."   1: call   2: call   3: message "Done."
TEST(ResponseStream, CallsAndTextsAreItemsInTheirOrder) {
  ResponseStream stream(head(), TemplateJson::object());
  std::string said = stream.begin();
  said += stream.push(piece_of("I look.", {{"look", "{}"}}));
  AnswerPiece second = piece_of("", {{"go", "[]"}});
  second.first_call = 1;
  said += stream.push(second);
  said += stream.push(piece_of("Done.", {}, "tool_calls"));
  said += stream.end(kUsage, TemplateJson());
  const TemplateJson output = events_of(said).back()["response"]["output"];
  ASSERT_EQ(output.size(), 4U);
  EXPECT_EQ(output[0]["content"][0]["text"], "I look.");
  EXPECT_EQ(output[1]["call_id"], "call_resp_1_0");
  EXPECT_EQ(output[2]["call_id"], "call_resp_1_1");
  EXPECT_EQ(output[2]["arguments"], "[]");
  EXPECT_EQ(output[3]["content"][0]["text"], "Done.");
  std::int64_t places = 0;
  for (const TemplateJson& event : events_of(said)) {
    if (event["type"] != "response.output_item.done") continue;
    EXPECT_EQ(event["output_index"], places);
    EXPECT_EQ(event["item"], output[static_cast<std::size_t>(places++)]);
  }
  EXPECT_EQ(places, 4);
}

AnswerPiece thoughts_of(std::string thoughts, std::string text = "", std::string_view reason = "") {
  AnswerPiece piece = piece_of(std::move(text), {}, reason);
  piece.thoughts = std::move(thoughts);
  return piece;
}

//   output   0: reasoning "I look."   1: message "The sea."
TEST(ResponseStream, ThoughtsAreAnItemBeforeTheText) {
  ResponseStream stream(head(), TemplateJson::object());
  std::string said = stream.begin();
  said += stream.push(thoughts_of("I "));
  said += stream.push(thoughts_of("look.", "The", ""));
  said += stream.push(piece_of(" sea.", {}, "stop"));
  said += stream.end(kUsage, TemplateJson());
  const auto events = events_of(said);
  EXPECT_THAT(types_of(events),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.reasoning_text.delta",
                          "response.reasoning_text.delta", "response.reasoning_text.done",
                          "response.content_part.done", "response.output_item.done",
                          "response.output_item.added", "response.content_part.added",
                          "response.output_text.delta", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[6]["text"], "I look.");
  EXPECT_EQ(events[6]["item_id"], "rs_resp_1_0");
  EXPECT_EQ(events.back()["response"].dump(),
            response_body(head(), TemplateJson::object(),
                          thoughts_of("I look.", "The sea.", "stop"), kUsage, TemplateJson()));
  EXPECT_EQ(events.back()["response"]["output"][0].dump(),
            R"({"type":"reasoning","id":"rs_resp_1_0","status":"completed","summary":[],)"
            R"("content":[{"type":"reasoning_text","text":"I look."}]})");
}

//   output   0: message "Hm."   1: reasoning "I look."   2: message "The sea."
TEST(ResponseStream, ThoughtsBehindATextEndItsMessage) {
  ResponseStream stream(head(), TemplateJson::object());
  std::string said = stream.begin();
  said += stream.push(piece_of("Hm."));
  said += stream.push(thoughts_of("I look."));
  said += stream.push(piece_of("The sea.", {}, "stop"));
  said += stream.end(kUsage, TemplateJson());
  const TemplateJson output = events_of(said).back()["response"]["output"];
  ASSERT_EQ(output.size(), 3U);
  const std::vector<TemplateJson> events = events_of(said);
  EXPECT_THAT(places_of(events, "response.output_item.added"), ElementsAre(0, 1, 2));
  EXPECT_THAT(places_of(events, "response.output_item.done"), ElementsAre(0, 1, 2));
  EXPECT_EQ(output[0]["content"][0]["text"], "Hm.");
  EXPECT_EQ(output[1]["content"][0]["text"], "I look.");
  EXPECT_EQ(output[2]["content"][0]["text"], "The sea.");
}

TEST(ResponseStream, ThoughtsThatWereCutOffAreNotWhole) {
  ResponseStream stream(head(), TemplateJson::object());
  std::string said = stream.begin();
  said += stream.push(thoughts_of("I ", "", "length"));
  said += stream.end(kUsage, TemplateJson());
  const TemplateJson response = events_of(said).back()["response"];
  EXPECT_EQ(response.dump(),
            response_body(head(), TemplateJson::object(), thoughts_of("I ", "", "length"), kUsage,
                          TemplateJson()));
  EXPECT_EQ(response["output"].size(), 1U);
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
}

TEST(ResponseStream, LogprobsAreThoseOfTheText) {
  ResponseStream stream(head(), TemplateJson::object());
  std::string said = stream.begin();
  AnswerPiece thinks = thoughts_of("a");
  thinks.chances = {{.token = {.text = "a"}, .likeliest = {}, .is_thought = true}};
  AnswerPiece ends = thoughts_of("");
  ends.chances = {{.token = {.text = "</think>"}, .likeliest = {}, .is_thought = true}};
  AnswerPiece says = piece_of("b", {}, "stop");
  says.chances = {{.token = {.text = "b"}, .likeliest = {}}};
  for (const AnswerPiece& piece : {thinks, ends, says}) said += stream.push(piece);
  said += stream.end(kUsage, TemplateJson());
  AnswerPiece whole = thoughts_of("a", "b", "stop");
  whole.chances = {thinks.chances[0], ends.chances[0], says.chances[0]};
  const TemplateJson response = events_of(said).back()["response"];
  EXPECT_EQ(response["output"][1]["content"][0]["logprobs"].size(), 1U);
  EXPECT_EQ(response.dump(),
            response_body(head(), TemplateJson::object(), whole, kUsage, TemplateJson()));
}

TEST(ResponseStream, ThatSaysNothingHasAnEmptyMessage) {
  ResponseStream stream(head(), TemplateJson::object());
  std::string said = stream.begin();
  said += stream.push(piece_of("", {}, "stop"));
  said += stream.end(kUsage, TemplateJson());
  EXPECT_EQ(events_of(said).back()["response"]["output"][0]["content"][0]["text"], "");
}

TEST(ResponseStream, TokensHaveTheirLogprobsInPiecesAndWhole) {
  ResponseStream stream(head(), TemplateJson::object());
  std::string said = stream.begin();
  for (const char* const text : {"a", "b"}) {
    AnswerPiece piece = piece_of(text);
    piece.chances = {{.token = {.text = text, .logprob = -1}, .likeliest = {}}};
    said += stream.push(piece);
  }
  said += stream.end(kUsage, TemplateJson());
  const auto events = events_of(said);
  EXPECT_EQ(events[5]["logprobs"][0]["token"], "b");
  EXPECT_EQ(events.back()["response"]["output"][0]["content"][0]["logprobs"].size(), 2U);
}

TEST(ResponseStream, ThatFailsSaysWhatItHadAndWhy) {
  ResponseStream stream(head(), TemplateJson::object());
  std::string said = stream.begin();
  said += stream.push(piece_of("", {{"go", "{}"}}));
  said += stream.fail(server_error("the step failed"));
  const TemplateJson response = events_of(said).back()["response"];
  EXPECT_EQ(response["status"], "failed");
  EXPECT_EQ(response["error"]["message"], "the step failed");
  EXPECT_EQ(response["output"].size(), 1U);
}

}  // namespace
}  // namespace stemma
