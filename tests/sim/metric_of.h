// One of an engine's metrics by its name.
#pragma once

#include <cstdint>
#include <string_view>

#include "stemma/engine.h"
#include "stemma/metrics.h"

namespace stemma {

// By its name in Engine::visit_metrics; -1 if there is none.
inline std::int64_t metric_of(const Engine& engine, std::string_view name) {
  struct Search final : MetricVisitor {
    explicit Search(std::string_view wanted) : name(wanted) {}
    void counter(std::string_view found, std::int64_t value) override { see(found, value); }
    void gauge(std::string_view found, std::int64_t value) override { see(found, value); }
    void see(std::string_view found, std::int64_t value) {
      if (found == name) result = value;
    }
    std::string_view name;
    std::int64_t result = -1;
  } search(name);
  engine.visit_metrics(search);
  return search.result;
}

}  // namespace stemma
