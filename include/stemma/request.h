// RequestSpec: what is asked of an engine. RequestStats: what that cost, and what the cache did for
// it; and the sums of all of them.
//
// Thread:     values.
// Memory:     the tokens of a prompt; CacheExplanation has a few.
// Cost:       none.
// Not here:   what comes of a request step by step (EngineEvent in engine.h), metrics by name
//             (visit_metrics).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/ids.h"
#include "stemma/lower_tiers.h"
#include "stemma/prefix_cache.h"
#include "stemma/sampling.h"
#include "stemma/sequence.h"

namespace stemma {

struct InboxMessage;

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

// Of RequestSpec::logprobs, ::prompt_logprobs and ::copies.
inline constexpr std::int64_t kLogprobsMax = 20;
inline constexpr std::int64_t kCopiesMax = 128;

// What a user asks of an engine.
struct RequestSpec {
  std::vector<TokenId> prompt;       // at least one token, each in the vocabulary
  std::int64_t max_tokens = 128;     // output tokens at most, >= 1
  SamplingParams sampling;           // greedy unless a temperature is set
  std::vector<TokenId> stop_tokens;  // the output ends with the first of these
  std::int64_t min_tokens = 0;       // no stop token is chosen before: 0 to max_tokens
  std::int32_t priority = 0;         // see SchedulePolicy and the eviction order "priority"
  NamespaceDigest namespace_digest;  // prefixes are shared within one namespace only
  // The name of one of Runner::adapters, which it is computed with, even if it is taken out before
  // the request has ended; empty: none. Prefixes are then shared with requests whose adapter has
  // the same digest: submit adds it to every namespace here.
  std::string adapter;
  // What its namespace goes on from; not more tokens than the prompt. Absent: nothing.
  std::optional<SharedPrefix> shared_prefix;
  std::vector<SiblingNamespace> siblings;     // see PrefixStop::kOtherNamespace
  Retention retention = Retention::kDefault;  // how soon its client expects to come back
  // Each token's logarithm of probability comes with it, and those of so many likeliest tokens,
  // kLogprobsMax at most. Absent: none.
  std::optional<std::int64_t> logprobs;
  // The same of the prompt's tokens from prompt_logprobs_from on, which are then computed, whatever
  // is cached of them. From 1, since nothing says how likely the first was, to the prompt's tokens.
  // Of several copies the first gets them.
  std::optional<std::int64_t> prompt_logprobs;
  std::int64_t prompt_logprobs_from = 1;
  // Requests with this prompt: the others have the ids that follow, and seeds of their own. It is
  // computed once, for all that are ready and have room when that is done. From 1 to kCopiesMax.
  std::int64_t copies = 1;
  // Stop tokens that it does not allow wait for its end. A costly one has its tokens later.
  OwnedConstraint constraint = {};
};

// A request that Engine::prepare found in order, with the memory that it takes until it ends: room
// for the whole output, once for every copy. A copy of it is another request.
class PreparedRequest {
 public:
  ~PreparedRequest();
  PreparedRequest(const PreparedRequest& other);
  PreparedRequest& operator=(const PreparedRequest& other);
  PreparedRequest(PreparedRequest&& other) noexcept;
  PreparedRequest& operator=(PreparedRequest&& other) noexcept;

 private:
  friend class Engine;
  explicit PreparedRequest(InboxMessage&& message);

  std::unique_ptr<InboxMessage> message_;
};

// How a request ended.
enum class FinishReason : std::uint8_t {
  kNone,       // goes on
  kStop,       // a stop token, or a stop string
  kLength,     // max_tokens
  kCancelled,  // the user gave up
  kFailed,     // EngineEvent::error says why
};

// "none", "stop", "length", "cancelled", "failed".
std::string_view finish_reason_name(FinishReason reason);

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

// A request that has ended, and what of it the cache has looked at or may have.
struct EndedRequest {
  RequestId request;
  FinishReason finish = FinishReason::kNone;
  NamespaceDigest namespace_digest;           // as the cache has it: with its adapter
  std::optional<SharedPrefix> shared_prefix;  // likewise
  std::vector<TokenId> tokens;                // of the prompt, then of the output
  std::int64_t prompt_tokens = 0;
  std::int32_t priority = 0;
};

// Who is told of an engine's requests: on its thread, amid a step, which waits for it.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  // It was taken in, after all of which that was said before. `submitted_us` by the engine's clock.
  virtual void came(RequestId request, std::int64_t submitted_us) = 0;
  // One that came, once; none that an engine is destroyed with.
  virtual void ended(EndedRequest&& request) = 0;
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
