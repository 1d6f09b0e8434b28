// Metrics: numbers that a component shows to whoever asks: a server's /metrics, a table, a test.
//
// A component that counts implements `void visit_metrics(MetricVisitor&) const`. It keeps counters,
// never ratios: a ratio hides its denominator. Names are stemma_<noun>_<unit>_total for counters
// and stemma_<noun>_<unit> for gauges.
//
// Thread:     visit on the thread that owns the component.
// Memory:     none; names are literals.
// Cost:       one virtual call a number.
// Not here:   text formats (server/), time series.
#pragma once

#include <cstdint>
#include <string_view>

namespace stemma {

class MetricVisitor {
 public:
  virtual ~MetricVisitor() = default;
  // A number that only grows.
  virtual void counter(std::string_view name, std::int64_t value) = 0;
  // A number that moves both ways.
  virtual void gauge(std::string_view name, std::int64_t value) = 0;
};

}  // namespace stemma
