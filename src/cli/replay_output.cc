#include "cli/replay_output.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/math.h"
#include "cli/written_files.h"

namespace stemma {

namespace {

using Json = nlohmann::ordered_json;

// More curves over time cannot be told apart.
constexpr std::size_t kMinuteCurvesMax = 8;

// More points on one curve cannot be told apart: then each stands for several minutes.
constexpr std::int64_t kMinutePointsMax = 120;

void put_capacity(const ReplayLane& lane, Json& line) {
  if (lane.unlimited) {
    line["capacity_pages"] = "unlimited";
  } else {
    line["capacity_pages"] = lane.capacity_pages;
  }
}

Json labelled(const ReplayLane& lane, const Json& line) {
  Json whole = Json::object();
  whole["policy"] = lane.policy;
  put_capacity(lane, whole);
  whole.update(line);
  return whole;
}

// The value behind `key`, which is put at the end if it is new.
template <typename Value>
Value& entry_of(std::vector<std::pair<std::string, Value>>& entries, const std::string& key) {
  for (auto& [known, value] : entries) {
    if (known == key) return value;
  }
  return entries.emplace_back(key, Value()).second;
}

RatePoints rates_over_time(const std::vector<MinuteHits>& minutes) {
  const std::int64_t span = minutes.back().minute + 1;
  const std::int64_t step = ceil_div(span, kMinutePointsMax);
  std::map<std::int64_t, MinuteHits> merged;  // by step
  for (const MinuteHits& one : minutes) {
    MinuteHits& sum = merged[one.minute / step];
    sum.lookup_pages += one.lookup_pages;
    sum.hit_pages += one.hit_pages;
  }
  RatePoints points;
  for (const auto& [at, sum] : merged) {
    if (sum.lookup_pages == 0) continue;
    points.emplace_back(static_cast<double>(at * step),
                        static_cast<double>(sum.hit_pages) / static_cast<double>(sum.lookup_pages));
  }
  return points;
}

}  // namespace

Json lane_json(const ReplayFlags& flags, const ReplayLane& lane, std::int64_t page_size) {
  Json line = Json::object();
  line["trace"] = flags.trace();
  line["policy"] = lane.policy;
  line["page_size"] = page_size;
  put_capacity(lane, line);
  return line;
}

Result<ReplayOutput> ReplayOutput::open(const ReplayFlags& flags) {
  CommandFiles files = {.written = {{"--per-request", flags.per_request},
                                    {"--per-minute", flags.per_minute},
                                    {"--plot", flags.plot}},
                        .read = flags.traces.files()};
  files.read.push_back({"--timing", flags.timing});
  STEMMA_RETURN_IF_ERROR(check_apart(files));
  ReplayOutput output(flags);
  STEMMA_ASSIGN_OR_RETURN(output.per_request_, JsonLines::open(flags.per_request, "--per-request"));
  STEMMA_ASSIGN_OR_RETURN(output.per_minute_, JsonLines::open(flags.per_minute, "--per-minute"));
  if (!flags.plot.empty()) STEMMA_RETURN_IF_ERROR(check_plot_file(flags.plot));
  return output;
}

void ReplayOutput::request(const ReplayLane& lane, const Json& line) {
  per_request_.write(labelled(lane, line));
}

void ReplayOutput::minute(const ReplayLane& lane, const Json& line) {
  if (per_minute_.wanted()) per_minute_.write(labelled(lane, line));
  if (!draws_minutes_of(lane)) return;
  entry_of(by_minute_, lane.title())
      .push_back({line["minute"], line["lookup_pages"], line["hit_pages"]});
}

// All of few lanes; else those of the capacity that was named first.
bool ReplayOutput::draws_minutes_of(const ReplayLane& lane) const {
  if (flags_->plot.empty()) return false;
  return flags_->policies.size() * flags_->capacities.size() <= kMinuteCurvesMax ||
         lane.capacity_text() == flags_->capacities.front();
}

void ReplayOutput::hit_rate(const ReplayLane& lane, double rate) {
  if (flags_->plot.empty() || lane.unlimited) return;
  entry_of(by_capacity_, lane.policy).emplace_back(static_cast<double>(lane.capacity_pages), rate);
}

void ReplayOutput::add_bound(ReplayBounds& bounds) {
  const std::string best(oracle_name(OracleKind::kBelady));
  std::set<double> capacities;
  for (const auto& [policy, points] : by_capacity_) {
    if (policy == best) return;
    for (const auto& [capacity_pages, rate] : points) capacities.insert(capacity_pages);
  }
  for (const double capacity_pages : capacities) {
    const auto rates = bounds.hit_rates(static_cast<std::int64_t>(capacity_pages));
    if (rates.has_value())
      entry_of(by_capacity_, best).emplace_back(capacity_pages, rates->front());
  }
}

Status ReplayOutput::finish() {
  STEMMA_RETURN_IF_ERROR(per_request_.close());
  STEMMA_RETURN_IF_ERROR(per_minute_.close());
  if (flags_->plot.empty()) return {};
  std::vector<PlotCurve> by_capacity;
  for (const auto& [policy, points] : by_capacity_) {
    by_capacity.push_back({policy, points});
    std::sort(by_capacity.back().points.begin(), by_capacity.back().points.end());
  }
  std::vector<PlotCurve> by_minute;
  by_minute.reserve(by_minute_.size());
  for (const auto& [title, minutes] : by_minute_) {
    by_minute.push_back({title, rates_over_time(minutes)});
  }
  return plot_replay(flags_->plot, flags_->trace(), {by_capacity, by_minute});
}

}  // namespace stemma
