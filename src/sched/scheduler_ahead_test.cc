// Nothing is planned ahead where a plan might let somebody in who waits.
#include <gtest/gtest.h>

#include "sched/scheduler_fixture.h"

namespace stemma {
namespace {

// What it held is for who waits as soon as it has ended.
TEST(SchedulerAhead, NoStepFollowsTheEndOfOneWhoseRowSomebodyWaitsFor) {
  assume_role(engine_thread);
  EngineOptions options = options_for(4, 64);
  options.kv.requests_max = 2;
  Bench bench(options);
  bench.scheduler().allow_ahead();
  bench.submit(1, text(0, 8), 2);
  bench.submit(2, text(100, 8), 40);
  bench.step();
  bench.submit(3, text(200, 8), 2);
  EXPECT_EQ(bench.plan(), (Ids{1, 2}));
  EXPECT_EQ(bench.scheduler().held_back(), Admission::kNoRow);
  EXPECT_TRUE(bench.scheduler().plan_ahead()) << "its row is held until the step is complete";
  bench.complete();
  bench.scheduler().enter_ahead();
  EXPECT_FALSE(bench.scheduler().plan_ahead());
  bench.complete();
  EXPECT_EQ(bench.plan(), (Ids{2, 3}));
  bench.complete();
  bench.run();
}

//   1  0 1 2 …     computed by chunks
//   2  0 1 2 │     waits for what the first one computes
//   3  …           lacks pages, and is the last one that is looked at
TEST(SchedulerAhead, NoStepFollowsAPromptThatSomebodyWaitsForWhoeverLacksPages) {
  assume_role(engine_thread);
  EngineOptions options = options_for(4, 32);
  options.scheduler.chunk_tokens_max = 8;
  Bench bench(options);
  bench.scheduler().allow_ahead();
  bench.submit(1, text(0, 40), 2);
  bench.submit(2, text(0, 17) + text(900, 3), 2);
  bench.submit(3, text(1000, 100), 2);
  EXPECT_EQ(bench.plan(), Ids({1}));
  EXPECT_EQ(bench.scheduler().held_back(), Admission::kNoPages);
  EXPECT_FALSE(bench.scheduler().plan_ahead());
  bench.complete();
  bench.run();
}

}  // namespace
}  // namespace stemma
