// Covers the engine's thread: every job ends with one update for each of its answers, whatever
// happens when; a cancel, at any moment, ends what it is for and leaves nothing behind (fault 12).
#include "server/serving_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/serving_loop_fixture.h"

namespace stemma {
namespace {

TEST_F(ServingLoopTest, SaysSoWhereEveryStepFails) {
  open();
  model_->is_lost = true;
  for (int request = 1; request < 5; ++request) {
    ASSERT_TRUE(submit(job(request, 10, 8)));
    updates_->wait_for_ends(request);
  }
  EXPECT_EQ(loop_->fault(), "failing");
}

TEST_F(ServingLoopTest, SaysSoWhileAStepDoesNotEnd) {
  open();
  ASSERT_TRUE(submit(job(1, 10, 8)));
  while (loop_->fault() != "stalled") std::this_thread::yield();
  model_->let_all_go();
  while (!loop_->fault().empty()) std::this_thread::yield();
}

TEST_F(ServingLoopTest, AnAnswerComesInPiecesAndEndsOnce) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 8)));
  updates_->wait_for_ends(1);
  const Updates::Answer answer = updates_->answer(1);
  EXPECT_EQ(answer.firsts, 1);
  EXPECT_EQ(answer.last.finish, FinishReason::kLength);
  EXPECT_EQ(answer.last.stats.output_tokens, 8);
  EXPECT_EQ(answer.tokens.size(), 8U);
  EXPECT_EQ(answer.text, tokenizer_.decode(answer.tokens, true));
  expect_nothing_left();
}

TEST_F(ServingLoopTest, AnAnswerThatIsWantedWholeComesInOneUpdateBehindWhatItsPromptCost) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 8)));
  AnswerJob whole = job(2, 10, 8, 2);
  whole.in_pieces = false;
  ASSERT_TRUE(submit(std::move(whole)));
  updates_->wait_for_ends(3);
  EXPECT_EQ(updates_->answer(2).updates, 2);
  EXPECT_EQ(updates_->answer(2).first.stats.prompt_tokens, 10);
  EXPECT_EQ(updates_->answer(2, 1).updates, 1) << "of the same prompt";
  EXPECT_EQ(updates_->answer(2).text, updates_->answer(1).text);
  EXPECT_EQ(updates_->answer(2).tokens, updates_->answer(1).tokens);
  EXPECT_EQ(updates_->answer(2).firsts, 1);
  expect_nothing_left();
}

TEST_F(ServingLoopTest, TokensAreCountedAsTheyCome) {
  open_freely();
  EXPECT_EQ(loop_->output_tokens(), 0);
  ASSERT_TRUE(submit(job(1, 10, 8, 2)));
  updates_->wait_for_ends(2);
  EXPECT_EQ(loop_->output_tokens(), 16);
  expect_nothing_left();
}

// Which nobody ends: all that a model writes is thoughts, and each of its tokens one of them.
TEST_F(ServingLoopTest, ThoughtsAreNoText) {
  tokenizer_ = words();
  open_freely();
  for (const std::int64_t exchange : {1, 2}) {
    AnswerJob thinks = job(exchange, 10, 8);
    thinks.in_pieces = exchange == 1;
    thinks.prompts[0].thoughts = ThoughtPlace::kInside;
    thinks.prompts[0].spec.logprobs = 1;
    ASSERT_TRUE(submit(std::move(thinks)));
  }
  ASSERT_TRUE(submit(job(3, 10, 8)));
  updates_->wait_for_ends(3);
  for (const std::int64_t exchange : {1, 2}) {
    const Updates::Answer answer = updates_->answer(exchange);
    EXPECT_EQ(answer.text, "");
    EXPECT_EQ(answer.thoughts, updates_->answer(3).text);
    EXPECT_EQ(answer.last.thought_tokens, 8);
    ASSERT_EQ(answer.chances.size(), 8U);
    for (const TokenChance& chance : answer.chances) EXPECT_TRUE(chance.is_thought);
  }
  EXPECT_EQ(updates_->answer(3).last.thought_tokens, 0);
  expect_nothing_left();
}

// Its mark may come in pieces, behind white space: until it is whole, nobody knows what they are.
TEST_F(ServingLoopTest, TokensBeforeThoughtsAreNoTextEither) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 8)));
  updates_->wait_for_ends(1);
  const std::vector<TokenId> tokens = updates_->answer(1).tokens;
  ASSERT_EQ(std::set<TokenId>(tokens.begin(), tokens.end()).size(), 8U);
  const std::vector<std::string> thinking = {"▁", "<thi", "nk>", "hm", "</think>", "yes"};
  const std::vector<std::string> plain = {"▁", "<thi", "s>"};
  for (const auto& [exchange, texts] : {std::pair(2, thinking), {3, plain}}) {
    std::map<TokenId, std::string> written;
    for (std::size_t i = 0; i < texts.size(); ++i) written[tokens[i]] = texts[i];
    loop_.reset();
    tokenizer_ = words(written);
    open_freely();
    AnswerJob wanted = job(exchange, 10, std::ssize(texts));
    wanted.prompts[0].thoughts = ThoughtPlace::kBefore;
    wanted.prompts[0].spec.logprobs = 1;
    ASSERT_TRUE(submit(std::move(wanted)));
    updates_->wait_for_ends(1);
    const Updates::Answer answer = updates_->answer(exchange);
    EXPECT_EQ(answer.text, exchange == 2 ? "yes" : "<this>");
    ASSERT_EQ(answer.chances.size(), texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(answer.chances[i].is_thought, exchange == 2 && i < 5) << i;
    }
    EXPECT_EQ(answer.last.thought_tokens, exchange == 2 ? 5 : 0);
  }
  expect_nothing_left();
}

TEST_F(ServingLoopTest, TokensThatLogprobsAreOfAreTheTextInPiecesAndWhole) {
  tokenizer_ = words();
  open_freely();
  for (const std::int64_t exchange : {1, 2}) {
    AnswerJob wanted = job(exchange, 10, 8);
    wanted.in_pieces = exchange == 1;
    wanted.prompts[0].spec.logprobs = 2;
    ASSERT_TRUE(submit(std::move(wanted)));
  }
  updates_->wait_for_ends(2);
  for (const std::int64_t exchange : {1, 2}) {
    const Updates::Answer answer = updates_->answer(exchange);
    std::string joined;
    std::int64_t characters = 0;
    for (const TokenChance& chance : answer.chances) {
      EXPECT_EQ(chance.first_character, characters);
      EXPECT_EQ(chance.likeliest.at(1).text.starts_with(" "), !joined.empty());
      joined += chance.token.text;
      characters += std::ssize(chance.token.text) - 1;  // one letter has two bytes
    }
    EXPECT_EQ(answer.chances.size(), 8U);
    EXPECT_EQ(joined, answer.text);
  }
  expect_nothing_left();
}

// In pieces and whole, in front of the answer, behind those that are given; none where the prompt
// is one token.
TEST_F(ServingLoopTest, TheFirstAnswerToAPromptBringsTheChancesOfItsTokens) {
  tokenizer_ = words();
  open_freely();
  std::map<std::int64_t, GivenTokens> given;
  for (const std::int64_t tokens : {1, 10}) {
    for (const std::int64_t in_pieces : {0, 1}) {
      AnswerJob wanted = job(tokens + in_pieces, tokens, 3, 2);
      wanted.in_pieces = in_pieces == 1;
      wanted.prompts[0].spec.prompt_logprobs = 2;
      wanted.prompts[0].spec.prompt_logprobs_from = tokens == 10 ? 4 : 1;
      const auto first = std::span(wanted.prompts[0].spec.prompt).first(tokens == 10 ? 4 : 1);
      given[tokens + in_pieces] = {&tokenizer_, {}, {first.begin(), first.end()}};
      wanted.prompts[0].of_prompt = given[tokens + in_pieces].behind();
      ASSERT_TRUE(submit(std::move(wanted)));
    }
  }
  updates_->wait_for_ends(8);
  for (const std::int64_t exchange : {1, 2, 10, 11}) {
    std::vector<TokenChance> chances = given[exchange].read();
    const std::vector<TokenChance> told = updates_->answer(exchange).of_prompt;
    chances.insert(chances.end(), told.begin(), told.end());
    ASSERT_EQ(chances.size(), exchange < 10 ? 1U : 10U);
    EXPECT_TRUE(updates_->answer(exchange, 1).of_prompt.empty());
    std::int64_t characters = 0;
    for (std::size_t i = 0; i < chances.size(); ++i) {
      EXPECT_EQ(chances[i].token.token, static_cast<TokenId>(i * 5 % 60));
      const bool is_given = i < (exchange < 10 ? 1U : 4U);
      EXPECT_EQ(chances[i].is_given, is_given);
      EXPECT_EQ(chances[i].likeliest.size(), is_given ? 0U : 2U);
      EXPECT_EQ(chances[i].token.text.starts_with(" "), i > 0);
      EXPECT_EQ(chances[i].first_character, characters);
      characters += std::ssize(chances[i].token.text) - 1;  // one letter has two bytes
    }
  }
  expect_nothing_left();
}

TEST_F(ServingLoopTest, AnswersOfOneExchangeAreNumberedOverItsPrompts) {
  open_freely();
  AnswerJob wanted = job(7, 10, 4, 2);
  wanted.prompts.push_back(job(7, 3, 5, 3).prompts[0]);
  ASSERT_TRUE(submit(std::move(wanted)));
  updates_->wait_for_ends(5);
  for (std::int64_t index = 0; index < 5; ++index) {
    EXPECT_EQ(updates_->answer(7, index).tokens.size(), index < 2 ? 4U : 5U) << index;
  }
  expect_nothing_left();
}

TEST_F(ServingLoopTest, AStopStringEndsAnAnswerAndIsPartOfItWhereItIsShown) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 30)));
  updates_->wait_for_ends(1);
  const std::string whole = updates_->answer(1).text;
  ASSERT_GT(whole.size(), 8U);
  const std::string stop = whole.substr(4, 3);
  for (const std::int64_t shows : {0, 1}) {
    AnswerJob stopped = job(2 + shows, 10, 30);
    stopped.prompts[0].text = {.stop = {stop}, .shows_stop = shows == 1};
    ASSERT_TRUE(submit(std::move(stopped)));
    updates_->wait_for_ends(2 + shows);
    const Updates::Answer answer = updates_->answer(2 + shows);
    EXPECT_EQ(answer.last.finish, FinishReason::kStop);
    EXPECT_EQ(answer.last.stop_reason, StopReason(stop));
    EXPECT_EQ(answer.text, whole.substr(0, whole.find(stop) + (shows == 1 ? stop.size() : 0)));
  }
  expect_nothing_left();
}

TEST_F(ServingLoopTest, AStopTokenIsPartOfTheAnswerWhereItIsShown) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 12)));
  updates_->wait_for_ends(1);
  const std::vector<TokenId> whole = updates_->answer(1).tokens;
  const auto end = std::find(whole.begin(), whole.end(), whole[4]) + 1;
  for (const bool shows : {false, true}) {
    AnswerJob stopped = job(shows ? 3 : 2, 10, 12);
    stopped.prompts[0].spec.stop_tokens = {whole[4]};
    stopped.prompts[0].spec.logprobs = 0;
    stopped.prompts[0].text.shows_stop = shows;
    ASSERT_TRUE(submit(std::move(stopped)));
    updates_->wait_for_ends(shows ? 3 : 2);
    const Updates::Answer answer = updates_->answer(shows ? 3 : 2);
    const std::vector<TokenId> wanted(whole.begin(), shows ? end : end - 1);
    EXPECT_EQ(answer.last.finish, FinishReason::kStop);
    EXPECT_EQ(answer.tokens, wanted);
    EXPECT_EQ(answer.chances.size(), wanted.size());
    EXPECT_EQ(answer.text, tokenizer_.decode(wanted, true));
  }
  expect_nothing_left();
}

// Evaluations of models take all tokens but the last one, which was generated, for the prompt's.
TEST_F(ServingLoopTest, AStopTokenThatIsNotShownHasItsChanceWhereThatIsWanted) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 8)));
  updates_->wait_for_ends(1);
  const TokenId first = updates_->answer(1).tokens.front();
  for (const std::int64_t tells : {0, 1}) {
    AnswerJob wanted = job(2 + tells, 10, 8);
    wanted.prompts[0].spec.stop_tokens = {first};
    wanted.prompts[0].spec.logprobs = 0;
    wanted.prompts[0].tells_end = tells == 1;
    ASSERT_TRUE(submit(std::move(wanted)));
    updates_->wait_for_ends(2 + tells);
    const Updates::Answer answer = updates_->answer(2 + tells);
    EXPECT_EQ(answer.last.finish, FinishReason::kStop);
    EXPECT_EQ(answer.text, "");
    EXPECT_TRUE(answer.tokens.empty());
    EXPECT_EQ(std::ssize(answer.chances), tells);
  }
  expect_nothing_left();
}

TEST_F(ServingLoopTest, TheTokenThatEndsAStopStringHasItsChance) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 30)));
  updates_->wait_for_ends(1);
  AnswerJob stopped = job(2, 10, 30);
  stopped.prompts[0].text.stop = {updates_->answer(1).text.substr(4, 3)};
  stopped.prompts[0].spec.logprobs = 1;
  ASSERT_TRUE(submit(std::move(stopped)));
  updates_->wait_for_ends(2);
  EXPECT_EQ(updates_->answer(2).last.finish, FinishReason::kStop);
  EXPECT_EQ(updates_->answer(2).chances.size(), updates_->answer(2).tokens.size());
  expect_nothing_left();
}

TEST_F(ServingLoopTest, NoStopStringEndsAnAnswerBeforeMinTokens) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 30)));
  updates_->wait_for_ends(1);
  const Updates::Answer whole = updates_->answer(1);
  const std::string begin = tokenizer_.decode(std::span(whole.tokens).first(3), true);
  AnswerJob stopped = job(2, 10, 30);
  stopped.prompts[0].text = {.stop = {begin.substr(0, 2)}, .min_tokens = 30};
  ASSERT_TRUE(submit(std::move(stopped)));
  updates_->wait_for_ends(2);
  EXPECT_EQ(updates_->answer(2).last.finish, FinishReason::kLength);
  EXPECT_EQ(updates_->answer(2).text, whole.text);
  expect_nothing_left();
}

// As "is" and " Paris", which are not "isParis".
TEST_F(ServingLoopTest, ATextThatGoesOnKeepsTheSpaceOfItsFirstToken) {
  tokenizer_ = words();
  open_freely();
  for (const bool goes_on : {false, true}) {
    AnswerJob wanted = job(goes_on ? 1 : 2, 10, 4);
    wanted.prompts[0].text.goes_on = goes_on;
    wanted.prompts[0].spec.logprobs = 0;
    ASSERT_TRUE(submit(std::move(wanted)));
  }
  updates_->wait_for_ends(2);
  EXPECT_EQ(updates_->answer(1).text, " " + updates_->answer(2).text);
  EXPECT_EQ(updates_->answer(1).chances[0].token.text,
            " " + updates_->answer(2).chances[0].token.text);
  expect_nothing_left();
}

// Steps: prompt of 10 in chunks of 6 and 4, then 5 outputs. The cancel comes before any step, and
// behind each of them; beside a request that goes on.
TEST_F(ServingLoopTest, ACancelAtAnyStepEndsWhatItIsForAndNothingElse) {
  for (std::int64_t steps = 0; steps <= 9; ++steps) {
    SCOPED_TRACE(steps);
    open();
    ASSERT_TRUE(submit(job(1, 10, 5, 2)));
    ASSERT_TRUE(submit(job(2, 9, 6)));
    if (steps > 0) {
      model_->wait_for_step();
      model_->let_go(steps);
    }
    loop_->cancel(ExchangeId(1));
    model_->let_all_go();
    updates_->wait_for_ends(3);
    for (const std::int64_t index : {0, 1}) {
      const Updates::Answer answer = updates_->answer(1, index);
      EXPECT_EQ(answer.ends, 1);
      const bool whole = answer.tokens.size() == 5;
      EXPECT_EQ(answer.last.finish, whole ? FinishReason::kLength : FinishReason::kCancelled);
    }
    EXPECT_EQ(updates_->answer(2).tokens.size(), 6U);
    expect_nothing_left();
  }
}

TEST_F(ServingLoopTest, ACancelRightBehindItsJobIsNotLost) {
  open();
  ASSERT_TRUE(submit(job(1, 10, 5)));
  model_->wait_for_step();
  ASSERT_TRUE(submit(job(2, 10, 100)));
  loop_->cancel(ExchangeId(2));
  loop_->cancel(ExchangeId(2));
  loop_->cancel(ExchangeId(3));
  model_->let_all_go();
  updates_->wait_for_ends(2);
  EXPECT_EQ(updates_->answer(2).last.finish, FinishReason::kCancelled);
  expect_nothing_left();
}

TEST_F(ServingLoopTest, AFullQueueSaysSoAndTakesCancelsAllTheSame) {
  open(/*messages_max=*/2);
  ASSERT_TRUE(submit(job(1, 10, 5)));
  model_->wait_for_step();
  for (const std::int64_t exchange : {2, 3}) EXPECT_TRUE(submit(job(exchange, 3, 100)));
  EXPECT_FALSE(submit(job(4, 3, 1)));
  EXPECT_FALSE(loop_->ask([](Engine&) {}));
  for (const std::int64_t exchange : {1, 3}) loop_->cancel(ExchangeId(exchange));
  EXPECT_EQ(loop_->answers_in_flight(), 3);
  model_->let_all_go();
  updates_->wait_for_ends(3);
  EXPECT_EQ(updates_->answer(3).last.finish, FinishReason::kCancelled);
  expect_nothing_left();
}

TEST_F(ServingLoopTest, WhatTheEngineRefusesEndsAsFailed) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 500, 2)));
  updates_->wait_for_ends(2);
  for (const std::int64_t index : {0, 1}) {
    EXPECT_EQ(updates_->answer(1, index).last.finish, FinishReason::kFailed);
    EXPECT_EQ(updates_->answer(1, index).last.error.code, ErrorCode::kTooLarge);
  }
  expect_nothing_left();
}

TEST_F(ServingLoopTest, QuestionsAreAskedBetweenSteps) {
  open();
  ASSERT_TRUE(submit(job(1, 10, 5)));
  model_->wait_for_step();
  std::int64_t output_tokens = -1;
  ASSERT_TRUE(loop_->ask([&](Engine& engine) { output_tokens = engine.totals().output_tokens; }));
  model_->let_all_go();
  updates_->wait_for_ends(1);
  loop_.reset();
  EXPECT_GE(output_tokens, 0);
}

TEST_F(ServingLoopTest, StoppingLetsAnswersEndAndTakesNoMore) {
  open();
  ASSERT_TRUE(submit(job(1, 10, 5)));
  model_->wait_for_step();
  loop_->stop();
  EXPECT_FALSE(submit(job(2, 10, 5)));
  model_->let_all_go();
  loop_.reset();
  EXPECT_EQ(updates_->answer(1).last.finish, FinishReason::kLength);
  EXPECT_EQ(updates_->answer(2).ends, 0);
}

}  // namespace
}  // namespace stemma
