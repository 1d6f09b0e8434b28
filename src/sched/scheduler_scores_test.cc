// Prompts that are scored: every token's logits are wanted, of which a step gives but some.
#include <gtest/gtest.h>

#include "sched/scheduler_fixture.h"

namespace stemma {
namespace {

// It is looked up token by token, and is a prompt all the same.
TEST(SchedulerScores, TheCacheIsToldOfTheWholePromptOfWhoScoresIt) {
  EngineOptions options = options_for(4, 64);
  options.scheduler.scored_tokens_max = 8;
  Bench bench(options);
  Request& scored = bench.submit(1, text(0, 40), 10);
  scored.scores_prompt = true;
  bench.step();
  EXPECT_EQ(scored.sequence.prompt_tokens(), 40);
  bench.run();
}

// Its tokens come a few a step, and in their turn behind those of others that are scored.
TEST(SchedulerScores, NobodyWaitsForAPromptThatIsScored) {
  EngineOptions options = options_for(4, 64);
  options.scheduler.scored_tokens_max = 8;
  Bench bench(options);
  Request& scored = bench.submit(1, text(0, 40));
  scored.scores_prompt = true;
  bench.step();
  Request& plain = bench.submit(2, text(0, 32) + text(900, 1), 2);
  EXPECT_EQ(bench.step(), (Ids{1, 2}));
  EXPECT_EQ(plain.state(), RequestState::kRunning) << "it computed what was missing";
  bench.run();
}

// Rows are for who computes something: of prompts that are scored those whose turn it is.
TEST(SchedulerScores, WhoCannotBeScoredYetTakesNoRow) {
  EngineOptions options = options_for(4, 64);
  options.kv.requests_max = 2;
  options.scheduler.scored_tokens_max = 8;
  Bench bench(options);
  for (const int id : {1, 2}) bench.submit(id, text(100 * id, 12)).scores_prompt = true;
  bench.submit(3, text(900, 4));
  EXPECT_EQ(bench.step(), (Ids{1, 3}));
  EXPECT_EQ(bench.scheduler().held_back(), Admission::kNoScores);
  EXPECT_EQ(bench.step(), (Ids{1, 2})) << "the 3 that are left of the first one leave 5";
  bench.run();
}

// Rows of logits that are left bound what a step scores, not what it computes again.
TEST(SchedulerScores, TokensWhoseLogitsWereHadTakeNoneThatAreLeft) {
  EngineOptions options = options_for(4, 64);
  options.scheduler.scored_tokens_max = 8;
  Bench bench(options);
  Request& scored = bench.submit(1, text(0, 40), 10);
  scored.scores_prompt = true;
  scored.scored_tokens = 20;
  bench.plan();
  EXPECT_EQ(scored.scheduled_tokens, 20 + 8);
  bench.complete();
  bench.run();
}

}  // namespace
}  // namespace stemma
