// Covers answers as clients read them: the golden shape of bodies and events.
#include "openai/completion_answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "openai/call_ids.h"

namespace stemma {
namespace {

AnswerHead head(CompletionKind kind) {
  AnswerHead head;
  head.kind = kind;
  head.id = "id-1";
  head.model = "m";
  head.created_s = 7;
  return head;
}

TemplateJson event_json(const std::string& event) {
  EXPECT_TRUE(event.starts_with("data: ") && event.ends_with("\n\n")) << event;
  return TemplateJson::parse(event.substr(6));
}

TEST(CompletionAnswer, OfAChat) {
  const AnswerPiece answers[] = {
      {.index = 0, .text = "hello", .chances = {}, .tokens = {}, .finish_reason = "stop"}};
  const std::string body =
      answer_body(head(CompletionKind::kChat), answers, false,
                  {.prompt_tokens = 5, .completion_tokens = 2, .cached_tokens = 4}, TemplateJson());
  EXPECT_EQ(body,
            R"({"id":"id-1","object":"chat.completion","created":7,"model":"m",)"
            R"("system_fingerprint":null,"choices":[{"index":0,"message":{"role":"assistant",)"
            R"("content":"hello","refusal":null},"logprobs":null,)"
            R"("finish_reason":"stop","stop_reason":null}],)"
            R"("usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,)"
            R"("prompt_tokens_details":{"cached_tokens":4}}})");
}

TEST(CompletionAnswer, OfAChatThatCallsTools) {
  AnswerPiece answer;
  answer.index = 2;
  answer.calls = {{"look", R"({"at": "sea"})"}, {"go", "{}"}};
  answer.finish_reason = "tool_calls";
  const auto json = TemplateJson::parse(
      answer_body(head(CompletionKind::kChat), std::span(&answer, 1), false, {}, TemplateJson()));
  EXPECT_EQ(json["choices"][0].dump(),
            R"({"index":2,"message":{"role":"assistant","content":null,"refusal":null,)"
            R"("tool_calls":[{"id":"call_id-1_2_0","type":"function","function":)"
            R"({"name":"look","arguments":"{\"at\": \"sea\"}"}},)"
            R"({"id":"call_id-1_2_1","type":"function","function":)"
            R"({"name":"go","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls",)"
            R"("stop_reason":null})");
}

TEST(CompletionAnswer, IdentifiersOfCallsAreAsShortAsOpenAiWantsThem) {
  AnswerHead of_chat = head(CompletionKind::kChat);
  of_chat.id = "chatcmpl-0123456789abcdef01234567";
  AnswerPiece answer;
  answer.index = 127;
  answer.first_call = 999'999;
  answer.calls = {{"go", "{}"}};
  const auto json =
      TemplateJson::parse(answer_body(of_chat, std::span(&answer, 1), false, {}, TemplateJson()));
  const std::string id = json["choices"][0]["message"]["tool_calls"][0]["id"];
  EXPECT_EQ(id, "call_0123456789abcdef01234567_127_999999");
  EXPECT_LE(id.size(), 40U);
  of_chat.short_call_ids = true;
  const auto shorter =
      TemplateJson::parse(answer_body(of_chat, std::span(&answer, 1), false, {}, TemplateJson()));
  EXPECT_EQ(shorter["choices"][0]["message"]["tool_calls"][0]["id"], short_call_id(id));
}

TEST(CallIds, OfNineLettersAndDigitsStayAndOthersBecomeSuch) {
  EXPECT_EQ(short_call_id("aB3dE6gH9"), "aB3dE6gH9");
  std::set<std::string> made;
  for (const char* const id : {"", "aB3dE6gH", "aB3dE6gH9x", "aB3dE6g-9", "call_1", "call_2"}) {
    const std::string shorter = short_call_id(id);
    EXPECT_EQ(shorter.size(), kShortIdBytes);
    EXPECT_EQ(short_call_id(shorter), shorter) << "it is of that form";
    EXPECT_TRUE(made.insert(shorter).second) << id;
  }
}

TEST(CompletionAnswer, OfAChatThatThinks) {
  AnswerPiece answer;
  answer.thoughts = "I look.";
  answer.text = "The sea.";
  const auto message_of = [](const AnswerPiece& one, const AnswerUsage& usage) {
    return TemplateJson::parse(
        answer_body(head(CompletionKind::kChat), std::span(&one, 1), false, usage, TemplateJson()));
  };
  const TemplateJson json = message_of(answer, {.thought_tokens = 4});
  EXPECT_EQ(json["choices"][0]["message"].dump(),
            R"({"role":"assistant","content":"The sea.","refusal":null,)"
            R"("reasoning_content":"I look."})");
  EXPECT_EQ(json["usage"]["completion_tokens_details"].dump(), R"({"reasoning_tokens":4})");
  answer.text.clear();
  EXPECT_EQ(message_of(answer, {})["choices"][0]["message"]["content"], nullptr);
}

TEST(CompletionAnswer, APieceThatThinksSaysSo) {
  AnswerPiece piece;
  piece.thoughts = "I look.";
  const TemplateJson json =
      event_json(piece_event(head(CompletionKind::kChat), piece, /*has_logprobs=*/false));
  EXPECT_EQ(json["choices"][0]["delta"].dump(), R"({"reasoning_content":"I look."})");
}

TEST(CompletionAnswer, APieceThatCallsSaysWhichCallItIs) {
  AnswerPiece piece;
  piece.calls = {{"go", "{}"}};
  piece.first_call = 1;
  const TemplateJson json =
      event_json(piece_event(head(CompletionKind::kChat), piece, /*has_logprobs=*/false));
  EXPECT_EQ(json["choices"][0]["delta"].dump(),
            R"({"tool_calls":[{"index":1,"id":"call_id-1_0_1","type":"function",)"
            R"("function":{"name":"go","arguments":"{}"}}]})");
}

TEST(CompletionAnswer, OfACompletionWithLogprobs) {
  AnswerPiece answer = {
      .index = 1, .text = "a\xC3\xA9", .chances = {}, .tokens = {}, .finish_reason = "length"};
  const float never = -std::numeric_limits<float>::infinity();
  answer.chances = {{{"a", -0.5F}, {{"b", never}}, 7}, {{"\xC3\xA9", -1}, {}, 8}};
  const auto json = TemplateJson::parse(
      answer_body(head(CompletionKind::kText), std::span(&answer, 1), true, {}, TemplateJson()));
  const TemplateJson& logprobs = json["choices"][0]["logprobs"];
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(logprobs["tokens"], TemplateJson({"a", "\xC3\xA9"}));
  EXPECT_EQ(logprobs["text_offset"], TemplateJson({7, 8}));
  EXPECT_EQ(logprobs["top_logprobs"][0]["b"], -9999.0) << "JSON has no infinity";
  EXPECT_EQ(logprobs["top_logprobs"][0]["a"], -0.5)
      << "the token itself, though others are likelier";
}

TEST(CompletionAnswer, NothingSaysHowLikelyTheFirstTokenOfAPromptWas) {
  AnswerPiece answer;
  answer.chances = {{{"a"}, {}, 0, /*is_given=*/true}, {{"b", -0.5F}, {{"b", -0.5F}}, 1}};
  const auto json = TemplateJson::parse(
      answer_body(head(CompletionKind::kText), std::span(&answer, 1), true, {}, TemplateJson()));
  EXPECT_EQ(json["choices"][0]["logprobs"].dump(),
            R"({"tokens":["a","b"],"token_logprobs":[null,-0.5],)"
            R"("top_logprobs":[null,{"b":-0.5}],"text_offset":[0,1]})");
}

// Of a completion in each choice, which may be of another prompt; of a chat once, beside them.
TEST(CompletionAnswer, LogprobsOfAPromptAreByTokenWhereVllmHasThem) {
  const char* const told = R"([null,{"9":{"logprob":-2.0,"rank":3,"decoded_token":"b"},)"
                           R"("4":{"logprob":-0.5,"rank":1,"decoded_token":"c"}}])";
  for (const CompletionKind kind : {CompletionKind::kChat, CompletionKind::kText}) {
    const bool is_chat = kind == CompletionKind::kChat;
    AnswerHead scored = head(kind);
    scored.scores_prompt = true;
    std::vector<AnswerPiece> answers(2);
    answers[1].index = 1;
    answers[0].of_prompt = {{{"a", 0, 7}, {}, 0, /*is_given=*/true},
                            {{"b", -2, 9, 3}, {{"c", -0.5F, 4, 1}, {"b", -2, 9, 3}}, 1}};
    if (!is_chat) answers[1].of_prompt = answers[0].of_prompt;
    const auto json = TemplateJson::parse(answer_body(scored, answers, false, {}, TemplateJson()));
    EXPECT_EQ(json.contains("prompt_logprobs"), is_chat);
    if (is_chat) {
      EXPECT_EQ(json["prompt_logprobs"].dump(), told);
    }
    for (const TemplateJson& choice : json["choices"]) {
      EXPECT_EQ(choice.contains("prompt_logprobs"), !is_chat);
      if (!is_chat) {
        EXPECT_EQ(choice["prompt_logprobs"].dump(), told);
      }
    }
  }
}

TEST(CompletionAnswer, TokensOfAPromptStandWhereItsLogprobsDo) {
  for (const CompletionKind kind : {CompletionKind::kChat, CompletionKind::kText}) {
    const bool is_chat = kind == CompletionKind::kChat;
    AnswerHead telling = head(kind);
    telling.gives_tokens = true;
    AnswerPiece answer;
    answer.prompt_tokens = {7, 9};
    answer.tokens = {3};
    const auto whole =
        TemplateJson::parse(answer_body(telling, std::span(&answer, 1), false, {}, TemplateJson()));
    const TemplateJson& at = is_chat ? whole : whole["choices"][0];
    EXPECT_EQ(at["prompt_token_ids"], TemplateJson({7, 9}));
    EXPECT_EQ(whole.contains("prompt_token_ids"), is_chat);
    EXPECT_EQ(whole["choices"][0]["token_ids"], TemplateJson({3}));
    const auto event = event_json(piece_event(telling, answer, false));
    EXPECT_EQ(event["choices"][0].contains("prompt_token_ids"), !is_chat);
    answer.prompt_tokens.clear();
    EXPECT_FALSE(
        event_json(piece_event(telling, answer, false))["choices"][0].contains("prompt_token_ids"));
  }
  const std::vector<TokenId> tokens = {7, 9};
  const AnswerHead chat = head(CompletionKind::kChat);
  EXPECT_EQ(event_json(first_event(chat, 0, {}, tokens))["prompt_token_ids"], TemplateJson(tokens));
  EXPECT_FALSE(event_json(first_event(chat, 0)).contains("prompt_token_ids"));
}

TEST(CompletionAnswer, OfTokensThatReadTheSameTheLikeliestIsTold) {
  AnswerPiece answer;
  answer.chances = {{{"a", -0.5F}, {{"\xEF\xBF\xBD", -1}, {"\xEF\xBF\xBD", -3}}, 0}};
  const auto json = TemplateJson::parse(
      answer_body(head(CompletionKind::kText), std::span(&answer, 1), true, {}, TemplateJson()));
  EXPECT_EQ(json["choices"][0]["logprobs"]["top_logprobs"][0]["\xEF\xBF\xBD"], -1);
}

TEST(CompletionAnswer, ChatLogprobsSayBytes) {
  AnswerPiece answer = {.index = 0, .text = "", .chances = {}, .tokens = {}, .finish_reason = ""};
  const NamedLogprob half = {.text = "\xEF\xBF\xBD", .logprob = -2, .bytes = "\xC3"};
  answer.chances = {{{"\xC3\xA9", -1}, {half}}};
  const auto json = event_json(piece_event(head(CompletionKind::kChat), answer, true));
  const TemplateJson& token = json["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(token["bytes"], TemplateJson({0xC3, 0xA9}));
  EXPECT_EQ(token["top_logprobs"][0]["bytes"], TemplateJson({0xC3})) << "half a character";
}

TEST(CompletionAnswer, APieceWithoutTokensHasNoLogprobs) {
  AnswerPiece piece;
  piece.finish_reason = "stop";
  for (const CompletionKind kind : {CompletionKind::kChat, CompletionKind::kText}) {
    const auto json = event_json(piece_event(head(kind), piece, /*has_logprobs=*/true));
    EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
  }
}

TEST(CompletionAnswer, AStreamOfEvents) {
  AnswerHead stream = head(CompletionKind::kChat);
  stream.counts_usage = true;
  const auto first = event_json(first_event(stream, 2));
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["index"], 2);
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(first.contains("usage") && first["usage"].is_null());
  const AnswerPiece piece = {
      .index = 2, .text = "x", .chances = {}, .tokens = {}, .finish_reason = "abort"};
  const auto next = event_json(piece_event(stream, piece, false));
  EXPECT_EQ(next["choices"][0]["delta"]["content"], "x");
  EXPECT_EQ(next["choices"][0]["finish_reason"], "abort");
  const AnswerUsage usage = {.prompt_tokens = 3, .completion_tokens = 1, .cached_tokens = 0};
  const auto last = event_json(usage_event(stream, &usage, TemplateJson()));
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"]["total_tokens"], 4);
  EXPECT_EQ(first_event(head(CompletionKind::kText), 0), "") << "a completion has no role";
}

TEST(CompletionAnswer, WhatStoppedAnAnswerIsTold) {
  AnswerPiece answer = {
      .index = 0, .text = "x", .chances = {}, .tokens = {}, .finish_reason = "stop"};
  const auto told = [&](StopReason reason) {
    answer.stop_reason = std::move(reason);
    const AnswerHead of_text = head(CompletionKind::kText);
    const auto event = event_json(piece_event(of_text, answer, false));
    const auto whole =
        TemplateJson::parse(answer_body(of_text, std::span(&answer, 1), false, {}, TemplateJson()));
    EXPECT_EQ(event["choices"][0]["stop_reason"], whole["choices"][0]["stop_reason"]);
    return whole["choices"][0]["stop_reason"];
  };
  EXPECT_EQ(told("END"), "END");
  EXPECT_EQ(told(TokenId{7}), 7);
  EXPECT_EQ(told({}), nullptr);
  answer.finish_reason = "";
  const auto goes_on = event_json(piece_event(head(CompletionKind::kText), answer, false));
  EXPECT_FALSE(goes_on["choices"][0].contains("stop_reason"));
}

TEST(CompletionAnswer, AStreamThatCountsAsItGoes) {
  const auto usage_of = [](const std::string& event) { return event_json(event)["usage"]; };
  AnswerUsage usage = {.prompt_tokens = 3, .completion_tokens = 0, .cached_tokens = 2};
  const AnswerHead chat = head(CompletionKind::kChat);
  EXPECT_EQ(usage_of(first_event(chat, 0, usage))["total_tokens"], 3);
  usage.completion_tokens = 4;
  AnswerPiece piece;
  piece.text = "x";
  piece.usage_so_far = usage;
  for (const CompletionKind kind : {CompletionKind::kChat, CompletionKind::kText}) {
    const TemplateJson told = usage_of(piece_event(head(kind), piece, false));
    EXPECT_EQ(told["completion_tokens"], 4);
    EXPECT_EQ(told["total_tokens"], 7);
    EXPECT_EQ(told["prompt_tokens_details"]["cached_tokens"], 2);
  }
}

// NEL, LS and PS: Python's splitlines, which clients of streams use, ends a line at each.
TEST(CompletionAnswer, AnEventIsOneLineWhateverALanguageTakesForAnEnd) {
  AnswerPiece piece;
  piece.text = "a\xC2\x85\xE2\x80\xA8\xE2\x80\xA9\x0B\x0C\x1C\x1D\x1E\r\n\xC2\x86\xE2\x80\xAAz";
  const std::string event = piece_event(head(CompletionKind::kText), piece, false);
  for (const std::string_view end : {"\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"}) {
    EXPECT_EQ(event.find(end), std::string::npos);
  }
  EXPECT_EQ(
      std::count_if(event.begin(), event.end(), [](char byte) { return byte >= 0 && byte < 32; }),
      2)
      << "the two that end it";
  EXPECT_EQ(event_json(event)["choices"][0]["text"], piece.text);
}

// Three million bytes: to move all that is behind each of them would take minutes.
TEST(CompletionAnswer, AnEventOfNothingButEndsOfLinesIsWrittenInTheTimeOfItsText) {
  constexpr int kTimes = 1'000'000;
  std::string text;
  std::string expected = "data: ";
  for (int i = 0; i < kTimes; ++i) {
    text += "\xE2\x80\xA8";
    expected += "\\u2028";
  }
  EXPECT_TRUE(event_of(std::move(text)) == expected + "\n\n");
}

TEST(ApiErrors, HaveOpenAisShape) {
  EXPECT_EQ(error_body(field_error("n", "must be 1")),
            R"({"error":{"message":"n: must be 1","type":"invalid_request_error","param":"n",)"
            R"("code":null}})");
  EXPECT_EQ(overloaded("x").status, 429);
  EXPECT_TRUE(overloaded("x").retry_after_s.has_value());
  EXPECT_EQ(api_error_of({ErrorCode::kTooLarge, "x"}).status, 400);
  EXPECT_EQ(api_error_of({ErrorCode::kNotFound, "x"}).status, 404);
  EXPECT_EQ(api_error_of({ErrorCode::kUnsupported, "x"}).status, 400);
  EXPECT_EQ(api_error_of({ErrorCode::kInternal, "x"}).status, 500);
}

}  // namespace
}  // namespace stemma
