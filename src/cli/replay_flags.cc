#include "cli/replay_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stemma {

std::int64_t ReplayFlags::context_tokens() const {
  // As long as any known trace's requests, and some.
  constexpr std::int64_t kContextTokens = std::int64_t{1} << 20;
  return engine.kv.context_tokens_max == 0 ? kContextTokens : engine.kv.context_tokens_max;
}

std::string ReplayFlags::trace() const {
  return fmt::format("{}", fmt::join(traces.traces, ","));
}

}  // namespace stemma
