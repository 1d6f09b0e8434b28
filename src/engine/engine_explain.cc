// What the engine can tell of its cache: what a request cost, why its prefix ended where it did,
// and what the cache has of a text.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/math.h"
#include "cache/load_costs.h"
#include "cache/text_report.h"
#include "engine/adapted_spec.h"
#include "engine/request_extra.h"
#include "sched/scheduler.h"
#include "stemma/engine.h"

namespace stemma {
namespace {

// What was brought for a request may have left the device again before it ran.
BroughtTokens within(BroughtTokens brought, std::int64_t tokens_max) {
  brought.remote = std::min(brought.remote, tokens_max);
  brought.disk = std::min(brought.disk, tokens_max - brought.remote);
  brought.host = std::min(brought.host, tokens_max - brought.remote - brought.disk);
  return brought;
}

PrefixStop stop_of(PrefixEnd end) {
  switch (end) {
    case PrefixEnd::kTail:
      return PrefixStop::kTail;
    case PrefixEnd::kCold:
      return PrefixStop::kCold;
    case PrefixEnd::kEvicted:
      return PrefixStop::kEvicted;
    case PrefixEnd::kWindow:
      return PrefixStop::kWindow;
  }
  return PrefixStop::kCold;
}

std::int64_t ago_us(const PrefixEndReport& report, const Clock& clock) {
  return report.end == PrefixEnd::kEvicted ? clock.now_us() - report.evicted_us : 0;
}

}  // namespace

std::string_view prefix_stop_name(PrefixStop stop) {
  switch (stop) {
    case PrefixStop::kTail:
      return "tail";
    case PrefixStop::kCold:
      return "cold";
    case PrefixStop::kEvicted:
      return "evicted";
    case PrefixStop::kInFlight:
      return "in_flight";
    case PrefixStop::kDeadline:
      return "deadline";
    case PrefixStop::kLoadError:
      return "load_error";
    case PrefixStop::kOtherNamespace:
      return "other_namespace";
    case PrefixStop::kWindow:
      return "window";
    case PrefixStop::kScored:
      return "prompt_logprobs";
  }
  return "unknown";
}

// Asked when its first tokens are about to be computed: none of its own pages can be found yet.
void Engine::note_prefix_stop(const Request& request, RequestExtra& extra) {
  if (!kv_->shares()) {
    extra.stop = PrefixStop::kCold;
    return;
  }
  const auto prompt = static_cast<std::size_t>(request.scores_prompt ? extra.prompt_logprobs_from
                                                                     : request.prompt_tokens);
  const auto report =
      kv_->why_ends(request.ns, std::span<const TokenId>(request.tokens).first(prompt));
  extra.stop = stop_of(report.end);
  extra.evicted_ago_us = ago_us(report, parts_.clock);
  if (extra.stop != PrefixStop::kCold) return;
  if (scheduler_->is_computed_beside(request, report.matched_tokens)) {
    extra.stop = PrefixStop::kInFlight;
    return;
  }
  const auto wanted = std::span<const TokenId>(request.tokens).first(prompt - 1);
  for (const SiblingNamespace& sibling : extra.siblings) {
    if (kv_->found_beside(request.ns, sibling.digest, wanted) <= report.matched_tokens) continue;
    extra.stop = PrefixStop::kOtherNamespace;
    extra.differing_field = sibling.field;
    return;
  }
}

// What was on its way when the request began is known only later.
PrefixStop Engine::prefix_stop(const Request& request) const {
  const std::int64_t most = round_down(request.prompt_tokens - 1, kv_->page_size());
  if (request.cached_tokens >= most) return PrefixStop::kTail;
  const std::int64_t given = extra_of(request).prompt_logprobs_from - 1;
  if (request.scores_prompt && request.cached_tokens >= round_down(given, kv_->page_size())) {
    return PrefixStop::kScored;
  }
  if (request.promoted.lost_pages) return PrefixStop::kLoadError;
  if (request.promoted.unfinished) return PrefixStop::kDeadline;
  return extra_of(request).stop;
}

std::optional<std::int64_t> Engine::saved_us(std::int64_t cached_tokens) const {
  return cached_tokens == 0 ? std::optional<std::int64_t>(0) : costs_->compute_us(0, cached_tokens);
}

RequestStats Engine::stats_of(const Request& request) const {
  const RequestExtra& extra = extra_of(request);
  return {.prompt_tokens = request.prompt_tokens,
          .cached_tokens = request.cached_tokens,
          .computed_tokens = request.computed_prompt_tokens,
          .output_tokens = request.generated_tokens(),
          .queue_us = extra.started_us < 0 ? 0 : extra.started_us - extra.submitted_us,
          .ttft_us = extra.first_token_us < 0 ? 0 : extra.first_token_us - extra.submitted_us,
          .total_us = parts_.clock.now_us() - extra.submitted_us,
          .preemptions = request.preemptions,
          .brought = within(request.promoted.tokens, request.cached_tokens),
          .brought_us = request.promoted.us,
          .stop = prefix_stop(request),
          .evicted_ago_us = extra.evicted_ago_us,
          .differing_field = extra.differing_field,
          .saved_us = saved_us(request.cached_tokens)};
}

std::vector<RequestLease> Engine::leases() const {
  std::vector<RequestLease> leases;
  const auto add = [&](const Request* request) {
    RequestLease lease = {.id = request->id,
                          .state = request_state_name(request->state()),
                          .age_us = parts_.clock.now_us() - extra_of(*request).submitted_us,
                          .prompt_tokens = request->prompt_tokens,
                          .computed_tokens = request->computed_tokens,
                          .output_tokens = request->generated_tokens(),
                          .preemptions = request->preemptions};
    const AdapterLease& adapter = extra_of(*request).adapter;
    if (adapter) lease.adapter = adapter.identity().name;
    if (request->sequence.valid()) {
      lease.pages = std::ssize(request->sequence.pages());
      lease.shared_pages = request->sequence.published_tokens() / kv_->page_size();
    }
    leases.push_back(std::move(lease));
  };
  for (const Request* request : scheduler_->requests_in_flight()) add(request);
  for (const Request* request : scheduler_->waiting_requests()) add(request);
  return leases;
}

std::optional<CacheExplanation> Engine::explain(const NamespaceDigest& digest,
                                                std::span<const TokenId> tokens,
                                                std::int64_t next_tokens_max,
                                                const SharedPrefix* shared_or_null,
                                                std::string_view adapter) {
  const Result<AdapterLease> lease = lease_adapter(adapter);
  if (!kv_->shares() || !lease.ok()) return std::nullopt;
  RequestSpec spec;
  spec.namespace_digest = digest;
  if (shared_or_null != nullptr) spec.shared_prefix = *shared_or_null;
  if (*lease) enter_namespaces(lease->identity(), spec);
  const SharedPrefix* const shared =
      spec.shared_prefix.has_value() ? &*spec.shared_prefix : nullptr;
  TextReport report =
      TextReporter(*kv_).report(spec.namespace_digest, shared, tokens, next_tokens_max);
  return CacheExplanation{.nearest = std::move(report.nearest),
                          .device_tokens = report.end.matched_tokens,
                          .stop = stop_of(report.end.end),
                          .evicted_ago_us = ago_us(report.end, parts_.clock),
                          .host_tokens = report.host_tokens,
                          .store_tokens = report.store_tokens,
                          .saved_us = saved_us(report.end.matched_tokens)};
}

}  // namespace stemma
