// A trace's request as ghosts are told of it.
//
// Thread:     a pure function.
// Memory:     none: the result refers to the request.
// Cost:       none.
// Not here:   what ghosts make of it (ghost/).
#pragma once

#include <cstdint>

#include "ghost/ghost_request.h"
#include "replay/trace_request.h"

namespace stemma {

// The result must not outlive `request`.
inline GhostRequest ghost_request_of(const TraceRequest& request) {
  return {.page_hashes = request.page_hashes,
          .output_page_hashes = request.output_page_hashes,
          .now_us = static_cast<std::int64_t>(request.timestamp_ms * 1000),
          .end = {.prompt_tokens = request.input_tokens, .output_tokens = request.output_tokens}};
}

}  // namespace stemma
