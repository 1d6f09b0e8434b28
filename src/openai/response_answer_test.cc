// Covers answers of /v1/responses: the golden shape of a body, and streams whose events, put
// together as clients do, are that body.
#include "openai/response_answer.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "openai/call_ids.h"
#include "openai/ordered_answer_fixture.h"

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

// Each event of a stream has the next number, too.
std::vector<TemplateJson> events_of(const std::string& stream) {
  const std::vector<TemplateJson> events = named_events_of(stream);
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  return events;
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

// The whole answer that comes in these pieces.
std::string body_of(const std::vector<AnswerPiece>& pieces, const AnswerUsage& usage = {},
                    const std::string& request = "{}") {
  ResponseAnswer whole(head(), request, /*streams=*/false);
  EXPECT_EQ(whole.begin({}), "");
  for (const AnswerPiece& piece : pieces) EXPECT_EQ(whole.push(piece), "");
  return whole.end(usage, TemplateJson());
}

TEST(ResponseAnswer, OfAText) {
  EXPECT_EQ(
      body_of({piece_of("hello", {}, "stop")}, kUsage, R"({"tools":[]})"),
      R"({"id":"resp_1","object":"response","created_at":7,"status":"completed","error":null,)"
      R"("incomplete_details":null,"model":"m","output":[{"type":"message","id":"msg_resp_1_0",)"
      R"("status":"completed","role":"assistant","content":[{"type":"output_text","text":"hello",)"
      R"("annotations":[],"logprobs":[]}]}],"previous_response_id":null,)"
      R"("reasoning":{"effort":null,"summary":null},"store":false,)"
      R"("truncation":"disabled","usage":{"input_tokens":5,)"
      R"("input_tokens_details":{"cached_tokens":4},)"
      R"("output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":7},)"
      R"("tools":[]})");
}

TEST(ResponseStream, RepeatsWhatWasAskedInEachEventOfTheWholeAnswer) {
  ResponseAnswer stream(head(), R"({"metadata":{"k":"v"}})", /*streams=*/true);
  std::string told = stream.begin({});
  told += stream.push(piece_of("hello", {}, "stop"));
  told += stream.end(kUsage, TemplateJson());
  const auto events = events_of(told);
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}, events.size() - 1}) {
    EXPECT_EQ(events[at]["response"]["metadata"].dump(), R"({"k":"v"})") << at;
  }
  ResponseAnswer failed(head(), R"({"metadata":{"k":"v"}})", /*streams=*/true);
  EXPECT_EQ(events_of(failed.fail({}))[0]["response"]["metadata"]["k"], "v");
}

TEST(ResponseAnswer, OfCallsHasNoMessageWithoutAText) {
  const auto json = TemplateJson::parse(
      body_of({piece_of("", {{"look", R"({"at": "sea"})"}, {"go", "{}"}}, "tool_calls")}));
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(
      json["output"].dump(),
      R"([{"type":"function_call","id":"fc_resp_1_0","call_id":"call_resp_1_0","name":"look",)"
      R"("arguments":"{\"at\": \"sea\"}","status":"completed"},)"
      R"({"type":"function_call","id":"fc_resp_1_1","call_id":"call_resp_1_1","name":"go",)"
      R"("arguments":"{}","status":"completed"}])");
}

TEST(ResponseAnswer, ThatWasCutOffSaysWhy) {
  const auto json = TemplateJson::parse(body_of({piece_of("so", {}, "length")}));
  EXPECT_EQ(json["status"], "incomplete");
  EXPECT_EQ(json["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(json["output"][0]["status"], "incomplete");
}

TEST(ResponseAnswer, ThatWasGivenUpSaysSo) {
  const auto json = TemplateJson::parse(body_of({piece_of("so", {}, "abort")}));
  EXPECT_EQ(json["status"], "incomplete");
  EXPECT_EQ(json["incomplete_details"]["reason"], "abort");
}

TEST(ResponseAnswer, CallsHaveIdentifiersThatTheModelsTemplateTakes) {
  AnswerHead wants_short = head();
  wants_short.short_call_ids = true;
  ResponseAnswer whole(wants_short, "{}", /*streams=*/false);
  whole.push(piece_of("", {{"go", "{}"}}, "tool_calls"));
  const auto json = TemplateJson::parse(whole.end({}, TemplateJson()));
  EXPECT_EQ(json["output"][0]["call_id"], short_call_id("call_resp_1_0"));
}

TEST(ResponseStream, OfATextIsItsBodyInPieces) {
  ResponseAnswer stream(head(), "{}", /*streams=*/true);
  std::string said = stream.begin({});
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
  EXPECT_EQ(events.back()["response"].dump(), body_of({piece_of("hello", {}, "stop")}, kUsage));
}

//   output   0: message "I look."   1: call   2: call   3: message "Done."
TEST(ResponseStream, CallsAndTextsAreItemsInTheirOrder) {
  ResponseAnswer stream(head(), "{}", /*streams=*/true);
  std::string said = stream.begin({});
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

// The items of an answer that comes in these pieces: the same streamed and whole, each told of
// once, in its place.
TemplateJson output_of(const std::vector<AnswerPiece>& pieces) {
  ResponseAnswer stream(head(), "{}", /*streams=*/true);
  std::string said = stream.begin({});
  for (const AnswerPiece& piece : pieces) said += stream.push(piece);
  said += stream.end({}, TemplateJson());
  const std::vector<TemplateJson> events = events_of(said);
  EXPECT_EQ(events.back()["response"].dump(), body_of(pieces));
  TemplateJson output = TemplateJson::array();
  for (const TemplateJson& event : events) {
    if (event["type"] == "response.output_item.done") output.push_back(event["item"]);
  }
  EXPECT_EQ(events.back()["response"]["output"], output);
  return output;
}

// What an item says, or calls, and whether it is whole.
std::string told(const TemplateJson& item) {
  const TemplateJson says = item.contains("name") ? item["name"] : item["content"][0]["text"];
  return item["type"].get<std::string>() + " " + says.get<std::string>() + " " +
         item["status"].get<std::string>();
}

std::vector<std::string> all_told(const TemplateJson& output) {
  std::vector<std::string> items;
  for (const TemplateJson& item : output) items.push_back(told(item));
  return items;
}

TEST(ResponseAnswer, APieceMaySayThingsBetweenItsCalls) {
  AnswerPiece piece = piece_of("onetwo", {{"look", "{}"}, {"go", "{}"}}, "tool_calls");
  piece.call_places = {3, 6};
  EXPECT_THAT(all_told(output_of({piece})),
              ElementsAre("message one completed", "function_call look completed",
                          "message two completed", "function_call go completed"));
  piece.call_places = {0, 3};
  EXPECT_THAT(all_told(output_of({piece})),
              ElementsAre("function_call look completed", "message one completed",
                          "function_call go completed", "message two completed"));
}

// What something follows is whole.
TEST(ResponseAnswer, OnlyItsLastItemWasCutOff) {
  AnswerPiece last = piece_of("onetwo", {{"look", "{}"}}, "length");
  last.call_places = {3};
  EXPECT_THAT(all_told(output_of({last})),
              ElementsAre("message one completed", "function_call look completed",
                          "message two incomplete"));
  last.call_places = {6};
  EXPECT_THAT(all_told(output_of({last})),
              ElementsAre("message onetwo completed", "function_call look completed"));
}

AnswerPiece chance_of(std::string token, std::string text, std::vector<ToolCall> calls = {}) {
  AnswerPiece piece = piece_of(std::move(text), std::move(calls));
  piece.chances = {{.token = {.text = std::move(token)}, .likeliest = {}}};
  return piece;
}

// Tokens of the messages in `output`.
std::vector<std::vector<std::string>> chances_in(const TemplateJson& output) {
  std::vector<std::vector<std::string>> tokens;
  for (const TemplateJson& item : output) {
    if (item["type"] != "message") continue;
    auto& of_item = tokens.emplace_back();
    for (const TemplateJson& each : item["content"][0]["logprobs"])
      of_item.push_back(each["token"]);
  }
  return tokens;
}

// White space and marks say nothing before it is known what they are.
TEST(ResponseAnswer, TokensHaveTheirLogprobsInTheMessageThatTheyWrote) {
  const TemplateJson output = output_of(
      {chance_of("one", "one"), chance_of(" <", ""), chance_of("b", " <b"), chance_of(" ", ""),
       chance_of("<tool_call>", ""), chance_of("</tool_call>", "", {{"look", "{}"}}),
       chance_of("two", "two"), chance_of(" ", ""), piece_of("", {}, "stop")});
  EXPECT_THAT(all_told(output),
              ElementsAre("message one <b completed", "function_call look completed",
                          "message two completed"));
  EXPECT_THAT(chances_in(output),
              ElementsAre(ElementsAre("one", " <", "b"), ElementsAre("two", " ")));
}

TEST(ResponseAnswer, OfACallHasNoMessageOfItsTokens) {
  const TemplateJson output =
      output_of({chance_of("<tool_call>", ""), chance_of("</tool_call>", "", {{"look", "{}"}}),
                 chance_of(" ", ""), piece_of("", {}, "tool_calls")});
  EXPECT_THAT(all_told(output), ElementsAre("function_call look completed"));
}

// Of a token that ended a call and went on with a text.
TEST(ResponseAnswer, TheTextBehindACallHasItsTokensLogprobs) {
  AnswerPiece piece = chance_of("> two", "two", {{"look", "{}"}});
  piece.call_places = {0};
  const TemplateJson output = output_of({piece, piece_of("", {}, "stop")});
  EXPECT_THAT(all_told(output),
              ElementsAre("function_call look completed", "message two completed"));
  EXPECT_THAT(chances_in(output), ElementsAre(ElementsAre("> two")));
}

AnswerPiece thoughts_of(std::string thoughts, std::string text = "", std::string_view reason = "") {
  AnswerPiece piece = piece_of(std::move(text), {}, reason);
  piece.thoughts = std::move(thoughts);
  return piece;
}

//   output   0: reasoning "I look."   1: message "The sea."
TEST(ResponseStream, ThoughtsAreAnItemBeforeTheText) {
  ResponseAnswer stream(head(), "{}", /*streams=*/true);
  std::string said = stream.begin({});
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
            body_of({thoughts_of("I look.", "The sea.", "stop")}, kUsage));
  EXPECT_EQ(events.back()["response"]["output"][0].dump(),
            R"({"type":"reasoning","id":"rs_resp_1_0","status":"completed","summary":[],)"
            R"("content":[{"type":"reasoning_text","text":"I look."}]})");
}

//   output   0: message "Hm."   1: reasoning "I look."   2: message "The sea."
TEST(ResponseStream, ThoughtsBehindATextEndItsMessage) {
  ResponseAnswer stream(head(), "{}", /*streams=*/true);
  std::string said = stream.begin({});
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
  ResponseAnswer stream(head(), "{}", /*streams=*/true);
  std::string said = stream.begin({});
  said += stream.push(thoughts_of("I ", "", "length"));
  said += stream.end(kUsage, TemplateJson());
  const TemplateJson response = events_of(said).back()["response"];
  EXPECT_EQ(response.dump(), body_of({thoughts_of("I ", "", "length")}, kUsage));
  EXPECT_EQ(response["output"].size(), 1U);
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
}

TEST(ResponseStream, LogprobsAreThoseOfTheText) {
  ResponseAnswer stream(head(), "{}", /*streams=*/true);
  std::string said = stream.begin({});
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
  EXPECT_EQ(response.dump(), body_of({whole}, kUsage));
}

TEST(ResponseStream, ThatSaysNothingHasAnEmptyMessage) {
  ResponseAnswer stream(head(), "{}", /*streams=*/true);
  std::string said = stream.begin({});
  said += stream.push(piece_of("", {}, "stop"));
  said += stream.end(kUsage, TemplateJson());
  EXPECT_EQ(events_of(said).back()["response"]["output"][0]["content"][0]["text"], "");
}

TEST(ResponseStream, TokensHaveTheirLogprobsInPiecesAndWhole) {
  ResponseAnswer stream(head(), "{}", /*streams=*/true);
  std::string said = stream.begin({});
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
  ResponseAnswer stream(head(), "{}", /*streams=*/true);
  std::string said = stream.begin({});
  said += stream.push(piece_of("", {{"go", "{}"}}));
  said += stream.fail(server_error("the step failed"));
  const TemplateJson response = events_of(said).back()["response"];
  EXPECT_EQ(response["status"], "failed");
  EXPECT_EQ(response["error"]["message"], "the step failed");
  EXPECT_EQ(response["output"].size(), 1U);
}

}  // namespace
}  // namespace stemma
