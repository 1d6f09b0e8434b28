// A timed replay of a few requests written by hand, and what it reported.
//
// Pages of 4 tokens. A step takes 10 ms, 1 ms more for each prompt token, 2 ms for each request
// that decodes: timelines can be added up in the head.
//
// Thread:     tests only.
// Memory:     all reports.
// Cost:       that of the replay, and an audit after each step.
// Not here:   what should come out (the tests).
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "replay/timed_replay.h"

namespace stemma {

inline TraceRequest trace_request(double at_ms, std::int64_t input_tokens,
                                  std::int64_t output_tokens, std::vector<std::int64_t> hashes) {
  TraceRequest request;
  request.timestamp_ms = at_ms;
  request.input_tokens = input_tokens;
  request.output_tokens = output_tokens;
  request.page_hashes = std::move(hashes);
  return request;
}

inline TimedReplayOptions timed_options(std::int64_t pages) {
  TimedReplayOptions options;
  options.engine.kv.page_size = 4;
  options.engine.kv.pages = pages;
  options.engine.kv.requests_max = 8;
  options.engine.kv.context_tokens_max = 4096;
  options.engine.scheduler.publish_outputs = false;
  options.timing = {.step_ms = 10, .prompt_token_ms = 1, .decode_request_ms = 2};
  return options;
}

// A whole replay, run when it is made.
class TimedRun {
 public:
  TimedRun(const TimedReplayOptions& options, const std::vector<TraceRequest>& trace)
      : replay_(*TimedReplay::open(options)) {
    std::size_t given = 0;
    const auto source = [&](TraceRequest& request) -> Result<bool> {
      if (given == trace.size()) return false;
      request = trace[given++];
      return true;
    };
    for (bool more = true; more;) more = step(source);
    EXPECT_EQ(reports_.size(), trace.size()) << "every request ends once";
  }

  // Of the request at that place of the trace.
  const RequestReport& operator[](std::int64_t index) const { return reports_.at(index); }
  const std::map<std::int64_t, RequestReport>& reports() const { return reports_; }
  const std::vector<TimedPeriod>& minutes() const { return minutes_; }
  const TimedPeriod& total() const { return replay_->total(); }
  std::int64_t end_us() const { return replay_->now_us(); }

 private:
  bool step(TimedReplay::Source source) {
    const std::int64_t before_us = replay_->now_us();
    const Result<bool> more = replay_->step(source);
    EXPECT_TRUE(more.ok());
    EXPECT_GE(replay_->now_us(), before_us) << "time does not go back";
    const auto contradiction = replay_->audit();
    EXPECT_FALSE(contradiction.has_value()) << *contradiction;
    for (const RequestReport& report : replay_->ended()) {
      EXPECT_TRUE(reports_.emplace(report.index, report).second) << "ended twice";
    }
    for (const TimedPeriod& minute : replay_->minutes()) minutes_.push_back(minute);
    return more.ok() && *more;
  }

  std::unique_ptr<TimedReplay> replay_;
  std::map<std::int64_t, RequestReport> reports_;
  std::vector<TimedPeriod> minutes_;
};

}  // namespace stemma
