#include "server/metrics_text.h"

#include <fmt/format.h>

namespace stemma {

void MetricsText::add(std::string_view type, std::string_view name, std::int64_t value) {
  text_ += fmt::format("# TYPE {} {}\n{} {}\n", name, type, name, value);
}

}  // namespace stemma
