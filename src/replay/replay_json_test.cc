// Replay reports as JSON: every key with the value of a replay that can be added up by hand, and
// the same bytes for the same replay.
#include "replay/replay_json.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "replay/timed_replay_fixture.h"

namespace stemma {
namespace {

using Json = nlohmann::ordered_json;

// Prompts of 8 and of 9 tokens, the first 8 shared; the third is refused. 0..18..30, 1000..1011.
std::vector<TraceRequest> three_requests() {
  return {trace_request(0, 8, 2, {1, 2}), trace_request(1000, 9, 1, {1, 2, 3}),
          trace_request(2000, 0, 1, {})};
}

TEST(ReplayJson, TheTotalOfATimedReplay) {
  const TimedRun run(timed_options(16), three_requests());
  Json line = Json::object();
  append_report(lookups_of(run.total(), 4), line);
  append_period(run.total(), line);
  EXPECT_EQ(line, Json::parse(R"({
    "requests": 3, "lookup_pages": 5, "hit_pages": 2, "hit_rate": 0.4, "evicted_pages": 0,
    "finished_requests": 2,
    "refused_requests": {"no_prompt": 1, "exceeds_context": 0, "exceeds_pool": 0},
    "held_requests": 0, "input_tokens": 17,
    "hit_tokens": {"device": 8, "host": 0, "disk": 0}, "computed_tokens": 9,
    "recomputed_tokens": 0, "output_tokens": 3, "preemptions": 0, "steps": 3, "busy_ms": 41.0,
    "saved_ms": 8.0,
    "ttft_ms": {"mean": 14.5, "p50": 11.0, "p95": 18.0, "p99": 18.0, "max": 18.0},
    "time_per_token_ms": {"mean": 12.0, "p50": 12.0, "p95": 12.0, "p99": 12.0, "max": 12.0},
    "queue_ms": {"mean": 0.0, "p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0},
    "waiting_requests_mean": 0.0, "waiting_requests_max": 0, "in_flight_requests_max": 1})"));
}

TEST(ReplayJson, ARequest) {
  const TimedRun run(timed_options(16), three_requests());
  Json first = Json::object();
  append_request(run[0], first);
  EXPECT_EQ(first, Json::parse(R"({
    "request": 0, "arrival_ms": 0.0, "outcome": "finished", "input_tokens": 8,
    "hit_tokens": {"device": 0, "host": 0, "disk": 0}, "computed_tokens": 8,
    "recomputed_tokens": 0, "output_tokens": 2,
    "queue_ms": 0.0, "ttft_ms": 18.0, "time_per_token_ms": 12.0, "total_ms": 30.0,
    "preemptions": 0, "saved_ms": 0.0})"));
  Json second = Json::object();
  append_request(run[1], second);
  EXPECT_FALSE(second.contains("time_per_token_ms")) << "between one token and none is no time";
  EXPECT_EQ(second["hit_tokens"]["device"], 8);
}

TEST(ReplayJson, ARefusedRequestSaysWhy) {
  const TimedRun run(timed_options(16), three_requests());
  Json line = Json::object();
  append_request(run[2], line);
  EXPECT_EQ(line.dump(),
            R"({"request":2,"arrival_ms":2000.0,"outcome":"no_prompt","input_tokens":0})");
}

TEST(ReplayJson, AReplayOfPages) {
  Json line = Json::object();
  append_report({.requests = 2, .lookup_pages = 4, .hit_pages = 1, .evicted_pages = 3}, line);
  EXPECT_EQ(line.dump(),
            R"({"requests":2,"lookup_pages":4,"hit_pages":1,"hit_rate":0.25,"evicted_pages":3})");
}

TEST(ReplayJson, TheSameTraceGivesTheSameBytes) {
  std::vector<TraceRequest> trace;
  Prng prng(3);
  for (int i = 0; i < 300; ++i) {
    const auto topic = static_cast<std::int64_t>(prng() % 5);
    trace.push_back(trace_request(7.3 * i, 9, 3, {topic, 10 + topic, 100 + i}));
  }
  TimedReplayOptions options = timed_options(12);
  options.engine.scheduler.policy = SchedulePolicy::kRandom;
  options.engine.scheduler.seed = 9;
  options.timing.attention_pair_ms = 1.0 / 3;
  std::string texts[2];
  for (std::string& text : texts) {
    const TimedRun run(options, trace);
    const auto add = [&](const auto& report, const auto& append) {
      Json line = Json::object();
      append(report, line);
      text += line.dump();
    };
    add(run.total(), append_period);
    for (const auto& [index, report] : run.reports()) add(report, append_request);
    for (const TimedPeriod& minute : run.minutes()) add(minute, append_period);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace stemma
