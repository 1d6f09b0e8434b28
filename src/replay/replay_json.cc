#include "replay/replay_json.h"

namespace stemma {

namespace {

using Json = nlohmann::ordered_json;

double ms(std::int64_t us) {
  return static_cast<double>(us) / 1000;
}

Json tiers_json(const TierTokens& tokens) {
  return {{"device", tokens.device}, {"host", tokens.host}, {"disk", tokens.disk}};
}

Json refusals_json(const TimedPeriod& period) {
  Json refusals = Json::object();
  for (std::size_t i = 0; i < std::size(kRefusals); ++i) {
    refusals[std::string(request_outcome_name(kRefusals[i]))] = period.refused_requests[i];
  }
  return refusals;
}

}  // namespace

Json latency_json(const LatencyHistogram& times) {
  return {{"mean", times.mean_us() / 1000},
          {"p50", ms(times.quantile_us(0.50))},
          {"p95", ms(times.quantile_us(0.95))},
          {"p99", ms(times.quantile_us(0.99))},
          {"max", ms(times.max_us())}};
}

void append_report(const ReplayReport& report, Json& line) {
  line["requests"] = report.requests;
  line["lookup_pages"] = report.lookup_pages;
  line["hit_pages"] = report.hit_pages;
  line["hit_rate"] = report.hit_rate();
  line["evicted_pages"] = report.evicted_pages;
}

void append_period(const TimedPeriod& period, Json& line) {
  line["finished_requests"] = period.finished_requests;
  line["refused_requests"] = refusals_json(period);
  line["held_requests"] = period.held_requests;
  line["input_tokens"] = period.input_tokens;
  line["hit_tokens"] = tiers_json(period.hit_tokens);
  line["computed_tokens"] = period.computed_tokens;
  line["recomputed_tokens"] = period.recomputed_tokens;
  line["output_tokens"] = period.output_tokens;
  line["preemptions"] = period.preemptions;
  line["steps"] = period.steps;
  line["busy_ms"] = ms(period.busy_us);
  line["saved_ms"] = period.saved_ms;
  line["ttft_ms"] = latency_json(period.ttft);
  line["time_per_token_ms"] = latency_json(period.time_per_token);
  line["queue_ms"] = latency_json(period.queue);
  line["waiting_requests_mean"] =
      period.busy_us == 0 ? 0.0 : period.waiting_request_us / static_cast<double>(period.busy_us);
  line["waiting_requests_max"] = period.waiting_requests_max;
  line["in_flight_requests_max"] = period.in_flight_requests_max;
}

ReplayReport lookups_of(const TimedPeriod& period, std::int64_t page_size) {
  return {.requests = period.arrived_requests,
          .lookup_pages = period.lookup_pages,
          .hit_pages = period.hit_tokens.total() / page_size,
          .evicted_pages = period.evicted_pages};
}

void append_request(const RequestReport& report, Json& line) {
  line["request"] = report.index;
  line["arrival_ms"] = ms(report.arrival_us);
  line["outcome"] = std::string(request_outcome_name(report.outcome));
  line["input_tokens"] = report.input_tokens;
  if (report.outcome != RequestOutcome::kFinished) return;
  line["hit_tokens"] = tiers_json(report.hit_tokens);
  line["computed_tokens"] = report.computed_tokens;
  line["recomputed_tokens"] = report.recomputed_tokens;
  line["output_tokens"] = report.output_tokens;
  line["queue_ms"] = ms(report.queue_us());
  line["ttft_ms"] = ms(report.ttft_us());
  if (report.output_tokens >= 2) line["time_per_token_ms"] = ms(report.time_per_token_us());
  line["total_ms"] = ms(report.ended_us - report.arrival_us);
  line["preemptions"] = report.preemptions;
  line["saved_ms"] = report.saved_ms;
}

}  // namespace stemma
