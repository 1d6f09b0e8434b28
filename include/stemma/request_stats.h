// RequestStats: what one request cost, and what the cache did for it; and the sums of all of them.
//
// Thread:     values.
// Memory:     CacheExplanation has a few tokens.
// Cost:       none.
// Not here:   metrics by name (visit_metrics).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "stemma/ids.h"
#include "stemma/lower_tiers.h"
#include "stemma/prefix_cache.h"

namespace stemma {

// Why no more of a prompt was taken from the cache than was.
enum class PrefixStop : std::uint8_t {
  kTail,     // nothing was missing but what is less than a page, or the last token
  kCold,     // the next page was never cached, or that is forgotten (KvCacheOptions::evicted_marks)
  kEvicted,  // the next page had to go, RequestStats::evicted_ago_us before
  kInFlight,        // another request was computing it
  kDeadline,        // lower tiers had more, which was computed before it came
  kLoadError,       // lower tiers had more, which was missing, wrong or could not be read
  kOtherNamespace,  // a namespace of the same owner has more (RequestSpec::siblings)
  kWindow,  // layers that look back over the whole text had more, those with a window had not
  kScored,  // the rest was computed for its tokens' logprobs (RequestSpec::prompt_logprobs)
};
inline constexpr std::size_t kPrefixStops = static_cast<std::size_t>(PrefixStop::kScored) + 1;

// "tail", "cold", "evicted", "in_flight", "deadline", "load_error", "other_namespace", "window",
// "prompt_logprobs".
std::string_view prefix_stop_name(PrefixStop stop);

// Another namespace of the same owner, where a request's text may be cached: to be told of, never
// to be shared.
struct SiblingNamespace {
  NamespaceDigest digest;  // goes on from the same shared prefix, if any
  std::string_view field;  // in which the two differ; outlives the engine
};

// What one request cost.
struct RequestStats {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;    // of the prompt, found in the cache when it was admitted
  std::int64_t computed_tokens = 0;  // of the prompt; again after a preemption counts again
  std::int64_t output_tokens = 0;
  std::int64_t queue_us = 0;  // from submit to the first step that computed something of it
  std::int64_t ttft_us = 0;   // from submit to the first output token; 0 if there was none
  std::int64_t total_us = 0;  // from submit to the end
  std::int64_t preemptions = 0;
  BroughtTokens brought;     // of cached_tokens, those that lower tiers brought up for it
  BroughtTokens brought_us;  // that copies from each tier took, as far as they were for it
  PrefixStop stop = PrefixStop::kCold;
  std::int64_t evicted_ago_us = 0;
  std::string_view differing_field;  // where stop is kOtherNamespace: SiblingNamespace::field
  // What computing cached_tokens would have taken, as far as steps tell what computing costs here.
  std::optional<std::int64_t> saved_us;
};

// Since the engine was opened. Counters, which only grow: rates are for whoever looks at two of
// them.
struct EngineTotals {
  std::int64_t steps = 0;
  std::int64_t failed_steps = 0;   // of these: that the Runner could not compute
  std::int64_t prompt_tokens = 0;  // of requests that ended, once for all copies of one
  std::int64_t cached_tokens = 0;  // of these
  std::int64_t computed_prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t finished_requests = 0;  // stop and length
  std::int64_t cancelled_requests = 0;
  std::int64_t failed_requests = 0;
  std::int64_t preemptions = 0;
  std::int64_t forks = 0;  // copies that computed nothing of their prompt (RequestSpec::copies)
  std::int64_t evicted_pages = 0;
  // EngineOptions::shadow_audit_percent: hits computed again, those that differed, and those that
  // were drawn and not computed.
  std::int64_t shadow_audits = 0;
  std::int64_t shadow_audit_mismatches = 0;
  std::int64_t shadow_audits_skipped = 0;
};

// What a request that has not ended holds, for people.
struct RequestLease {
  RequestId id;
  std::string_view state;   // "waiting", "prefilling", "running", "preempted"
  std::int64_t age_us = 0;  // since it was submitted
  std::int64_t prompt_tokens = 0;
  std::int64_t computed_tokens = 0;  // that have KV, cached ones included
  std::int64_t output_tokens = 0;
  std::int64_t pages = 0;         // of the device
  std::int64_t shared_pages = 0;  // of these, those that others can find
  std::int64_t preemptions = 0;
  std::string adapter = {};  // its name; empty: none
};

// What the cache has of a text, for people.
struct CacheExplanation {
  NearestText nearest;
  std::int64_t device_tokens = 0;       // that a request would go on from, all but the last at most
  PrefixStop stop = PrefixStop::kCold;  // of kTail, kCold, kEvicted and kWindow
  std::int64_t evicted_ago_us = 0;
  std::int64_t host_tokens = 0;          // from the first one on, in host memory
  std::int64_t store_tokens = 0;         // and in page stores that know without asking
  std::optional<std::int64_t> saved_us;  // by what the device has
};

}  // namespace stemma
