// Requests that have the prompt of another one, and wait for it to be computed.
#include <gtest/gtest.h>

#include <vector>

#include "sched/scheduler_fixture.h"

namespace stemma {
namespace {

class SchedulerForks : public ::testing::Test {
 protected:
  SchedulerForks() {
    assume_role(engine_thread);
    ns = *bench.kv().try_open_namespace({});
    first = &bench.submit(1, prompt(), 10);
    second = bench.scheduler().try_submit_or_null({.id = RequestId(2),
                                                   .ns = ns,
                                                   .prompt = prompt(),
                                                   .output_tokens_max = 10,
                                                   .fork_of = RequestId(1)});
  }
  static std::vector<TokenId> prompt() {
    std::vector<TokenId> tokens = text(0, 10);
    tokens.reserve(20);
    return tokens;
  }

  Bench bench{options_for(4, 64)};
  NamespaceId ns;
  Request* first = nullptr;
  Request* second = nullptr;
};

TEST_F(SchedulerForks, RunAsSoonAsThePromptIsComputed) {
  assume_role(engine_thread);
  EXPECT_EQ(bench.step(), Ids({1}));
  ASSERT_TRUE(bench.scheduler().try_fork(*first, *second).has_value());
  EXPECT_EQ(second->state(), RequestState::kRunning);
  EXPECT_EQ(second->cached_tokens, 10);
  EXPECT_EQ(bench.scheduler().totals().forks, 1);
}

// Its next token could be chosen by nobody.
TEST_F(SchedulerForks, ThatRestWaitAsAnyOther) {
  assume_role(engine_thread);
  EXPECT_EQ(bench.step(), Ids({1}));
  second->rests = true;
  EXPECT_FALSE(bench.scheduler().try_fork(*first, *second).has_value());
  EXPECT_EQ(second->state(), RequestState::kWaiting);
  EXPECT_FALSE(second->deferred());
  second->rests = false;
  bench.run();
  EXPECT_EQ(bench.scheduler().totals().forks, 0);
}

TEST_F(SchedulerForks, ComputeForThemselvesWhereItGivesUp) {
  assume_role(engine_thread);
  bench.plan();
  bench.scheduler().cancel(*first);
  EXPECT_FALSE(second->deferred());
  EXPECT_EQ(bench.step(), Ids({2}));
  bench.run();
}

// Its turn is that of when it came: nobody who came later goes first.
TEST(SchedulerForksOrder, WhoWaitsForNobodyAnyMoreIsNotPutLast) {
  assume_role(engine_thread);
  EngineOptions options = options_for(4, 64);
  options.kv.requests_max = 1;
  options.scheduler.policy = SchedulePolicy::kLpm;
  Bench bench(options);
  Request& first = bench.submit(1, text(0, 10), 10);
  bench.plan();
  Request* const fork =
      bench.scheduler().try_submit_or_null({.id = RequestId(2),
                                            .ns = *bench.kv().try_open_namespace({}),
                                            .prompt = text(0, 10),
                                            .fork_of = RequestId(1)});
  bench.submit(3, text(1000, 10));
  bench.complete();
  EXPECT_EQ(bench.plan(), Ids({1}));
  EXPECT_EQ(bench.scheduler().waiting_requests().back(), fork);
  bench.scheduler().cancel(first);
  bench.plan();
  EXPECT_EQ(fork->state(), RequestState::kPrefilling);
}

}  // namespace
}  // namespace stemma
