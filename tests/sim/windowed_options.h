// Engines whose model has layers that look back over a window, and requests for them.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       none.
// Not here:   the model (stamp_model), driving an engine (stamp_harness).
#pragma once

#include "sim/stamp_harness.h"

namespace stemma {

// Full pages for 640 tokens, windowed ones for one window and one chunk.
inline EngineOptions windowed_options(std::int64_t page_size, std::int64_t window_tokens) {
  EngineOptions options;
  options.kv.page_size = page_size;
  options.kv.pages = 640 / page_size;
  options.kv.requests_max = 4;
  options.kv.context_tokens_max = 160;
  options.kv.window_tokens = window_tokens;
  options.scheduler.step_tokens_max = 48;
  options.scheduler.chunk_tokens_max = 20;
  options.kv.windowed_pages = windowed_pages_max(window_tokens, page_size, 20);
  options.inbox_max = 64;
  return options;
}

// Prompts that share a beginning, some of them more of it.
inline void submit_family(StampHarness& harness) {
  const auto system = some_tokens(1, 40);
  for (std::uint64_t i = 0; i < 12; ++i) {
    const auto group = joined(system, some_tokens(100 + i % 3, 9));
    const auto prompt = joined(group, some_tokens(1000 + i, 3 + static_cast<std::int64_t>(i)));
    harness.submit(i % 4 == 3 ? group : prompt, 5 + static_cast<std::int64_t>(i));
  }
}

}  // namespace stemma
