// Receipt: what the cache did for one answer: where each token of its prompt came from, and what
// that saved.
//
// Thread:     pure functions.
// Memory:     the text they return.
// Cost:       none to speak of.
// Not here:   counting (Engine), usage in OpenAI's shape (openai/completion_answer).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "openai/completion_request.h"
#include "stemma/engine.h"

namespace stemma {

// The costs of several prompts, added up: what one response reports. Times are the longest of them.
RequestStats sum_of(const RequestStats& a, const RequestStats& b);

// {"prompt_tokens", "tokens": {"device", "host", "disk", "remote", "computed"}, "stopped":
// {"reason",
// ...}, "load_ms": {"host", "disk", "remote"}, "saved_ms", "queue_ms", "ttft_ms"}. `policy` is that
// of eviction.
TemplateJson receipt_json(const RequestStats& stats, std::string_view policy);

// The same in short: "device=512; host=0; disk=0; remote=0; computed=37; stopped=cold; saved_ms=8".
std::string receipt_header(const RequestStats& stats);

// Milliseconds, or null where they are not known.
TemplateJson ms_json(std::optional<std::int64_t> us);

// Why a prefix stopped, and what is known of it.
struct StopReport {
  PrefixStop stop = PrefixStop::kCold;
  std::int64_t evicted_ago_us = 0;
  std::string_view differing_field = {};
};

// {"reason": "evicted", "evicted_ms_ago": 1200, "policy": "lru"},
// {"reason": "other_namespace", "differs": "extra_key"}.
TemplateJson stop_json(const StopReport& report, std::string_view policy);

}  // namespace stemma
