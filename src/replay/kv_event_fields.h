// One event of a server's KV event stream, read from either of its two forms: an object with named
// fields or an array by position.
//
// Thread:     pure functions.
// Memory:     the hashes.
// Cost:       linear in the event.
// Not here:   what events mean for requests (kv_events_parser).
#pragma once

#include <cstdint>
#include <string>

#include "replay/kv_events_parser.h"
#include "replay/trace_fields.h"

namespace stemma {

// One batch: `[ts, events, ...]` or `{"ts", "events"}`.
struct KvEventBatch {
  double time_ms = 0;
  std::vector<KvEvent> events;
};

// `page_tokens` is what earlier lines said (0: nothing yet) and becomes what this one says; a store
// of another block_size is an error.
Result<KvEventBatch> read_kv_event_batch(const nlohmann::json& batch, std::string_view where,
                                         std::int64_t& page_tokens);

}  // namespace stemma
