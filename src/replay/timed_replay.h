// TimedReplay: a trace in its own time through the scheduler and the cache that serve, with a
// timing model in the Runner's place.
//
// A request arrives when the trace says so. Steps follow one another while there is work, and each
// takes what the model says; where there is none the clock moves on to the next arrival. Each
// request gets exactly its `output_tokens` tokens (where that is 0, it ends with its prompt), which
// no other request shares unless the trace says so. The cache has pages of the trace's own size,
// token for token, so all rules of serving apply:
//
//   - only full pages are shared, and at least one token of a prompt is computed: its last page
//     hits only if it is full and the prompt goes on behind it;
//   - pages are found as soon as they are computed, by requests that wait for them too;
//   - running outputs take pages from the cache; published only with publish_outputs;
//   - what could never run is refused with a reason, and the trace goes on.
//
// With lower tiers, pages that are evicted stay in host memory and on a disk, by the rules of the
// cache that serves, and are brought back in the time that TimedTiers says: while steps are
// computed, or before a request begins, where waiting is shorter than computing.
//
// The next request is taken from the trace when the one before it is in the queue: a full queue
// keeps it outside, in order, and nothing is lost. Its time of waiting counts from its arrival.
//
// Thread:     one thread a replay.                        Invariants: I12 (docs/INVARIANTS.md).
// Memory:     cache, scheduler and 4 bytes a token of the requests in them and of cached tokens;
//             whatever the trace's length.
// Cost:       about a microsecond a request and step.
// Not here:   reading traces (trace_reader), how a step's time comes about (timing_model).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "replay/timed_report.h"
#include "replay/timed_tiers.h"
#include "replay/timing_model.h"
#include "replay/trace_request.h"
#include "replay/trace_tokens.h"
#include "sched/scheduler.h"
#include "stemma/kv_cache.h"
#include "stemma/options.h"

namespace stemma {

struct TimedReplayOptions {
  EngineOptions engine;  // kv.page_size is the trace's
  TimingModel timing;
  double time_scale = 1;   // 2: requests arrive half as often
  TimedTierOptions tiers;  // below the device; kv.tiers says what moves
};

class TimedReplay {
 public:
  // Gives the trace's next request; false at its end.
  using Source = FunctionRef<Result<bool>(TraceRequest&)>;

  // What open() says of options that are wrong, without making anything: not yet that a policy is
  // unknown, nor that there is no memory.
  static Status check(const TimedReplayOptions& options);

  // kInvalidArgument or kNotFound for a wrong option, as KvCache::open and validate say.
  static Result<std::unique_ptr<TimedReplay>> open(const TimedReplayOptions& options);

  // Takes in what has arrived and runs one step, or refuses one request. False when the trace is at
  // its end and everything has ended. An error is the source's, or that of a time too long.
  Result<bool> step(Source next);

  // The requests that ended in this step, and the minutes that did: those in which something
  // happened, in order; the last one with the step that is no more.
  std::span<const RequestReport> ended() const { return ended_; }
  std::span<const TimedPeriod> minutes() const { return minutes_; }
  // Everything so far.
  const TimedPeriod& total() const { return total_; }
  // Since the first arrival.
  std::int64_t now_us() const { return clock_->now_us(); }

  // The first contradiction in cache or scheduler, or nullopt. O(pages + tokens).
  std::optional<std::string> audit() const;

 private:
  // The trace's next request, before it is in the queue.
  struct Arrival {
    TraceRequest request;
    std::int64_t index = 0;
    std::int64_t arrival_us = 0;
    bool held = false;  // the queue was full when it came
  };
  // A request in the scheduler, by its place there.
  struct Served {
    RequestReport report;
    std::int64_t reached_tokens = 0;  // positions that were ever found or computed
    std::int64_t found_tokens = 0;    // of them found, and not counted yet by their tier
    std::int64_t output_tokens = 0;   // that it wants
    TraceOutputs outputs;
  };

  // What a replay runs, in the order in which one stands on the other.
  struct Parts {
    std::unique_ptr<FakeClock> clock;
    std::unique_ptr<TimedTiers> tiers_or_null;
    std::unique_ptr<KvCache> kv;
  };
  TimedReplay(const TimedReplayOptions& options, Parts parts);

  Status take_arrivals(Source next) STEMMA_REQUIRES_ROLE(engine_thread);
  Result<bool> read_arrival(Source next);
  std::optional<RequestOutcome> reason_to_refuse(const TraceRequest& request) const;
  void refuse(RequestOutcome reason);
  bool try_submit() STEMMA_REQUIRES_ROLE(engine_thread);
  void run_step() STEMMA_REQUIRES_ROLE(engine_thread);
  void idle_until(std::int64_t time_us);
  void wait_for_tiers();
  StepWork lay_out_work();
  void count_range(Request& request);
  void count_step(std::int64_t duration_us);
  void count_hits(Request& request);
  void accept(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void advance_to(std::int64_t time_us);
  void close_minute();
  Served& served(const Request& request);
  // The present minute and everything: what happens counts in both.
  std::array<TimedPeriod*, 2> periods() { return {&minute_, &total_}; }

  TimedReplayOptions options_;
  std::unique_ptr<FakeClock> clock_;           // the cache's too
  std::unique_ptr<TimedTiers> tiers_or_null_;  // below the cache
  std::unique_ptr<KvCache> kv_;
  Scheduler scheduler_;
  NamespaceId namespace_id_;
  std::optional<Arrival> arrival_;
  bool at_end_ = false;  // of the trace
  std::int64_t next_index_ = 0;
  double first_ms_ = 0;             // timestamp of the first request
  std::vector<Served> served_;      // [places of the scheduler]
  std::int64_t evicted_pages_ = 0;  // as counted last
  std::int64_t preemptions_ = 0;    // as counted last
  std::vector<RequestReport> ended_;
  std::vector<TimedPeriod> minutes_;
  TimedPeriod minute_;
  bool minute_open_ = false;  // something happened in it
  TimedPeriod total_;
};

}  // namespace stemma
