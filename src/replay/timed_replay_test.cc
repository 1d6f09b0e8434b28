// TimedReplay: each field of its reports against a timeline added up by hand, what is refused, and
// what must hold however requests meet. Times in milliseconds unless a name says otherwise.
#include "replay/timed_replay.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "replay/timed_replay_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kMs = 1000;  // microseconds

TEST(TimedReplay, TheFirstTokenComesWithThePromptAndEachNextOneWithAStep) {
  // 0..18 the prompt and token 1, ..30 token 2, ..42 token 3.
  const TimedRun run(timed_options(16), {trace_request(0, 8, 3, {1, 2})});
  EXPECT_EQ(run[0].outcome, RequestOutcome::kFinished);
  EXPECT_EQ(run[0].queue_us(), 0);
  EXPECT_EQ(run[0].ttft_us(), 18 * kMs);
  EXPECT_EQ(run[0].time_per_token_us(), 12 * kMs);
  EXPECT_EQ(run[0].ended_us, 42 * kMs);
  EXPECT_EQ(run[0].output_tokens, 3);
  EXPECT_EQ(run.total().steps, 3);
  EXPECT_EQ(run.total().busy_us, 42 * kMs);
}

TEST(TimedReplay, WhatIsCachedIsNotComputedAgain) {
  // The second prompt goes on one token behind the shared pages: one token is computed, 11 ms.
  const TimedRun run(timed_options(16),
                     {trace_request(0, 8, 1, {1, 2}), trace_request(1000, 9, 1, {1, 2, 3})});
  EXPECT_EQ(run[0].hit_tokens.device, 0);
  EXPECT_EQ(run[0].computed_tokens, 8);
  EXPECT_EQ(run[1].hit_tokens.device, 8);
  EXPECT_EQ(run[1].computed_tokens, 1);
  EXPECT_EQ(run[1].ttft_us(), 11 * kMs);
  EXPECT_EQ(run.total().hit_tokens.total(), 8);
  EXPECT_EQ(run.total().computed_tokens, 9);
  EXPECT_EQ(run.total().input_tokens, 17);
  EXPECT_EQ(run.total().lookup_pages, 5);
}

TEST(TimedReplay, TheLastPageOfAnEqualPromptIsComputedAgain) {
  const TimedRun run(timed_options(16),
                     {trace_request(0, 8, 1, {1, 2}), trace_request(1000, 8, 1, {1, 2})});
  EXPECT_EQ(run[1].hit_tokens.device, 4);
  EXPECT_EQ(run[1].computed_tokens, 4);
}

TEST(TimedReplay, SavedIsWhatComputingTheHitsWouldHaveTaken) {
  TimedReplayOptions options = timed_options(16);
  options.timing.attention_pair_ms = 0.5;
  const TimedRun run(options,
                     {trace_request(0, 8, 1, {1, 2}), trace_request(1000, 9, 1, {1, 2, 3})});
  EXPECT_EQ(run[0].saved_ms, 0);
  EXPECT_DOUBLE_EQ(run[1].saved_ms, 8 + 36 * 0.5) << "8 tokens that attend to 1 … 8";
  EXPECT_DOUBLE_EQ(run.total().saved_ms, 26);
}

TEST(TimedReplay, ARequestArrivesAtItsTimestampAndStartsWithTheNextStep) {
  // The first runs 0..18; the second arrives at 5.
  const TimedRun run(timed_options(16),
                     {trace_request(100, 8, 1, {1, 2}), trace_request(105, 4, 1, {3})});
  EXPECT_EQ(run[1].arrival_us, 5 * kMs) << "from the first arrival on";
  EXPECT_EQ(run[1].queue_us(), 13 * kMs);
  EXPECT_EQ(run[1].ttft_us(), 13 * kMs + 14 * kMs);
}

TEST(TimedReplay, WithoutWorkTheClockGoesOnToTheNextArrival) {
  const TimedRun run(timed_options(16),
                     {trace_request(0, 4, 1, {1}), trace_request(5000, 4, 1, {3})});
  EXPECT_EQ(run[1].queue_us(), 0);
  EXPECT_EQ(run.end_us(), 5014 * kMs);
  EXPECT_EQ(run.total().busy_us, 28 * kMs);
}

TEST(TimedReplay, RequestsOfOneStepShareItsFixedPart) {
  const TimedRun run(timed_options(16),
                     {trace_request(0, 4, 2, {1}), trace_request(0, 8, 2, {3, 4})});
  EXPECT_EQ(run[0].ttft_us(), 22 * kMs) << "10 and 12 prompt tokens";
  EXPECT_EQ(run[1].ended_us, (22 + 14) * kMs) << "10 and 2 requests";
  EXPECT_EQ(run.total().in_flight_requests_max, 2);
}

TEST(TimedReplay, ALongPromptIsComputedInChunksBesideTheOutputsOfOthers) {
  TimedReplayOptions options = timed_options(16);
  options.engine.scheduler.chunk_tokens_max = 8;
  options.engine.scheduler.step_tokens_max = 9;
  // 0..14 the first's prompt; ..34 its token and 8 of the second's; ..50 token, 4 more; done.
  const TimedRun run(options, {trace_request(0, 4, 3, {1}), trace_request(1, 12, 1, {3, 4, 5})});
  EXPECT_EQ(run[0].ttft_us(), 14 * kMs);
  EXPECT_EQ(run[0].ended_us, 50 * kMs);
  EXPECT_EQ(run[1].ended_us, 50 * kMs);
}

TEST(TimedReplay, WhoFindsNoPlaceWaitsInTheQueue) {
  TimedReplayOptions options = timed_options(16);
  options.engine.kv.requests_max = 1;
  // The first runs 0..14..26, the second 26..40.
  const TimedRun run(options, {trace_request(0, 4, 2, {1}), trace_request(0, 4, 1, {3})});
  EXPECT_EQ(run[1].queue_us(), 26 * kMs);
  EXPECT_EQ(run[1].ttft_us(), 40 * kMs);
  EXPECT_EQ(run.total().waiting_requests_max, 1);
  EXPECT_EQ(run.total().waiting_request_us, static_cast<double>(26 * kMs));
  EXPECT_EQ(run.total().queue.max_us(), 26 * kMs);
}

// A step of 25 years, for which 4,000 others wait: more than 2^63 us of all of them.
TEST(TimedReplay, ManyWhoWaitForLongAreCounted) {
  TimedReplayOptions options = timed_options(16);
  options.engine.kv.requests_max = 1;
  options.engine.scheduler.waiting_max = 4000;
  const double step_ms = 8e11;
  options.timing = {.step_ms = step_ms};
  std::vector<TraceRequest> trace = {trace_request(0, 4, 1, {1})};
  for (int i = 0; i < 4000; ++i) trace.push_back(trace_request(0, 4, 1, {1}));
  std::size_t given = 0;
  const auto replay = *TimedReplay::open(options);
  const auto source = [&](TraceRequest& request) -> Result<bool> {
    if (given == trace.size()) return false;
    request = trace[given++];
    return true;
  };
  for (int steps = 0; steps < 3; ++steps) ASSERT_TRUE(*replay->step(source));
  const double waited_us = (4000. + 3999 + 3998) * step_ms * 1000;
  EXPECT_DOUBLE_EQ(replay->total().waiting_request_us, waited_us);
}

TEST(TimedReplay, AFullQueueKeepsArrivalsOutsideInOrderAndLosesNone) {
  TimedReplayOptions options = timed_options(16);
  options.engine.kv.requests_max = 1;
  options.engine.scheduler.waiting_max = 1;
  const TimedRun run(options, {trace_request(0, 4, 1, {1}), trace_request(0, 4, 1, {2}),
                               trace_request(0, 4, 1, {3}), trace_request(0, 4, 1, {4})});
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(run[i].queue_us(), 14 * i * kMs) << "counted from its arrival";
  }
  EXPECT_EQ(run.total().arrived_requests, 4);
  EXPECT_EQ(run.total().held_requests, 3);
  EXPECT_EQ(run.total().finished_requests, 4);
}

TEST(TimedReplay, EqualPromptsAtTheSameTimeAreComputedOnce) {
  const TimedRun run(timed_options(16),
                     {trace_request(0, 9, 1, {1, 2, 3}), trace_request(0, 9, 1, {1, 2, 4})});
  EXPECT_EQ(run[1].hit_tokens.device, 8);
  EXPECT_EQ(run.total().computed_tokens, 10);
}

TEST(TimedReplay, ARequestWithoutOutputEndsWithItsPrompt) {
  const TimedRun run(timed_options(16), {trace_request(0, 4, 0, {1})});
  EXPECT_EQ(run[0].ended_us, 14 * kMs);
  EXPECT_EQ(run[0].ttft_us(), 14 * kMs);
  EXPECT_EQ(run[0].output_tokens, 0);
}

TEST(TimedReplay, WhatCanNeverRunIsRefusedWithItsReasonAndTheTraceGoesOn) {
  TimedReplayOptions options = timed_options(4);
  options.engine.kv.context_tokens_max = 40;
  const TimedRun run(
      options, {trace_request(0, 0, 5, {}), trace_request(1, 40, 1, {1}),
                trace_request(2, 16, 2, {1, 2, 3, 4}), trace_request(3, 16, 1, {1, 2, 3, 4})});
  EXPECT_EQ(run[0].outcome, RequestOutcome::kNoPrompt);
  EXPECT_EQ(run[1].outcome, RequestOutcome::kExceedsContext);
  EXPECT_EQ(run[2].outcome, RequestOutcome::kExceedsPool);
  EXPECT_EQ(run[3].outcome, RequestOutcome::kFinished);
  EXPECT_EQ(run[2].started_us, -1);
  EXPECT_EQ(run.total().arrived_requests, 4);
  EXPECT_EQ(run.total().refused_requests, (std::array<std::int64_t, 3>{1, 1, 1}));
  EXPECT_EQ(run.total().lookup_pages, 4) << "the refused look nothing up";
}

TEST(TimedReplay, EvictsWhatIsShort) {
  // The second prompt needs 3 of 4 pages; two are free.
  const TimedRun run(timed_options(4),
                     {trace_request(0, 8, 1, {1, 2}), trace_request(1000, 12, 1, {3, 4, 5})});
  EXPECT_EQ(run.total().evicted_pages, 1);
}

TEST(TimedReplay, OutputsTakePagesOnlyWhileTheyRunUnlessTheyArePublished) {
  // The first computes 12 tokens: a page of prompt, two of output.
  const std::vector<TraceRequest> trace = {trace_request(0, 4, 9, {1}),
                                           trace_request(1000, 12, 1, {3, 4, 5})};
  TimedReplayOptions options = timed_options(4);
  EXPECT_EQ(TimedRun(options, trace).total().evicted_pages, 0);
  options.engine.scheduler.publish_outputs = true;
  EXPECT_EQ(TimedRun(options, trace).total().evicted_pages, 2);
}

TEST(TimedReplay, OutputsThatTheTraceKnowsAreFoundByWhoGoesOn) {
  // 5 tokens of prompt; of its 4 of output 3 are computed, and fill a second page.
  TraceRequest first = trace_request(0, 5, 4, {1});
  first.output_page_hashes = {2};
  const std::vector<TraceRequest> trace = {first, trace_request(1000, 9, 1, {1, 2}),
                                           trace_request(2000, 9, 1, {1, 3})};
  TimedReplayOptions options = timed_options(16);
  options.engine.scheduler.publish_outputs = true;
  const TimedRun run(options, trace);
  EXPECT_EQ(run[1].hit_tokens.device, 8);
  EXPECT_EQ(run[2].hit_tokens.device, 4);
  options.engine.scheduler.publish_outputs = false;
  EXPECT_EQ(TimedRun(options, trace)[1].hit_tokens.device, 4);
}

TEST(TimedReplay, APreemptedRequestComputesAgainAndLosesNoToken) {
  TimedReplayOptions options = timed_options(8);
  options.engine.scheduler.watermark_pages = 0;
  // Together they grow to 48 tokens; there is room for 32.
  const TimedRun run(options, {trace_request(0, 8, 16, {1, 2}), trace_request(0, 8, 16, {3, 4})});
  EXPECT_GE(run.total().preemptions, 1);
  EXPECT_EQ(run[0].preemptions + run[1].preemptions, run.total().preemptions);
  EXPECT_GT(run[0].recomputed_tokens + run[1].recomputed_tokens, 0);
  for (const auto& [index, report] : run.reports()) {
    EXPECT_EQ(report.hit_tokens.total() + report.computed_tokens, 8) << index;
    EXPECT_EQ(report.output_tokens, 16) << index;
  }
}

TEST(TimedReplay, ArrivalsCanBeStretched) {
  TimedReplayOptions options = timed_options(16);
  options.time_scale = 2.5;
  const TimedRun run(options, {trace_request(10, 4, 1, {1}), trace_request(110, 4, 1, {2})});
  EXPECT_EQ(run[1].arrival_us, 250 * kMs);
}

TEST(TimedReplay, AMinuteHoldsWhatEndedInIt) {
  // The third's only step ends in minute 3; minute 1 is empty.
  const TimedRun run(timed_options(16),
                     {trace_request(0, 8, 2, {1, 2}), trace_request(120'000, 9, 1, {1, 2, 3}),
                      trace_request(179'995, 4, 1, {4})});
  ASSERT_EQ(run.minutes().size(), 3u);
  EXPECT_EQ(run.minutes()[0].minute, 0);
  EXPECT_EQ(run.minutes()[0].computed_tokens, 8);
  EXPECT_EQ(run.minutes()[0].output_tokens, 2);
  EXPECT_EQ(run.minutes()[0].ttft.max_us(), 18 * kMs);
  EXPECT_EQ(run.minutes()[0].time_per_token.max_us(), 12 * kMs);
  EXPECT_EQ(run.minutes()[1].minute, 2);
  EXPECT_EQ(run.minutes()[1].hit_tokens.device, 8);
  EXPECT_EQ(run.minutes()[1].finished_requests, 1);
  EXPECT_EQ(run.minutes()[1].arrived_requests, 2) << "the third arrives in it";
  EXPECT_EQ(run.minutes()[2].minute, 3);
  EXPECT_EQ(run.minutes()[2].finished_requests, 1);
}

TEST(TimedReplay, TheSourcesErrorIsTheReplays) {
  const auto replay = *TimedReplay::open(timed_options(4));
  const Result<bool> step = replay->step([](TraceRequest&) -> Result<bool> {
    return Error{ErrorCode::kCorrupt, "trace.jsonl:7: timestamp: a number is wanted"};
  });
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().code, ErrorCode::kCorrupt);
}

TEST(TimedReplay, RefusesTimesThatCannotBe) {
  for (const double later_ms : {-1.0, 4e12}) {
    const auto replay = *TimedReplay::open(timed_options(4));
    double at_ms = 0;
    const auto source = [&](TraceRequest& request) -> Result<bool> {
      request = trace_request(at_ms, 4, 1, {1});
      at_ms = later_ms;
      return true;
    };
    EXPECT_FALSE(replay->step(source).ok()) << later_ms;
  }
}

TEST(TimedReplay, RefusesWrongOptions) {
  TimedReplayOptions options = timed_options(4);
  options.engine.scheduler.step_tokens_max = 1;
  EXPECT_FALSE(TimedReplay::open(options).ok());
  options = timed_options(4);
  options.engine.kv.eviction = "oracle";
  EXPECT_FALSE(TimedReplay::open(options).ok());
  options = timed_options(4);
  options.engine.kv.page_size = 2;
  EXPECT_EQ(TimedReplay::open(options).error().code, ErrorCode::kUnsupported);
}

// Growing conversations that meet at random under little room.
std::vector<TraceRequest> random_trace(std::uint64_t seed, std::int64_t requests) {
  Prng prng(seed);
  std::vector<std::vector<std::int64_t>> conversations(6);
  std::int64_t next_hash = 0;
  double at_ms = 0;
  std::vector<TraceRequest> trace;
  for (std::int64_t i = 0; i < requests; ++i) {
    auto& hashes = conversations[prng() % conversations.size()];
    if (hashes.size() > 10) hashes.clear();
    for (std::uint64_t n = 1 + prng() % 3; n > 0; --n) hashes.push_back(next_hash++);
    const auto full = static_cast<std::int64_t>(hashes.size()) * 4;
    at_ms += static_cast<double>(prng() % 40);
    trace.push_back(trace_request(at_ms, full - static_cast<std::int64_t>(prng() % 4),
                                  static_cast<std::int64_t>(prng() % 12), hashes));
  }
  return trace;
}

TEST(TimedReplay, HitAndComputedAreTheWholePromptHoweverRequestsMeet) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TimedReplayOptions options = timed_options(20);
    options.engine.kv.requests_max = 4;
    options.engine.scheduler.chunk_tokens_max = 7;
    options.engine.scheduler.waiting_max = 3;
    options.engine.scheduler.watermark_pages = 0;
    const auto trace = random_trace(seed, 150);
    const TimedRun run(options, trace);
    std::int64_t output_tokens = 0;
    for (const auto& [index, report] : run.reports()) {
      const TraceRequest& wanted = trace[static_cast<std::size_t>(index)];
      EXPECT_EQ(report.hit_tokens.total() + report.computed_tokens, wanted.input_tokens);
      EXPECT_EQ(report.output_tokens, wanted.output_tokens);
      EXPECT_LE(report.arrival_us, report.started_us);
      EXPECT_LT(report.started_us, report.first_token_us);
      EXPECT_LE(report.first_token_us, report.ended_us);
      output_tokens += report.output_tokens;
    }
    EXPECT_EQ(run.total().hit_tokens.total() + run.total().computed_tokens,
              run.total().input_tokens);
    EXPECT_EQ(run.total().output_tokens, output_tokens);
    EXPECT_EQ(run.total().finished_requests, 150);
  }
}

TEST(TimedReplay, MinutesAddUpToTheTotal) {
  TimedReplayOptions options = timed_options(20);
  options.time_scale = 30;
  const TimedRun run(options, random_trace(5, 200));
  ASSERT_GT(run.minutes().size(), 1u);
  TimedPeriod sum;
  for (const TimedPeriod& minute : run.minutes()) {
    sum.arrived_requests += minute.arrived_requests;
    sum.finished_requests += minute.finished_requests;
    sum.hit_tokens.device += minute.hit_tokens.device;
    sum.computed_tokens += minute.computed_tokens;
    sum.output_tokens += minute.output_tokens;
    sum.evicted_pages += minute.evicted_pages;
    sum.steps += minute.steps;
    sum.busy_us += minute.busy_us;
  }
  EXPECT_EQ(sum.arrived_requests, 200);
  EXPECT_EQ(sum.finished_requests, run.total().finished_requests);
  EXPECT_EQ(sum.hit_tokens.device, run.total().hit_tokens.device);
  EXPECT_EQ(sum.computed_tokens, run.total().computed_tokens);
  EXPECT_EQ(sum.output_tokens, run.total().output_tokens);
  EXPECT_EQ(sum.evicted_pages, run.total().evicted_pages);
  EXPECT_EQ(sum.steps, run.total().steps);
  EXPECT_EQ(sum.busy_us, run.total().busy_us);
}

TEST(TimedReplay, PrioritiesThatTheTraceKnowsDecideWhoIsNext) {
  TimedReplayOptions options = timed_options(64);
  options.engine.kv.requests_max = 1;
  options.engine.scheduler.policy = SchedulePolicy::kPriority;
  std::vector<TraceRequest> trace = {trace_request(0, 9, 3, {1, 2, 3}),
                                     trace_request(1, 9, 1, {4, 5, 6}),
                                     trace_request(2, 9, 1, {7, 8, 9})};
  const TimedRun plain(options, trace);
  EXPECT_LT(plain[1].started_us, plain[2].started_us);
  trace[2].priority = options.engine.scheduler.priority_rule == PriorityRule::kLowFirst ? -1 : 1;
  const TimedRun run(options, trace);
  EXPECT_LT(run[2].started_us, run[1].started_us);
}

}  // namespace
}  // namespace stemma
