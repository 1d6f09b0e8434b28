#include "cli/replay_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stemma {

std::string ReplayFlags::trace() const {
  return fmt::format("{}", fmt::join(traces.traces, ","));
}

}  // namespace stemma
