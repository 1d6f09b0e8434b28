// Replay reports as JSON: keys in snake_case, quantities with their unit, always in one order, so
// that equal replays give equal bytes.
//
// Thread:     pure functions.
// Memory:     one object.
// Cost:       some microseconds a report.
// Not here:   which trace, policy and capacity a report is of (cli/).
#pragma once

#include <nlohmann/json.hpp>

#include "replay/latency_histogram.h"
#include "replay/replayer.h"
#include "replay/timed_report.h"

namespace stemma {

// {"mean", "p50", "p95", "p99", "max"} in milliseconds; quantiles within 1/128.
nlohmann::ordered_json latency_json(const LatencyHistogram& times);

// Appends `requests`, `lookup_pages`, `hit_pages`, `hit_rate` and `evicted_pages` to `line`.
// REQUIRES: line is an object; so for all that append.
void append_report(const ReplayReport& report, nlohmann::ordered_json& line);

// Appends what a period holds but the keys of append_report and its minute.
void append_period(const TimedPeriod& period, nlohmann::ordered_json& line);

// The look-ups of a period as append_report wants them. Hits are whole pages of `page_size` tokens.
ReplayReport lookups_of(const TimedPeriod& period, std::int64_t page_size);

// Appends one request's report: of a refused one only what it asked for and why it was refused.
void append_request(const RequestReport& report, nlohmann::ordered_json& line);

}  // namespace stemma
