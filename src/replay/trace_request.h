// TraceRequest: one request of a trace, whatever format it came from.
//
// Thread:     a value.
// Memory:     8 bytes a page.
// Cost:       none.
// Not here:   reading one (trace_parser), what is done with it (replayer).
#pragma once

#include <cstdint>
#include <vector>

namespace stemma {

struct TraceRequest {
  double timestamp_ms = 0;
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::vector<std::int64_t> page_hashes;  // of each page that is looked up, in order
  // The pages that follow them when the request has ended: full ones of its output. Only captures
  // know them; they are resident from then on, and this request never looked for them.
  std::vector<std::int64_t> output_page_hashes = {};
  std::int32_t priority = 0;  // captures know it
};

}  // namespace stemma
