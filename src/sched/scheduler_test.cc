// Covers the scheduler without a model: budgets, chunks, admission reasons, in-batch prefix sharing
// ("no token twice"), preemption, and that every list agrees with every state after each step.
#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "sched/scheduler_fixture.h"

namespace stemma {
namespace {

TEST(Scheduler, AStepTakesNoLongerThanItMayAsFarAsIsKnown) {
  assume_role(engine_thread);
  EngineOptions options = options_for(4, 200);
  options.scheduler.step_us_max = 2000;
  Bench bench(options);
  bench.submit(1, text(0, 600));
  bench.plan();
  EXPECT_EQ(bench.scheduler().batch().rows(), 256) << "nothing is known yet";
  bench.complete();
  bench.scheduler().note_pace(100, 2000);
  bench.plan();
  EXPECT_EQ(bench.scheduler().batch().rows(), 100);
  bench.complete();
  bench.scheduler().note_pace(1, 1'000'000);
  bench.plan();
  EXPECT_EQ(bench.scheduler().batch().rows(), 64) << "fewer are not worth reading the weights";
  bench.complete();
  bench.run();
}

TEST(Scheduler, WhoRestsComputesNothingWhoseTokenWouldBeChosen) {
  Bench bench(options_for(4, 200));
  Request& rests = bench.submit(1, text(0, 20), 10);
  rests.rests = true;
  bench.submit(2, text(100, 20), 10);
  EXPECT_EQ(bench.step(), Ids({1, 2}));
  EXPECT_EQ(rests.computed_tokens, 19) << "all but the token whose logits would be used";
  EXPECT_EQ(bench.step(), Ids({2}));
  rests.rests = false;
  EXPECT_EQ(bench.step(), Ids({2, 1}));
  EXPECT_EQ(rests.generated_tokens(), 1);
  rests.rests = true;
  EXPECT_EQ(bench.step(), Ids({2}));
  rests.rests = false;
  bench.run();
}

TEST(Scheduler, NobodyWaitsForThePageThatALeaderRestsBefore) {
  Bench bench(options_for(4, 200));
  Request& leader = bench.submit(1, text(0, 20), 10);
  bench.submit(2, text(0, 30), 10);
  leader.rests = true;
  EXPECT_EQ(bench.step(), Ids({1})) << "its first 16 tokens are for both";
  EXPECT_EQ(bench.step(), Ids({2}));
  EXPECT_EQ(bench.scheduler().find_or_null(RequestId(2))->cached_tokens, 16);
  leader.rests = false;
  bench.run();
}

TEST(Scheduler, WhoRestsIsNotTakenForStuck) {
  Bench bench(options_for(4, 200));
  Request& one = bench.submit(1, text(0, 20), 10);
  Request& other = bench.submit(2, text(100, 20), 10);
  bench.step();
  one.rests = other.rests = true;
  EXPECT_EQ(bench.step(), Ids());
  EXPECT_EQ(bench.scheduler().totals().preemptions, 0);
  one.rests = other.rests = false;
  bench.run();
}

TEST(Scheduler, SharedPrefixesWaitForTheirLeaderAndHoldNobodyElseUp) {
  Bench bench(options_for(16, 64));
  const auto shared = text(0, 64);
  bench.submit(1, shared + text(5000, 1));
  Request& second = bench.submit(2, shared + text(6000, 1));
  bench.submit(3, text(1000, 2));
  Request& fourth = bench.submit(4, shared + text(7000, 1));
  EXPECT_EQ(bench.plan(), (Ids{1, 3}));
  EXPECT_EQ(bench.scheduler().held_back(), Admission::kWaitingForPrefix);
  EXPECT_FALSE(second.sequence.valid()) << "a waiter holds nothing (I12)";
  bench.complete();
  EXPECT_EQ(bench.step(), (Ids{2, 4}));
  EXPECT_EQ(second.computed_prompt_tokens, 1);
  EXPECT_EQ(fourth.cached_tokens, 64);
}

TEST(Scheduler, AWaiterFollowsItsLeaderChunkByChunk) {
  EngineOptions options = options_for(4, 64);
  options.scheduler.chunk_tokens_max = 8;
  Bench bench(options);
  bench.submit(1, text(0, 40));
  Request& second = bench.submit(2, text(0, 17) + text(900, 3));
  EXPECT_EQ(bench.step(), (Ids{1}));
  EXPECT_EQ(bench.step(), (Ids{1}));
  EXPECT_EQ(bench.step(), (Ids{1, 2})) << "16 shared tokens are published: no need to wait for 40";
  EXPECT_EQ(second.cached_tokens, 16);
}

// However many come: who waited for a prompt to be computed has it all in the cache then.
TEST(Scheduler, WhoWaitedForALeaderIsPutLastOnlyUntilThatIsDone) {
  for (const auto policy : {SchedulePolicy::kLpm, SchedulePolicy::kShortestUncachedFirst}) {
    EngineOptions options = options_for(4, 200);
    options.kv.requests_max = 2;
    options.scheduler.chunk_tokens_max = 8;
    options.scheduler.policy = policy;
    Bench bench(options);
    bench.submit(1, text(0, 40));
    bench.submit(2, text(0, 41));
    std::int64_t id = 3;
    for (int steps = 0; steps < 30; ++steps) {
      for (; bench.scheduler().waiting() < 4; ++id) {
        bench.submit(id, text(static_cast<TokenId>(1000 * id), 60));
      }
      bench.step();
    }
    EXPECT_EQ(bench.admitted()[2], 2) << "after the leader and one that took the second row";
  }
}

// Windows behind the shared beginning have gone: the second finds nothing, and nothing that it
// could find is still to come.
TEST(Scheduler, NobodyWaitsForWhatALeaderHasPublishedAlready) {
  EngineOptions options = options_for(4, 64);
  options.kv.window_tokens = 8;
  options.kv.windowed_pages = 16;
  options.scheduler.chunk_tokens_max = 8;
  Bench bench(options);
  bench.submit(1, text(0, 200));
  for (int i = 0; i < 20; ++i) bench.step();
  Request& second = bench.submit(2, text(0, 16) + text(900, 3));
  EXPECT_EQ(bench.step(), (Ids{1, 2}));
  EXPECT_EQ(second.cached_tokens, 0);
}

// The windowed pages of a prompt are for who waits as soon as it is computed.
TEST(Scheduler, NoStepFollowsAPromptWhoseWindowsSomebodyWaitsFor) {
  assume_role(engine_thread);
  EngineOptions options = options_for(4, 200);
  options.kv.window_tokens = 8;
  options.kv.windowed_pages = 12;
  options.scheduler.chunk_tokens_max = 16;
  Bench bench(options);
  bench.scheduler().allow_ahead();
  Request& long_one = bench.submit(1, text(0, 64), 40);
  bench.plan();
  bench.submit(2, text(1000, 40), 2);
  bench.complete();
  EXPECT_EQ(bench.plan(), Ids({1}));
  EXPECT_EQ(bench.scheduler().held_back(), Admission::kNoPages);
  for (int ahead = 0; long_one.state() == RequestState::kPrefilling; ++ahead) {
    EXPECT_TRUE(bench.scheduler().plan_ahead()) << ahead;
    bench.complete();
    bench.scheduler().enter_ahead();
  }
  EXPECT_FALSE(bench.scheduler().plan_ahead());
  bench.complete();
  EXPECT_EQ(bench.plan(), (Ids{1, 2}));
  bench.complete();
  bench.run();
}

TEST(Scheduler, IfTheLeaderIsCancelledTheNextWaiterComputes) {
  assume_role(engine_thread);
  for (const bool fails : {false, true}) {
    EngineOptions options = options_for(4, 64);
    options.scheduler.chunk_tokens_max = 8;
    Bench bench(options);
    Request& leader = bench.submit(1, text(0, 40));
    bench.submit(2, text(0, 40));
    bench.submit(3, text(0, 40));
    bench.step();
    EXPECT_EQ(bench.plan(), (Ids{1}));
    if (fails) {
      bench.scheduler().fail(leader);
    } else {
      bench.scheduler().cancel(leader);
    }
    bench.check();
    EXPECT_EQ(bench.plan(), (Ids{2})) << "one of the waiters, not both";
    bench.complete();
    bench.run();
    const SchedulerTotals& totals = bench.scheduler().totals();
    EXPECT_EQ(totals.computed_prompt_tokens, 40 + 4) << "the first chunk of the leader is kept";
  }
}

// 32 prompts: 1,500 tokens shared by all, 500 more by each of 8 groups, 50 of their own.
std::vector<std::vector<TokenId>> thirty_two_prompts() {
  std::vector<std::vector<TokenId>> prompts;
  for (TokenId i = 0; i < 32; ++i) {
    prompts.push_back(text(0, 1500) + text(10'000 + (i % 8) * 1000, 500) +
                      text(100'000 + i * 100, 50));
  }
  return prompts;
}

std::int64_t prompt_tokens_computed(std::int64_t page_size, std::int64_t concurrency,
                                    std::uint64_t seed) {
  EngineOptions options = options_for(page_size, 16'384 / page_size);
  options.kv.requests_max = concurrency;
  options.scheduler.step_tokens_max = 512;
  options.scheduler.chunk_tokens_max = seed % 2 == 0 ? 512 : 200;
  Bench bench(options);
  auto prompts = thirty_two_prompts();
  Prng prng(seed);
  for (std::size_t left = prompts.size(); left > 1; --left) {
    std::swap(prompts[left - 1],
              prompts[static_cast<std::size_t>(prng.below(static_cast<std::int64_t>(left)))]);
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    bench.submit(static_cast<std::int64_t>(i), prompts[i], 4);
  }
  bench.run();
  return bench.scheduler().totals().computed_prompt_tokens;
}

TEST(Scheduler, NoTokenTwice) {
  for (const std::int64_t concurrency : {1, 4, 16}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      EXPECT_EQ(prompt_tokens_computed(1, concurrency, seed), 7100)
          << "concurrency " << concurrency << " seed " << seed;
      EXPECT_EQ(prompt_tokens_computed(16, concurrency, seed), 7184)
          << "concurrency " << concurrency << " seed " << seed;
    }
  }
}

TEST(Scheduler, PromptsAndOutputsShareOneTokenBudget) {
  EngineOptions options = options_for(16, 256);
  options.scheduler.step_tokens_max = 64;
  Bench bench(options);
  for (int i = 0; i < 7; ++i) {
    bench.submit(i, text(i * 1000, 9), 100);
  }
  bench.step();
  ASSERT_EQ(bench.scheduler().in_flight(), 7);
  bench.submit(7, text(50'000, 100), 100);
  bench.plan();
  EXPECT_EQ(bench.scheduler().batch().rows(), 64) << "7 outputs leave 57 tokens for the prompt";
  bench.complete();
  bench.plan();
  EXPECT_EQ(bench.scheduler().batch().rows(), 7 + 43);
  EXPECT_EQ(bench.scheduler().batch().outputs(), 8);
}

TEST(Scheduler, SaysWhyARequestIsHeldBack) {
  EngineOptions options = options_for(4, 16);
  options.kv.requests_max = 2;
  options.kv.context_tokens_max = 64;
  options.scheduler.step_tokens_max = 16;
  Bench bench(options);
  bench.submit(1, text(0, 16), 2);
  bench.submit(2, text(100, 8), 2);
  bench.plan();
  EXPECT_EQ(bench.scheduler().held_back(), Admission::kNoTokenBudget);
  bench.complete();
  bench.submit(3, text(200, 60), 2);
  bench.plan();
  EXPECT_EQ(bench.scheduler().held_back(), Admission::kNoRow);
  bench.complete();
  bench.plan();
  EXPECT_EQ(bench.scheduler().held_back(), Admission::kNoPages);
  bench.complete();
  bench.run();
}

TEST(Scheduler, TheWatermarkIsLeftToRunningRequests) {
  for (const std::int64_t watermark : {0, 4}) {
    EngineOptions options = options_for(4, 16);
    options.kv.context_tokens_max = 64;
    options.scheduler.watermark_pages = watermark;
    Bench bench(options);
    bench.submit(1, text(0, 30), 20);
    bench.step();
    bench.submit(2, text(500, 20), 2);  // 6 pages with its first output; 8 are left
    bench.plan();
    EXPECT_EQ(bench.scheduler().in_flight(), watermark == 0 ? 2 : 1);
    bench.complete();
    bench.run();
  }
}

TEST(Scheduler, WithoutAWatermarkNewRequestsMayHaveAllPages) {
  for (const std::int64_t watermark : {-1, 0}) {
    EngineOptions options = options_for(4, 16);
    options.kv.context_tokens_max = 64;
    options.scheduler.watermark_pages = watermark;
    Bench bench(options);
    bench.submit(1, text(0, 30), 2);
    bench.step();
    bench.submit(2, text(500, 31));  // 8 pages with its output: all that are left
    bench.plan();
    EXPECT_EQ(bench.scheduler().in_flight(), watermark == 0 ? 2 : 1) << "by default one stays free";
    bench.complete();
    bench.run();
  }
}

TEST(Scheduler, TheOneWithTheFewestGeneratedTokensIsPreemptedAndComesBack) {
  EngineOptions options = options_for(1, 40);
  options.kv.context_tokens_max = 40;
  options.scheduler.watermark_pages = 0;
  Bench bench(options);
  Request& old = bench.submit(1, text(0, 5), 30);
  for (int i = 0; i < 5; ++i) {
    bench.step();
  }
  Request& young = bench.submit(2, text(100, 12), 20);
  while (bench.scheduler().totals().preemptions == 0) {
    bench.step();
  }
  EXPECT_EQ(young.preemptions, 1);
  EXPECT_EQ(old.preemptions, 0);
  EXPECT_EQ(young.state(), RequestState::kPreempted);
  const std::int64_t generated = young.generated_tokens();
  EXPECT_GT(generated, 0) << "its tokens stay its own";
  bench.run();
  EXPECT_GE(bench.scheduler().totals().preemptions, 1);
  EXPECT_EQ(bench.kv().usage().locked_tokens, 0);
}

TEST(Scheduler, OfThoseThatGeneratedAsMuchTheOneThatArrivedLastIsPreempted) {
  EngineOptions options = options_for(1, 40);
  options.kv.context_tokens_max = 40;
  options.scheduler.watermark_pages = 0;
  Bench bench(options);
  Request& first = bench.submit(1, text(0, 5), 30);
  Request& last = bench.submit(2, text(100, 5), 30);
  while (bench.scheduler().totals().preemptions == 0) bench.step();
  EXPECT_EQ(first.preemptions, 0);
  EXPECT_EQ(last.preemptions, 1);
  bench.run();
  EXPECT_EQ(last.cached_tokens, 0) << "what it found when it came, not when it came back";
}

// Where priorities count, the least urgent goes first, however much it has generated.
TEST(Scheduler, TheMostUrgentIsNotPreemptedWhileOthersRun) {
  for (const PriorityRule rule : {PriorityRule::kHighFirst, PriorityRule::kLowFirst}) {
    EngineOptions options = options_for(1, 40);
    options.kv.context_tokens_max = 40;
    options.scheduler.watermark_pages = 0;
    options.scheduler.policy = SchedulePolicy::kPriority;
    options.scheduler.priority_rule = rule;
    Bench bench(options);
    const std::int32_t urgent = rule == PriorityRule::kHighFirst ? 100 : -100;
    Request& old = bench.submit(1, text(0, 5), 30);
    for (int i = 0; i < 5; ++i) bench.step();
    Request& young = bench.submit(2, text(100, 12), 20, urgent);
    bench.run();
    EXPECT_GE(old.preemptions, 1);
    EXPECT_EQ(young.preemptions, 0);
  }
}

TEST(Scheduler, WaitingIsBoundedAndAFullQueueRefuses) {
  assume_role(engine_thread);
  EngineOptions options = options_for(4, 16);
  options.scheduler.waiting_max = 2;
  Bench bench(options);
  bench.submit(1, text(0, 4));
  bench.submit(2, text(0, 4));
  EXPECT_EQ(bench.scheduler().try_submit_or_null(
                {.id = RequestId(3), .ns = NamespaceId(0), .prompt = {1}}),
            nullptr);
  bench.run();
}

TEST(Scheduler, GeneratedPagesArePublishedEverySixtyFourTokens) {
  Bench bench(options_for(16, 64));
  Request& request = bench.submit(1, text(0, 16), 200);
  std::set<std::int64_t> published;
  while (!bench.scheduler().idle() && request.generated_tokens() < 150) {
    bench.step();
    published.insert(request.sequence.published_tokens());
  }
  EXPECT_EQ(published, (std::set<std::int64_t>{16, 80, 144}));
}

TEST(Scheduler, OutputsThatAreNotPublishedLeaveOnlyTheirPrompt) {
  EngineOptions options = options_for(16, 64);
  options.scheduler.publish_outputs = false;
  Bench bench(options);
  Request& request = bench.submit(1, text(0, 40), 200);
  while (request.generated_tokens() < 150) {
    bench.step();
  }
  EXPECT_EQ(request.sequence.published_tokens(), 32) << "the prompt's full pages";
  bench.run();
  EXPECT_EQ(bench.kv().usage().evictable_tokens, 32);
}

TEST(Scheduler, LpmAdmitsTheLongestCachedPrefixFirst) {
  EngineOptions options = options_for(4, 64);
  options.kv.requests_max = 1;
  options.scheduler.policy = SchedulePolicy::kLpm;
  Bench bench(options);
  bench.submit(1, text(0, 40));
  bench.run();
  bench.submit(2, text(900, 8));
  bench.submit(3, text(0, 12) + text(700, 2));
  bench.submit(4, text(0, 24) + text(800, 2));
  bench.run();
  EXPECT_EQ(bench.admitted(), (Ids{1, 4, 3, 2}));
}

// Under shortest-uncached-first: beside an output, what a step computes of a prompt of 1,000 tokens
// while a shorter one of `shorter` tokens waits.
std::int64_t tokens_beside_a_shorter_prompt(const EngineOptions& options, std::int64_t shorter) {
  Bench bench(options);
  bench.submit(1, text(0, 8), 100);
  bench.submit(2, text(1'000, 1'000));
  bench.step();
  bench.submit(3, text(9'000, shorter));
  bench.plan();
  const std::int64_t tokens = bench.scheduler().scheduled()[1]->scheduled_tokens;
  bench.complete();
  bench.run();
  return tokens;
}

TEST(Scheduler, ALongPromptIsCutForShorterOnesAsFarAsTheyCanBeLetIn) {
  EngineOptions options = options_for(4, 330);
  options.scheduler.policy = SchedulePolicy::kShortestUncachedFirst;
  EXPECT_EQ(tokens_beside_a_shorter_prompt(options, 240), 255 - 240);
  options.kv.requests_max = 2;
  EXPECT_EQ(tokens_beside_a_shorter_prompt(options, 240), 255) << "there is no row for it";
  options = options_for(4, 300);
  options.scheduler.policy = SchedulePolicy::kShortestUncachedFirst;
  EXPECT_EQ(tokens_beside_a_shorter_prompt(options, 240), 255) << "there are no pages for it";
}

// It waits for what the long prompt computes, and is let in only then.
TEST(Scheduler, ALongPromptIsNotCutForWhoWaitsForIt) {
  EngineOptions options = options_for(4, 330);
  options.scheduler.policy = SchedulePolicy::kShortestUncachedFirst;
  Bench bench(options);
  bench.submit(1, text(0, 8), 100);
  bench.submit(2, text(1'000, 1'000));
  bench.step();
  bench.submit(3, text(1'000, 400));
  bench.step();
  bench.plan();
  EXPECT_EQ(bench.scheduler().scheduled()[1]->scheduled_tokens, 255);
  bench.complete();
  bench.run();
}

TEST(Scheduler, ACacheThatSharesNothingMakesNobodyWait) {
  EngineOptions options = options_for(4, 256);
  options.kv.cache = "none";
  Bench bench(options);
  for (int i = 0; i < 4; ++i) {
    bench.submit(i, text(0, 40), 3);
  }
  EXPECT_EQ(bench.plan().size(), 4u);
  bench.complete();
  bench.run();
  EXPECT_EQ(bench.scheduler().totals().computed_prompt_tokens, 160);
}

// Everybody who waits behind one long request gives up, but every seventh; others come instead.
TEST(Scheduler, WhoeverGivesUpTheOthersAreTakenInInTheirOrder) {
  constexpr std::int64_t kWaiting = 20'000;
  EngineOptions options = options_for(4, 64);
  options.kv.requests_max = 1;
  options.scheduler.waiting_max = kWaiting + 1;
  Bench bench(options);
  bench.submit(1'000'000, text(0, 64), 2);
  bench.step();
  std::vector<Request*> waiting;
  for (std::int64_t i = 0; i < kWaiting; ++i) waiting.push_back(&bench.submit(i, text(900, 5)));
  Ids left;
  {
    assume_role(engine_thread);
    for (std::int64_t i = 0; i < kWaiting; ++i) {
      Request* const request = waiting[static_cast<std::size_t>(i)];
      EXPECT_EQ(bench.scheduler().find_or_null(RequestId(i)), request);
      if (i % 7 == 0) {
        left.push_back(i);
      } else {
        bench.scheduler().cancel(*request);
        EXPECT_EQ(bench.scheduler().find_or_null(RequestId(i)), nullptr);
      }
    }
  }
  bench.submit(kWaiting, text(900, 5));
  left.push_back(kWaiting);
  EXPECT_EQ(bench.scheduler().waiting(), std::ssize(left));
  Ids seen;
  for (const Request* request : bench.scheduler().waiting_requests()) {
    seen.push_back(request->id.value());
  }
  EXPECT_EQ(seen, left);
  bench.check();
}

// Two texts are cached, the first one longer ago. A long request comes, then one for the first
// text, which has to wait; what the long one needs is taken from the second.
std::int64_t tokens_found_after_waiting(bool keep_for_waiting) {
  EngineOptions options = options_for(4, 40);
  options.kv.requests_max = 1;
  options.scheduler.keep_for_waiting = keep_for_waiting;
  Bench bench(options);
  bench.submit(1, text(0, 64));
  bench.run();
  bench.submit(2, text(1000, 64));
  bench.run();
  bench.submit(3, text(2000, 60));
  Request& waiting = bench.submit(4, text(0, 64) + text(3000, 2));
  bench.run();
  return waiting.cached_tokens;
}

// The first request publishes what the third one will use while that one waits already; the second
// needs room.
TEST(Scheduler, WhatIsPublishedWhileARequestWaitsForItIsEvictedLastToo) {
  EngineOptions options = options_for(4, 24);
  options.kv.requests_max = 1;
  Bench bench(options);
  bench.submit(1, text(5000, 16));
  bench.run();
  bench.submit(2, text(0, 32));
  bench.submit(3, text(1000, 64));
  Request& waiting = bench.submit(4, text(0, 32) + text(3000, 2));
  bench.run();
  EXPECT_EQ(waiting.cached_tokens, 32);
}

TEST(Scheduler, WhatAWaitingRequestWillUseIsEvictedLast) {
  EXPECT_EQ(tokens_found_after_waiting(true), 64);
  EXPECT_LT(tokens_found_after_waiting(false), 64);
}

}  // namespace
}  // namespace stemma
