// Answers without the threads that pass them on: what a client is told, and which updates take
// long.
#include "server/answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "model/tokenizer_examples.h"

namespace stemma {
namespace {

bool takes_long(const Answer& answer, const AnswerUpdate& update) {
  return answer.time_of(update) != Answer::Time::kShort;
}

Answer answer_of(bool stream) {
  AnswerPlan plan;
  plan.stream = stream;
  return Answer(std::move(plan));
}

AnswerUpdate failure() {
  AnswerUpdate update;
  update.finish = FinishReason::kFailed;
  update.error = Error{ErrorCode::kIo, "the step failed"};
  return update;
}

AnswerUpdate piece(std::string text, std::int64_t index = 0) {
  AnswerUpdate update;
  update.index = index;
  update.is_first = true;
  update.text = std::move(text);
  return update;
}

AnswerUpdate last_piece(std::int64_t index = 0) {
  AnswerUpdate update = piece("", index);
  update.finish = FinishReason::kLength;
  return update;
}

std::vector<TokenChance> chances(std::size_t tokens) {
  TokenChance chance;
  chance.token.text = "a";
  chance.likeliest.assign(20, chance.token);
  return std::vector<TokenChance>(tokens, chance);
}

AnswerUpdate of_prompt(std::size_t tokens) {
  AnswerUpdate update;
  update.of_prompt = chances(tokens);
  return update;
}

TEST(Answers, ThatFailBeforeAnythingWasSaidHaveTheErrorsStatus) {
  for (const bool stream : {false, true}) {
    Answer failed = answer_of(stream);
    const AnswerOutput output = failed.take(failure());
    EXPECT_TRUE(output.ends && output.failed);
    ASSERT_TRUE(output.whole.has_value());
    EXPECT_EQ(output.whole->status, 500);
    EXPECT_EQ(failed.status(), 500);
    EXPECT_EQ(failed.outcome(), "failed");
  }
}

TEST(Answers, ThatFailBehindTheirHeadHadItsStatus) {
  Answer failed = answer_of(true);
  EXPECT_TRUE(failed.take(piece("Once")).head.has_value());
  const AnswerOutput output = failed.take(failure());
  EXPECT_TRUE(output.ends && output.failed);
  EXPECT_NE(output.events.find("error"), std::string::npos);
  EXPECT_FALSE(output.whole.has_value());
  EXPECT_EQ(failed.status(), 200);
  EXPECT_EQ(failed.outcome(), "failed");
}

// In its words, before its head and behind it, and under the names by which its clients look for
// their request.
TEST(Answers, ThatAreMessagesFailAsMessages) {
  const auto plan_of = [](bool stream) {
    AnswerPlan plan;
    plan.shape = AnswerShape::kMessage;
    plan.request_id = "req-1";
    plan.stream = stream;
    return plan;
  };
  Answer whole(plan_of(false));
  const AnswerOutput refused = whole.take(failure());
  ASSERT_TRUE(refused.whole.has_value());
  EXPECT_TRUE(refused.whole->body.starts_with(R"({"type":"error","error":{"type":"api_error")"))
      << refused.whole->body;
  EXPECT_EQ(refused.whole->headers, (std::vector<std::pair<std::string, std::string>>{
                                        {"X-Request-Id", "req-1"}, {"request-id", "req-1"}}));
  Answer stream(plan_of(true));
  EXPECT_TRUE(stream.take(piece("Once")).head.has_value());
  EXPECT_TRUE(stream.take(failure()).events.starts_with("event: error\n"));
}

TEST(Answers, ThatAreMessagesBeginWithWhatTheirPromptCost) {
  AnswerPlan plan;
  plan.shape = AnswerShape::kMessage;
  plan.stream = true;
  Answer answer(std::move(plan));
  AnswerUpdate first = piece("Once");
  first.stats.prompt_tokens = 30;
  first.stats.cached_tokens = 16;
  const std::string events = answer.take(std::move(first)).events;
  EXPECT_NE(events.find(R"("input_tokens":14,"cache_creation_input_tokens":0,)"
                        R"("cache_read_input_tokens":16,"output_tokens":0)"),
            std::string::npos)
      << events;
}

// Of each answer its own: prompt 1 has answers 2 and 3.
TEST(Answers, ThatStreamSayWhatTheyCostSoFarWhereThatIsAsked) {
  AnswerPlan plan;
  plan.stream = true;
  plan.usage_so_far = true;
  plan.copies = 2;
  plan.echoes = {"", ""};
  Answer answer(std::move(plan));
  AnswerUpdate first = piece("Once", 2);
  first.stats.prompt_tokens = 30;
  first.output_tokens = 1;
  const std::string events = answer.take(std::move(first)).events;
  EXPECT_NE(events.find(R"("prompt_tokens":30,"completion_tokens":0,"total_tokens":30)"),
            std::string::npos);
  EXPECT_NE(events.find(R"("prompt_tokens":30,"completion_tokens":1,"total_tokens":31)"),
            std::string::npos);
  AnswerUpdate copy = piece("Once", 3);
  copy.output_tokens = 7;
  EXPECT_NE(answer.take(std::move(copy)).events.find(R"("completion_tokens":7,"total_tokens":37)"),
            std::string::npos);
}

TEST(Answers, ThatAreShortTakeNotLong) {
  for (const bool stream : {false, true}) {
    Answer answer = answer_of(stream);
    EXPECT_FALSE(takes_long(answer, piece("Once")));
    EXPECT_FALSE(answer.take(piece("Once")).ends);
    EXPECT_FALSE(takes_long(answer, last_piece()));
    EXPECT_TRUE(answer.take(last_piece()).ends);
  }
}

// Of many answers to one prompt each shows it: only the last one has them written.
TEST(Answers, WithManyLogprobsOfThePromptTakeLongOnceTheyAreAllThere) {
  AnswerPlan plan;
  plan.head.kind = CompletionKind::kText;
  plan.copies = 12;
  plan.scored_likeliest = 20;
  plan.head.scores_prompt = true;
  Answer answer(std::move(plan));
  EXPECT_FALSE(takes_long(answer, of_prompt(400)));
  EXPECT_FALSE(answer.take(of_prompt(400)).ends);
  for (std::int64_t i = 0; i < 11; ++i) {
    EXPECT_FALSE(takes_long(answer, last_piece(i)));
    EXPECT_FALSE(answer.take(last_piece(i)).ends);
  }
  EXPECT_FALSE(takes_long(answer, failure()));
  EXPECT_TRUE(takes_long(answer, last_piece(11)));
  const AnswerOutput output = answer.take(last_piece(11));
  ASSERT_TRUE(output.whole.has_value());
  EXPECT_GT(output.whole->body.size(), 12u * 400 * 30);
}

// Before them stand those of which nobody says how likely they were, which are read here.
TEST(Answers, ThatShowThePromptBeginWithItsGivenTokens) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(sentence_piece_file().json(), "file");
  for (const bool stream : {false, true}) {
    AnswerPlan plan;
    plan.head.kind = CompletionKind::kText;
    plan.stream = stream;
    plan.copies = 2;
    plan.has_logprobs = true;
    plan.echoed_likeliest = 1;
    plan.given.push_back({&*tokenizer, {}, std::vector<TokenId>(400, 263)});
    Answer answer(std::move(plan));
    EXPECT_FALSE(takes_long(answer, of_prompt(1)));
    EXPECT_FALSE(answer.take(of_prompt(1)).ends);
    std::string told;
    for (const std::int64_t i : {0, 1}) {
      EXPECT_EQ(takes_long(answer, last_piece(i)), stream || i == 1) << "it shows them";
      const AnswerOutput output = answer.take(last_piece(i));
      told += output.events + (output.whole.has_value() ? output.whole->body : "");
    }
    const std::string begin = R"("tokens":["hi"," hi"," hi")";
    const std::size_t first = told.find(begin);
    ASSERT_NE(first, told.npos) << told.substr(0, 400);
    EXPECT_NE(told.find(begin, first + 1), told.npos) << "of each answer";
    EXPECT_NE(told.find(R"(" hi","a"],"token_logprobs":[null,null)"), told.npos);
  }
}

// A chat tells of it once, beside its answers.
TEST(Answers, ToAChatTellTogetherHowLikelyItsPromptWas) {
  AnswerPlan plan;
  plan.copies = 2;
  plan.scored_likeliest = 1;
  plan.head.scores_prompt = true;
  Answer answer(std::move(plan));
  EXPECT_FALSE(answer.take(of_prompt(3)).ends);
  EXPECT_FALSE(answer.take(last_piece(1)).ends);
  const AnswerOutput output = answer.take(last_piece(0));
  ASSERT_TRUE(output.whole.has_value());
  const auto body = TemplateJson::parse(output.whole->body);
  EXPECT_EQ(body["prompt_logprobs"].size(), 3U);
  for (const TemplateJson& choice : body["choices"]) {
    EXPECT_FALSE(choice.contains("prompt_logprobs"));
  }
}

// In the first event of each answer, and in no other.
TEST(Answers, TellTheTokensOfTheirPrompt) {
  for (const CompletionKind kind : {CompletionKind::kChat, CompletionKind::kText}) {
    const bool is_chat = kind == CompletionKind::kChat;
    for (const bool stream : {false, true}) {
      AnswerPlan plan;
      plan.head.kind = kind;
      plan.head.gives_tokens = true;
      plan.stream = stream;
      plan.copies = 2;
      plan.echoes.resize(is_chat ? 1 : 2);
      plan.prompt_tokens = {{11, 12}};
      if (!is_chat) plan.prompt_tokens.push_back({21});
      const std::int64_t answers = plan.answers();
      Answer answer(std::move(plan));
      std::string told;
      for (std::int64_t i = 0; i < answers; ++i) {
        told += answer.take(piece("a", i)).events;
        AnswerOutput output = answer.take(last_piece(i));
        told += output.events;
        if (output.whole.has_value()) told += output.whole->body;
      }
      const auto count = [&](const std::string& text) {
        int found = 0;
        for (std::size_t at = 0; (at = told.find(text, at)) != told.npos; ++at) ++found;
        return found;
      };
      EXPECT_EQ(count(R"("prompt_token_ids":[11,12])"), is_chat && !stream ? 1 : 2);
      EXPECT_EQ(count(R"("prompt_token_ids":[21])"), is_chat ? 0 : 2);
      EXPECT_EQ(count("prompt_token_ids"), is_chat ? (stream ? 2 : 1) : 4);
    }
  }
}

TEST(Answers, WithManyTokensOfThePromptTakeLong) {
  AnswerPlan plan;
  plan.head.kind = CompletionKind::kText;
  plan.head.gives_tokens = true;
  plan.stream = true;
  plan.prompt_tokens = {std::vector<TokenId>(100'000, 7)};
  Answer answer(std::move(plan));
  EXPECT_TRUE(takes_long(answer, piece("Once")));
  EXPECT_GT(answer.take(piece("Once")).events.size(), 200'000U);
  EXPECT_FALSE(takes_long(answer, piece(" upon")));
}

TEST(Answers, WithManyLogprobsOfTheirOwnTakeLong) {
  AnswerPlan plan;
  plan.has_logprobs = true;
  Answer answer(std::move(plan));
  AnswerUpdate whole = last_piece();
  whole.chances = chances(400);
  EXPECT_TRUE(takes_long(answer, whole));
  whole.chances = chances(4);
  EXPECT_FALSE(takes_long(answer, whole));
}

// Those that do not take as long are written by another thread.
TEST(Answers, WithVeryManyLogprobsTakeVeryLong) {
  AnswerPlan plan;
  plan.has_logprobs = true;
  Answer answer(std::move(plan));
  AnswerUpdate whole = last_piece();
  for (const auto& [tokens, time] : {std::pair(4U, Answer::Time::kShort),
                                     {200U, Answer::Time::kLong},
                                     {1000U, Answer::Time::kVeryLong}}) {
    whole.chances = chances(tokens);
    EXPECT_EQ(answer.time_of(whole), time);
  }
}

TEST(Answers, OfManyCopiesOfALongEchoTakeLong) {
  AnswerPlan plan;
  plan.copies = 64;
  plan.echoes = {std::string(100'000, 'a')};
  Answer answer(std::move(plan));
  for (std::int64_t i = 0; i < 63; ++i) EXPECT_FALSE(answer.take(last_piece(i)).ends);
  EXPECT_TRUE(takes_long(answer, last_piece(63)));
}

// A tokenizer may write a prompt longer than it was sent: the answer begins behind what was sent.
TEST(Answers, TokensOfAnEchoBeginWithinItAndThoseOfTheAnswerBehindIt) {
  AnswerPlan plan;
  plan.head.kind = CompletionKind::kText;
  plan.has_logprobs = true;
  plan.echoes = {"\xEF\xAC\x81n"};  // a ligature of two letters
  plan.echoed_likeliest = 0;
  Answer answer(std::move(plan));
  AnswerUpdate prompt = of_prompt(3);
  for (std::size_t i = 0; i < 3; ++i) prompt.of_prompt[i].first_character = std::int64_t(i);
  prompt.of_prompt.push_back(prompt.of_prompt[0]);
  prompt.of_prompt[3].first_character = 3;
  EXPECT_FALSE(answer.take(std::move(prompt)).ends);
  AnswerUpdate last = last_piece();
  last.text = "ab";
  last.chances = chances(2);
  last.chances[1].first_character = 1;
  const AnswerOutput output = answer.take(std::move(last));
  ASSERT_TRUE(output.whole.has_value());
  EXPECT_EQ(TemplateJson::parse(output.whole->body)["choices"][0]["logprobs"]["text_offset"],
            TemplateJson({0, 1, 2, 2, 2, 3}));
}

TEST(Answers, ThatStreamTakeLongWhereTheyShowThePromptAndNotBetween) {
  AnswerPlan plan;
  plan.stream = true;
  plan.has_logprobs = true;
  plan.echoed_likeliest = 20;
  Answer answer(std::move(plan));
  EXPECT_TRUE(answer.take(of_prompt(400)).events.empty());
  EXPECT_TRUE(takes_long(answer, piece("Once")));
  EXPECT_GT(answer.take(piece("Once")).events.size(), 400u * 100);
  EXPECT_FALSE(takes_long(answer, piece(" upon")));
}

// Their last events repeat all of it.
TEST(Answers, ThatAreResponsesTakeLongAtTheirEnd) {
  AnswerPlan plan;
  plan.stream = true;
  plan.shape = AnswerShape::kResponse;
  plan.response = "{}";
  Answer answer(std::move(plan));
  for (int i = 0; i < 400; ++i) {
    AnswerUpdate update = piece("a");
    update.chances = chances(1);
    EXPECT_FALSE(takes_long(answer, update));
    EXPECT_FALSE(answer.take(std::move(update)).ends);
  }
  EXPECT_TRUE(takes_long(answer, last_piece()));
  EXPECT_TRUE(answer.take(last_piece()).ends);
}

// A client may ask with a megabyte that no prompt has: tools that are not to be called, a form.
TEST(Answers, ThatAreResponsesTakeLongWhereTheyRepeatALongRequest) {
  AnswerPlan plan;
  plan.stream = true;
  plan.shape = AnswerShape::kResponse;
  plan.response = R"({"metadata":{"k":")" + std::string(1'000'000, 'v') + R"("}})";
  Answer answer(std::move(plan));
  EXPECT_TRUE(takes_long(answer, piece("Once")));
  EXPECT_GT(answer.take(piece("Once")).events.size(), 2u * 1'000'000);
  EXPECT_FALSE(takes_long(answer, piece(" upon")));
  answer.take(piece(" upon"));
  EXPECT_TRUE(takes_long(answer, last_piece()));
}

AnswerUpdate ended(std::int64_t index, std::int64_t tokens, FinishReason reason) {
  AnswerUpdate update = last_piece(index);
  update.finish = reason;
  update.stats.prompt_tokens = 7;
  update.stats.output_tokens = tokens;
  update.stats.queue_us = 1'000;
  update.stats.ttft_us = 3'000;
  update.stats.total_us = 9'000;
  return update;
}

TEST(Answers, CountEachPromptOnceAndWhatWasGeneratedForIt) {
  AnswerPlan plan;
  plan.copies = 2;
  plan.echoes = {"", ""};
  Answer answer(std::move(plan));
  answer.take(ended(0, 4, FinishReason::kLength));
  answer.take(ended(1, 2, FinishReason::kStop));
  answer.take(ended(2, 3, FinishReason::kStop));
  answer.take(ended(3, 1, FinishReason::kCancelled));
  AnswerTally tally;
  answer.count_into(tally);
  EXPECT_EQ(tally.prompt_lengths.samples(), 2);
  EXPECT_EQ(tally.prompt_lengths.sum(), 14);
  EXPECT_EQ(tally.prefill.sum(), 4'000);
  EXPECT_EQ(tally.answer_lengths.samples(), 3) << "none that was cancelled";
  EXPECT_EQ(tally.answer_lengths.sum(), 9);
  EXPECT_EQ(tally.longest_lengths.sum(), 4 + 3);
  EXPECT_EQ(tally.decode.sum(), 18'000);
}

// What each had when it was given up.
TEST(Answers, KnowWhatTheirPromptsCostBeforeTheyAreWhole) {
  for (const bool stream : {false, true}) {
    AnswerPlan plan;
    plan.stream = stream;
    plan.copies = 2;
    plan.echoes = {"", ""};
    Answer answer(std::move(plan));
    EXPECT_EQ(answer.stats().prompt_tokens, 0);
    AnswerUpdate cost = ended(2, 1, FinishReason::kNone);
    EXPECT_FALSE(takes_long(answer, cost));
    const AnswerOutput output = answer.take(std::move(cost));
    EXPECT_FALSE(output.ends || output.whole.has_value());
    EXPECT_EQ(answer.stats().prompt_tokens, 7);
    EXPECT_EQ(answer.stats().ttft_us, 3'000);
    AnswerTally tally;
    answer.count_into(tally);
    EXPECT_EQ(tally.answer_lengths.samples(), 0);
  }
}

// One token is computed, and nobody asked for it.
TEST(Answers, ThatShowThePromptOnlyHaveNoLength) {
  AnswerPlan plan;
  plan.prompt_only = true;
  Answer answer(std::move(plan));
  answer.take(ended(0, 1, FinishReason::kLength));
  AnswerTally tally;
  answer.count_into(tally);
  EXPECT_EQ(tally.prompt_lengths.sum(), 7);
  EXPECT_EQ(tally.answer_lengths.samples(), 1);
  EXPECT_EQ(tally.answer_lengths.sum(), 0);
}

TEST(Answers, ThatShowThePromptOnlyEndAtTheirLength) {
  AnswerPlan plan;
  plan.prompt_only = true;
  Answer answer(std::move(plan));
  AnswerUpdate stopped = ended(0, 1, FinishReason::kStop);
  stopped.stop_reason = TokenId{2};
  const TemplateJson body = TemplateJson::parse(answer.take(std::move(stopped)).whole.value().body);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["stop_reason"], nullptr);
}

// Whoever is told so asks again.
TEST(Answers, ThatTheEngineHasNoRoomForAreNoFaultOfTheirs) {
  for (const auto& [code, status] : {std::pair(ErrorCode::kTooLarge, 429),
                                     {ErrorCode::kInvalidArgument, 400},
                                     {ErrorCode::kInternal, 500}}) {
    Answer answer = answer_of(/*stream=*/true);
    AnswerUpdate update = failure();
    update.error.code = code;
    const AnswerOutput output = answer.take(std::move(update));
    EXPECT_EQ(output.whole.value().status, status);
    const auto& headers = output.whole->headers;
    const bool says_when = std::any_of(headers.begin(), headers.end(), [](const auto& header) {
      return header == std::pair<std::string, std::string>("Retry-After", "1");
    });
    EXPECT_EQ(says_when, status == 429);
  }
}

TEST(Answers, ThatAreRefusedForWantOfAKeySayWhichIsWanted) {
  const auto asks = [](const ApiError& error) {
    const HttpResponse response = error_response(error, "r1");
    return std::count_if(response.headers.begin(), response.headers.end(), [](const auto& header) {
      return header == std::pair<std::string, std::string>("WWW-Authenticate", "Bearer");
    });
  };
  EXPECT_EQ(asks(not_allowed("")), 1);
  EXPECT_EQ(asks(forbidden("")), 0);
}

TEST(Answers, ThatMayCallOnceTellTheFirstCallAlone) {
  for (const bool several : {false, true}) {
    AnswerPlan plan;
    plan.call_style = ToolCallStyle::kTagged;
    plan.calls_in_parallel = several;
    plan.stream = true;
    Answer answer(std::move(plan));
    const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
    answer.take(piece(call + call));
    AnswerUpdate last = piece(call);
    last.finish = FinishReason::kStop;
    const std::string events = answer.take(std::move(last)).events;
    EXPECT_EQ(events.find("tool_calls\":[") != std::string::npos, several);
    EXPECT_NE(events.find(R"("finish_reason":"tool_calls")"), std::string::npos);
  }
}

TEST(Answers, WhoseThoughtsAreNotToldLeaveOutTheirLogprobs) {
  AnswerPlan plan;
  plan.tells_thoughts = false;
  plan.has_logprobs = true;
  Answer answer(std::move(plan));
  AnswerUpdate update = last_piece();
  update.thoughts = "hm";
  update.chances = chances(3);
  update.chances[0].is_thought = true;
  const TemplateJson body = TemplateJson::parse(answer.take(std::move(update)).whole.value().body);
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"].size(), 2U);
  EXPECT_FALSE(body["choices"][0]["message"].contains("reasoning_content"));
}

// It was asked for to be cached.
TEST(Answers, OfAReceiptAloneAreNothingElse) {
  AnswerPlan plan;
  plan.receipt_only = true;
  Answer answer(std::move(plan));
  const TemplateJson body =
      TemplateJson::parse(answer.take(ended(0, 1, FinishReason::kLength)).whole.value().body);
  EXPECT_EQ(body["prompt_tokens"], 7);
  EXPECT_FALSE(body.contains("choices"));
}

}  // namespace
}  // namespace stemma
