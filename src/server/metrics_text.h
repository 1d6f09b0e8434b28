// MetricsText: numbers as Prometheus reads them (text format 0.0.4).
//
// Thread:     one thread at a time.
// Memory:     the text.
// Cost:       O(numbers).
// Not here:   what is counted (visit_metrics of each component).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stemma/metrics.h"

namespace stemma {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

class MetricsText final : public MetricVisitor {
 public:
  void counter(std::string_view name, std::int64_t value) override { add("counter", name, value); }
  void gauge(std::string_view name, std::int64_t value) override { add("gauge", name, value); }

  const std::string& text() const noexcept { return text_; }

 private:
  void add(std::string_view type, std::string_view name, std::int64_t value);

  std::string text_;
};

}  // namespace stemma
