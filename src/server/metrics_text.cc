#include "server/metrics_text.h"

#include <fmt/format.h>

#include "server/metric_help.h"

namespace stemma {
std::string label(std::string_view name, std::string_view value) {
  std::string text = fmt::format("{}=\"", name);
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

void MetricsText::counter(std::string_view name, std::int64_t value) {
  begin("counter", name);
  sample(name, "", value);
}

void MetricsText::gauge(std::string_view name, std::int64_t value) {
  begin("gauge", name);
  sample(name, "", value);
}

void MetricsText::begin(std::string_view type, std::string_view name) {
  const std::string_view help = metric_help(name);
  if (!help.empty()) text_ += fmt::format("# HELP {} {}\n", name, help);
  text_ += fmt::format("# TYPE {} {}\n", name, type);
}

void MetricsText::sample(std::string_view name, std::string_view labels, std::int64_t value) {
  text_ += labels.empty() ? fmt::format("{} {}\n", name, value)
                          : fmt::format("{}{{{}}} {}\n", name, labels, value);
}

void MetricsText::sample(std::string_view name, std::string_view labels, double value) {
  text_ += labels.empty() ? fmt::format("{} {}\n", name, value)
                          : fmt::format("{}{{{}}} {}\n", name, labels, value);
}

void MetricsText::histogram(std::string_view name, std::string_view labels,
                            const StepHistogram& samples) {
  begin("histogram", name);
  const std::string_view comma = labels.empty() ? "" : ",";
  const std::string steps = fmt::format("{}_bucket", name);
  const HistogramSteps& all = samples.steps();
  const auto in_unit = [&](std::int64_t value) {
    return static_cast<double>(value) / static_cast<double>(all.per_unit);
  };
  std::int64_t so_far = 0;
  for (std::size_t i = 0; i < samples.samples_in().size(); ++i) {
    so_far += samples.samples_in()[i];
    const bool last = i == all.ends.size();
    const std::string end = last ? "+Inf" : fmt::format("{}", in_unit(all.ends[i]));
    sample(steps, fmt::format("{}{}le=\"{}\"", labels, comma, end), so_far);
  }
  sample(fmt::format("{}_sum", name), labels, in_unit(samples.sum()));
  sample(fmt::format("{}_count", name), labels, samples.samples());
}

}  // namespace stemma
