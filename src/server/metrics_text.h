// MetricsText: numbers as Prometheus reads them (text format 0.0.4). MetricValues: the same numbers
// by name.
//
// Thread:     one thread at a time.
// Memory:     the text, or the numbers.
// Cost:       O(numbers).
// Not here:   what is counted (visit_metrics of each component), what names mean (metric_help).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "server/step_histogram.h"
#include "stemma/metrics.h"

namespace stemma {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

// name="value", with what is special in a value escaped.
std::string label(std::string_view name, std::string_view value);

class MetricsText final : public MetricVisitor {
 public:
  void counter(std::string_view name, std::int64_t value) override;
  void gauge(std::string_view name, std::int64_t value) override;

  // The lines above the samples of one metric: # HELP, where there is one, and # TYPE.
  void begin(std::string_view type, std::string_view name);
  // One sample. `labels` as label() makes them, joined by commas; empty: none.
  void sample(std::string_view name, std::string_view labels, std::int64_t value);
  void sample(std::string_view name, std::string_view labels, double value);
  // A whole metric, in its samples' unit (HistogramSteps::per_unit).
  void histogram(std::string_view name, std::string_view labels, const StepHistogram& samples);

  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

class MetricValues final : public MetricVisitor {
 public:
  void counter(std::string_view name, std::int64_t value) override { by_name_[name] = value; }
  void gauge(std::string_view name, std::int64_t value) override { by_name_[name] = value; }

  // 0 where nobody said it.
  std::int64_t operator[](std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? 0 : found->second;
  }
  bool has(std::string_view name) const { return by_name_.contains(name); }
  const std::map<std::string_view, std::int64_t>& by_name() const noexcept { return by_name_; }

 private:
  std::map<std::string_view, std::int64_t> by_name_;  // names are literals (MetricVisitor)
};

}  // namespace stemma
