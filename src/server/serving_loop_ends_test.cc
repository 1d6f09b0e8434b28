// What an answer has when it ends, however it does: all of its text, what it cost, and an end that
// a stop of the loop waits for.
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "server/serving_loop_fixture.h"

namespace stemma {
namespace {

class ServingLoopEnds : public ServingLoopTest {};

TEST_F(ServingLoopEnds, WhatMightHaveBecomeAStopStringIsTextInTheEnd) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 8)));
  updates_->wait_for_ends(1);
  const std::string whole = updates_->answer(1).text;
  ASSERT_GT(whole.size(), 2U);
  AnswerJob begun = job(2, 10, 8);
  begun.prompts[0].text.stop = {whole.substr(whole.size() - 2) + "and more"};
  ASSERT_TRUE(submit(std::move(begun)));
  updates_->wait_for_ends(2);
  EXPECT_EQ(updates_->answer(2).text, whole);
  EXPECT_EQ(updates_->answer(2).last.finish, FinishReason::kLength);
  expect_nothing_left();
}

TEST_F(ServingLoopEnds, WhatMightHaveBecomeThoughtsIsTextInTheEnd) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 2)));
  updates_->wait_for_ends(1);
  const std::vector<TokenId> tokens = updates_->answer(1).tokens;
  loop_.reset();
  tokenizer_ = words({{tokens[0], "▁"}, {tokens[1], "<thi"}});
  open_freely();
  AnswerJob wanted = job(2, 10, 2);
  wanted.prompts[0].thoughts = ThoughtPlace::kBefore;
  wanted.prompts[0].spec.logprobs = 0;
  ASSERT_TRUE(submit(std::move(wanted)));
  updates_->wait_for_ends(1);
  EXPECT_EQ(updates_->answer(2).text, "<thi");
  EXPECT_EQ(updates_->answer(2).chances.size(), 2U);
  EXPECT_EQ(updates_->answer(2).last.thought_tokens, 0);
  expect_nothing_left();
}

TEST_F(ServingLoopEnds, AStopStringSaysWhatTheAnswerCost) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 30)));
  updates_->wait_for_ends(1);
  AnswerJob stopped = job(2, 10, 30);
  stopped.prompts[0].text.stop = {updates_->answer(1).text.substr(4, 3)};
  ASSERT_TRUE(submit(std::move(stopped)));
  updates_->wait_for_ends(2);
  const AnswerUpdate last = updates_->answer(2).last;
  EXPECT_EQ(last.finish, FinishReason::kStop);
  EXPECT_EQ(last.stats.prompt_tokens, 10);
  EXPECT_EQ(last.stats.output_tokens, last.output_tokens);
  EXPECT_GT(last.stats.output_tokens, 0);
  expect_nothing_left();
}

TEST_F(ServingLoopEnds, ACancelSaysWhatTheAnswerCost) {
  open();
  ASSERT_TRUE(submit(job(1, 10, 100)));
  model_->wait_for_step();
  model_->let_go(4);
  model_->wait_for_step();
  loop_->cancel(ExchangeId(1));
  model_->let_all_go();
  updates_->wait_for_ends(1);
  const AnswerUpdate last = updates_->answer(1).last;
  EXPECT_EQ(last.finish, FinishReason::kCancelled);
  EXPECT_EQ(last.stats.prompt_tokens, 10);
  EXPECT_EQ(last.stats.output_tokens, last.output_tokens);
  expect_nothing_left();
}

TEST_F(ServingLoopEnds, APromptOfSeveralAnswersCountsOnce) {
  open_freely();
  ASSERT_TRUE(submit(job(1, 10, 4, 3)));
  updates_->wait_for_ends(3);
  PromptTally prompts;
  std::promise<void> told;
  ASSERT_TRUE(loop_->ask([&](Engine&) {
    prompts = loop_->prompts();
    told.set_value();
  }));
  told.get_future().wait();
  expect_nothing_left();
  EXPECT_EQ(prompts.tokens, 10);
  EXPECT_EQ(prompts.ttft.samples(), 1);
}

// Somebody waits for what it looks for: a purge that is to be confirmed.
TEST_F(ServingLoopEnds, AStopWaitsForWhoWatches) {
  open_freely();
  std::int64_t looks = 0;
  ASSERT_TRUE(loop_->watch([&](Engine&) { return ++looks == 3; }));
  loop_->stop();
  loop_.reset();
  EXPECT_EQ(looks, 3);
}

}  // namespace
}  // namespace stemma
