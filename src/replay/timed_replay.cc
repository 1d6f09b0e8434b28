// The order within a step is the engine's: arrivals, plan, compute, publish, tokens. A request's
// positions are counted by their high-water mark: a step that begins above it skipped what was
// found, one that begins below it computes again.
#include "replay/timed_replay.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "sched/step_prompts.h"

namespace stemma {

namespace {

constexpr std::int64_t kMinuteUs = 60'000'000;

Status validate(const TimedTierOptions& tiers) {
  if (tiers.host_pages == 0 && tiers.disk_pages == 0) return {};
  const bool sized = tiers.host_pages >= 1 && tiers.disk_pages >= 0 && tiers.page_bytes > 0;
  if (sized && tiers.link_gb_s > 0 && tiers.disk_gb_s > 0) return {};
  return Error{ErrorCode::kInvalidArgument,
               "tiers: at least a page of host memory, and a page's bytes and rates above 0"};
}

std::size_t places(const EngineOptions& options) {
  return static_cast<std::size_t>(options.kv.requests_max + options.scheduler.waiting_max);
}

}  // namespace

Status TimedReplay::check(const TimedReplayOptions& options) {
  STEMMA_RETURN_IF_ERROR(validate(options.engine));
  STEMMA_RETURN_IF_ERROR(validate(options.tiers));
  if (options.engine.kv.page_size >= kTracePageTokensMin) return {};
  return Error{ErrorCode::kUnsupported,
               "pages of fewer than " + std::to_string(kTracePageTokensMin) + " tokens"};
}

Result<std::unique_ptr<TimedReplay>> TimedReplay::open(const TimedReplayOptions& options) {
  STEMMA_RETURN_IF_ERROR(check(options));
  Parts parts = {.clock = std::make_unique<FakeClock>(), .tiers_or_null = nullptr, .kv = nullptr};
  if (options.tiers.host_pages > 0) {
    parts.tiers_or_null = std::make_unique<TimedTiers>(options.tiers, *parts.clock);
  }
  STEMMA_ASSIGN_OR_RETURN(
      parts.kv, KvCache::open(options.engine.kv, parts.clock.get(), parts.tiers_or_null.get()));
  return std::unique_ptr<TimedReplay>(new TimedReplay(options, std::move(parts)));
}

TimedReplay::TimedReplay(const TimedReplayOptions& options, Parts parts)
    : options_(options),
      clock_(std::move(parts.clock)),
      tiers_or_null_(std::move(parts.tiers_or_null)),
      kv_(std::move(parts.kv)),
      scheduler_(*kv_, options.engine.scheduler),
      served_(places(options.engine)) {
  const std::optional<NamespaceId> opened = kv_->try_open_namespace({});
  STEMMA_CHECK(opened.has_value(), "a new cache has room for its first namespace");
  namespace_id_ = *opened;
}

Result<bool> TimedReplay::step(Source next) {
  assume_role(engine_thread);
  ended_.clear();
  minutes_.clear();
  kv_->poll_transfers();
  STEMMA_RETURN_IF_ERROR(take_arrivals(next));
  if (!ended_.empty()) return true;  // one was refused
  if (static_cast<double>(clock_->now_us()) > kReplayUsMax) {
    return Error{ErrorCode::kTooLarge, "under this timing model the replay takes a century"};
  }
  if (scheduler_.plan_step()) {
    run_step();
    return true;
  }
  if (!scheduler_.idle()) {
    wait_for_tiers();
    return true;
  }
  STEMMA_CHECK(at_end_, "I12: what waits is planned");
  close_minute();
  return false;
}

Status TimedReplay::take_arrivals(Source next) {
  while (ended_.empty()) {
    STEMMA_ASSIGN_OR_RETURN(const bool there, read_arrival(next));
    if (!there) break;
    if (scheduler_.idle()) idle_until(std::max(arrival_->arrival_us, clock_->now_us()));
    if (arrival_->arrival_us > clock_->now_us()) break;
    if (const auto reason = reason_to_refuse(arrival_->request)) {
      refuse(*reason);
    } else if (!try_submit()) {
      arrival_->held = true;
      break;
    }
  }
  return {};
}

// False if the trace is at its end; else arrival_ is the next request.
Result<bool> TimedReplay::read_arrival(Source next) {
  if (arrival_.has_value()) return true;
  if (at_end_) return false;
  Arrival arrival;
  STEMMA_ASSIGN_OR_RETURN(const bool more, next(arrival.request));
  if (!more) {
    at_end_ = true;
    return false;
  }
  if (next_index_ == 0) first_ms_ = arrival.request.timestamp_ms;
  const double since_us = (arrival.request.timestamp_ms - first_ms_) * options_.time_scale * 1000;
  if (!(since_us >= 0 && since_us <= kReplayUsMax)) {
    return Error{ErrorCode::kInvalidArgument,
                 "request " + std::to_string(next_index_) +
                     ": its timestamp lies before the first one's or a century after it"};
  }
  arrival.arrival_us = std::llround(since_us);
  arrival.index = next_index_++;
  arrival_ = std::move(arrival);
  return true;
}

// The engine's own rules at its door.
std::optional<RequestOutcome> TimedReplay::reason_to_refuse(const TraceRequest& request) const {
  const KvCacheOptions& kv = options_.engine.kv;
  const std::int64_t output_tokens = std::max<std::int64_t>(request.output_tokens, 1);
  if (request.input_tokens == 0) return RequestOutcome::kNoPrompt;
  if (request.input_tokens + output_tokens > kv.context_tokens_max) {
    return RequestOutcome::kExceedsContext;
  }
  if (request.input_tokens + output_tokens - 1 > kv.pages * kv.page_size) {
    return RequestOutcome::kExceedsPool;
  }
  return std::nullopt;
}

void TimedReplay::refuse(RequestOutcome reason) {
  ended_.push_back({.index = arrival_->index,
                    .outcome = reason,
                    .input_tokens = arrival_->request.input_tokens,
                    .arrival_us = arrival_->arrival_us,
                    .ended_us = clock_->now_us()});
  const auto place = std::find(std::begin(kRefusals), std::end(kRefusals), reason);
  for (TimedPeriod* period : periods()) {
    ++period->arrived_requests;
    ++period->refused_requests[static_cast<std::size_t>(place - std::begin(kRefusals))];
  }
  minute_open_ = true;
  arrival_.reset();
}

// False, and nothing changed, if the queue is full.
bool TimedReplay::try_submit() {
  if (scheduler_.waiting() >= options_.engine.scheduler.waiting_max) return false;
  TraceRequest& trace = arrival_->request;
  const Request* request = scheduler_.try_submit_or_null(
      {.id = RequestId(arrival_->index),
       .ns = namespace_id_,
       .prompt = make_trace_prompt(trace, kv_->page_size(), arrival_->index),
       .output_tokens_max = std::max<std::int64_t>(trace.output_tokens, 1),
       .priority = trace.priority});
  STEMMA_CHECK(request != nullptr, "the queue has room, and places for all in it and in flight");
  served(*request) = {
      .report = {.index = arrival_->index,
                 .lookup_pages = static_cast<std::int64_t>(trace.page_hashes.size()),
                 .input_tokens = trace.input_tokens,
                 .arrival_us = arrival_->arrival_us},
      .output_tokens = trace.output_tokens,
      .outputs = {.index = arrival_->index,
                  .lookup_pages = static_cast<std::int64_t>(trace.page_hashes.size()),
                  .output_page_hashes = std::move(trace.output_page_hashes)}};
  for (TimedPeriod* period : periods()) {
    ++period->arrived_requests;
    period->held_requests += arrival_->held ? 1 : 0;
  }
  minute_open_ = true;
  arrival_.reset();
  return true;
}

void TimedReplay::run_step() {
  const StepWork work = lay_out_work();
  const double duration = options_.timing.step_total_ms(work) * 1000;
  const std::int64_t duration_us = std::llround(std::min(duration, kReplayUsMax));
  const std::int64_t step = kv_->begin_step();
  advance_to(clock_->now_us() + duration_us);
  kv_->retire_step(step);
  count_step(duration_us);
  const StepPrompts prompts = prompts_of(scheduler_.scheduled());
  if (prompts.tell(1)) {
    kv_->note_computed(prompts.first_token(), prompts.prompt_tokens, duration_us);
  }
  for (Request* request : scheduler_.scheduled()) count_range(*request);
  scheduler_.complete_step();
  for (const StepOutput& output : scheduler_.outputs()) accept(*output.request_or_null);
}

// Copies end meanwhile, and others begin behind them.
void TimedReplay::idle_until(std::int64_t time_us) {
  while (tiers_or_null_ != nullptr && tiers_or_null_->next_end_us() <= time_us) {
    advance_to(std::max(tiers_or_null_->next_end_us(), clock_->now_us()));
    kv_->poll_transfers();
  }
  advance_to(time_us);
}

// Nothing can be computed before pages have come, or have been waited for for long enough.
void TimedReplay::wait_for_tiers() {
  constexpr std::int64_t kLookUs = 1000;
  STEMMA_CHECK(tiers_or_null_ != nullptr, "I12: without tiers, what waits is planned");
  std::int64_t until_us = std::min(clock_->now_us() + kLookUs, tiers_or_null_->next_end_us());
  if (arrival_.has_value() && !arrival_->held) until_us = std::min(until_us, arrival_->arrival_us);
  advance_to(std::max(until_us, clock_->now_us()));
}

StepWork TimedReplay::lay_out_work() {
  StepWork work;
  for (const Request* request : scheduler_.scheduled()) {
    RequestReport& report = served(*request).report;
    if (report.started_us < 0) report.started_us = clock_->now_us();
    const std::int64_t end = request->computed_tokens + request->scheduled_tokens;
    if (request->state() == RequestState::kRunning) {
      work.add_decode(end);
    } else {
      work.add_prompt(request->computed_tokens, end);
    }
  }
  return work;
}

void TimedReplay::count_step(std::int64_t duration_us) {
  const std::int64_t outside = arrival_.has_value() && arrival_->held ? 1 : 0;
  const std::int64_t waiting = scheduler_.waiting() + outside;
  const std::int64_t evicted =
      kv_->evicted_pages() - std::exchange(evicted_pages_, kv_->evicted_pages());
  const std::int64_t preemptions = scheduler_.totals().preemptions -
                                   std::exchange(preemptions_, scheduler_.totals().preemptions);
  for (TimedPeriod* period : periods()) {
    ++period->steps;
    period->busy_us += duration_us;
    period->waiting_request_us += static_cast<double>(waiting) * static_cast<double>(duration_us);
    period->waiting_requests_max = std::max(period->waiting_requests_max, waiting);
    period->in_flight_requests_max =
        std::max(period->in_flight_requests_max, scheduler_.in_flight());
    period->evicted_pages += evicted;
    period->preemptions += preemptions;
  }
  minute_open_ = true;
}

// What the step's tokens are to the request: skipped before them, new, or computed again.
void TimedReplay::count_range(Request& request) {
  Served& one = served(request);
  RequestReport& report = one.report;
  const bool starts = one.reached_tokens == 0;
  const std::int64_t begin = request.computed_tokens;
  const std::int64_t end = begin + request.scheduled_tokens;
  const std::int64_t hit = std::max<std::int64_t>(begin - one.reached_tokens, 0);
  StepWork skipped;
  skipped.add_prompt(begin - hit, begin);
  const double saved_ms = options_.timing.added_ms(skipped);
  const std::int64_t again = std::clamp<std::int64_t>(one.reached_tokens - begin, 0, end - begin);
  const std::int64_t fresh =
      std::max<std::int64_t>(std::min(end, report.input_tokens) - (begin + again), 0);
  one.reached_tokens = std::max(one.reached_tokens, end);
  one.found_tokens += hit;
  report.saved_ms += saved_ms;
  report.computed_tokens += fresh;
  report.recomputed_tokens += again;
  for (TimedPeriod* period : periods()) {
    if (starts) {
      period->lookup_pages += report.lookup_pages;
      period->input_tokens += report.input_tokens;
      period->queue.record(report.queue_us());
    }
    period->saved_ms += saved_ms;
    period->computed_tokens += fresh;
    period->recomputed_tokens += again;
  }
  if (tiers_or_null_ == nullptr) count_hits(request);
}

// What was found, by the tiers that it was brought from: known once all of it has come, or is not
// waited for any more.
void TimedReplay::count_hits(Request& request) {
  Served& one = served(request);
  const BroughtTokens& brought = request.promoted.tokens;
  TierTokens& counted = one.report.hit_tokens;
  TierTokens more;
  more.disk = std::clamp<std::int64_t>(brought.disk - counted.disk, 0, one.found_tokens);
  more.host =
      std::clamp<std::int64_t>(brought.host - counted.host, 0, one.found_tokens - more.disk);
  more.device = std::exchange(one.found_tokens, 0) - more.disk - more.host;
  counted += more;
  for (TimedPeriod* period : periods()) period->hit_tokens += more;
}

// The request's next token, and its end if that was the last one.
void TimedReplay::accept(Request& request) {
  Served& one = served(request);
  RequestReport& report = one.report;
  count_hits(request);
  if (report.first_token_us < 0) {
    report.first_token_us = clock_->now_us();
    for (TimedPeriod* period : periods()) period->ttft.record(report.ttft_us());
  }
  if (request.generated_tokens() < one.output_tokens) {
    request.tokens.push_back(one.outputs.token_at(request.total_tokens(), kv_->page_size()));
    ++report.output_tokens;
    for (TimedPeriod* period : periods()) ++period->output_tokens;
  }
  if (request.generated_tokens() < one.output_tokens) return;
  report.ended_us = clock_->now_us();
  report.preemptions = request.preemptions;
  scheduler_.finish(request);
  for (TimedPeriod* period : periods()) {
    ++period->finished_requests;
    if (report.output_tokens >= 2) period->time_per_token.record(report.time_per_token_us());
  }
  ended_.push_back(report);
}

void TimedReplay::advance_to(std::int64_t time_us) {
  clock_->advance_us(time_us - clock_->now_us());
  if (clock_->now_us() / kMinuteUs == minute_.minute) return;
  close_minute();
  minute_.minute = clock_->now_us() / kMinuteUs;
}

void TimedReplay::close_minute() {
  if (!std::exchange(minute_open_, false)) return;
  minutes_.push_back(std::exchange(minute_, {}));
}

TimedReplay::Served& TimedReplay::served(const Request& request) {
  return served_[static_cast<std::size_t>(request.slot)];
}

std::optional<std::string> TimedReplay::audit() const {
  if (auto contradiction = kv_->audit()) return contradiction;
  return scheduler_.audit();
}

}  // namespace stemma
