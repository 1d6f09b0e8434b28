// The loop: messages in, one batch, tokens out. A request is known to the scheduler by its place in
// a slab; `extras_` is the engine's part of that slab.
#include "stemma/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/math.h"
#include "base/prng.h"
#include "cache/load_costs.h"
#include "engine/adapter_names.h"
#include "engine/constraint_queue.h"
#include "engine/engine_ghosts.h"
#include "engine/inbox.h"
#include "engine/request_extra.h"
#include "engine/shadow_audit.h"
#include "engine/step_queue.h"
#include "model/adapter_book.h"
#include "model/sampler.h"
#include "model/token_logprobs.h"
#include "sched/scheduler.h"

namespace stemma {
namespace {

// How long a step sleeps, at most, that has nothing to compute until pages have come up: messages
// wait as long.
constexpr std::chrono::microseconds kTransferNap(500);

// For statistics a part of the digest suffices: what a family has in common, and what it has not.
std::int64_t ghost_space_of(const NamespaceDigest& digest) {
  std::array<std::int64_t, 2> words;
  std::memcpy(words.data(), digest.bytes.data(), sizeof words);
  return words[0] ^ words[1];
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kFailed:
      return "failed";
  }
  return "unknown";
}

namespace {

// Other than that of any copy of a request with another seed, for all that can be told.
std::uint64_t seed_of_copy(std::uint64_t seed, std::uint64_t copy) {
  return mix64(mix64(seed) + copy);
}

Status check_pool(std::string_view name, const KvShape& shape, const KvShape& wanted) {
  if (shape.pages == wanted.pages && shape.page_size == wanted.page_size) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("the {} has {} pages of {} tokens, the options say {} of {}", name,
                           shape.pages, shape.page_size, wanted.pages, wanted.page_size)};
}

// Of all pools, for each page that a cached text has: at least one, also where windows are all
// there is and they are far smaller than texts.
std::int64_t bytes_a_page(const KvPools& pools) {
  const KvShape& full = pools.full.shape();
  const std::int64_t windowed =
      pools.windowed == nullptr ? 0 : pools.windowed->shape().total_bytes();
  return full.page_bytes() + ceil_div(windowed, full.pages);
}

Status check_windows(const EngineOptions& options, const EngineParts& parts) {
  const KvPool* const pool = parts.pools.windowed;
  if ((pool != nullptr) != (options.kv.window_tokens > 0)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("window_tokens is {}, and there is {} pool of windowed layers",
                             options.kv.window_tokens, pool == nullptr ? "no" : "a")};
  }
  if (pool == nullptr) return {};
  return check_pool("windowed pool", pool->shape(),
                    {.pages = options.kv.windowed_pages, .page_size = options.kv.page_size});
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options,
                                             const EngineParts& parts) {
  STEMMA_RETURN_IF_ERROR(validate(options));
  const KvShape& shape = parts.pools.full.shape();
  STEMMA_RETURN_IF_ERROR(
      check_pool("pool", shape, {.pages = options.kv.pages, .page_size = options.kv.page_size}));
  STEMMA_RETURN_IF_ERROR(check_windows(options, parts));
  if (parts.vocab_tokens < 1) {
    return Error{ErrorCode::kInvalidArgument, "vocab_tokens must be at least 1"};
  }
  STEMMA_ASSIGN_OR_RETURN(auto kv, KvCache::open(options.kv, &parts.clock, parts.lower_tiers));
  STEMMA_ASSIGN_OR_RETURN(auto ghosts, EngineGhosts::open(options, bytes_a_page(parts.pools)));
  STEMMA_ASSIGN_OR_RETURN(auto audit, ShadowAudit::open(options, parts, *kv));
  Own own = {std::move(kv), std::move(ghosts), std::move(audit)};
  return std::unique_ptr<Engine>(new Engine(options, parts, std::move(own)));
}

Engine::Engine(const EngineOptions& options, const EngineParts& parts, Own own)
    : options_(options),
      parts_(parts),
      kv_(std::move(own.kv)),
      scheduler_(std::make_unique<Scheduler>(*kv_, options.scheduler)),
      inbox_(std::make_unique<Inbox>(options.inbox_max)),
      sampler_(std::make_unique<Sampler>(parts.vocab_tokens)),
      ghosts_or_null_(std::move(own.ghosts_or_null)),
      audit_or_null_(std::move(own.audit_or_null)),
      constraints_(std::make_unique<ConstraintQueue>(
          static_cast<std::size_t>(options.kv.requests_max + options.scheduler.waiting_max))),
      adapter_names_(
          std::make_unique<AdapterNames>(static_cast<std::size_t>(options.kv.namespaces_max))),
      extras_(static_cast<std::size_t>(options.kv.requests_max + options.scheduler.waiting_max)) {
  forked_.reserve(static_cast<std::size_t>(kCopiesMax));
  assume_role(engine_thread);
  costs_ = std::make_unique<LoadCosts>();
  steps_ = std::make_unique<StepQueue>(parts_.runner, parts_.pools, *kv_, parts_.clock);
  if (parts.lower_tiers != nullptr) scheduler_->guess_pace();
  if (options.plan_ahead && parts.runner.queues()) scheduler_->allow_ahead();
  if (options.kv.tiers.load_by_layer && parts.runner.waits_by_layer()) scheduler_->allow_loans();
  // A step's events: one for each request in the batch, or two where it ends a prompt that is
  // scored, and one for each message taken in.
  const std::int64_t scored_max = options.scheduler.scored_tokens_max;
  events_.reserve(static_cast<std::size_t>(2 * options.kv.requests_max + options.inbox_max));
  choices_.reserve(static_cast<std::size_t>(options.kv.requests_max + scored_max));
  prompt_logprobs_.reserve(static_cast<std::size_t>(scored_max * (1 + kLogprobsMax)));
  logprob_rows_.resize(static_cast<std::size_t>(options.kv.requests_max));
}

Engine::~Engine() = default;

void Engine::drain_kv_events(PrefixEventSink& sink) {
  NamedEvents named(*adapter_names_, sink);
  kv_->drain_events(named);
}

void Engine::wait_for_work(std::chrono::microseconds time) {
  inbox_->wait(time);
}

StepReport Engine::step() {
  assume_role(engine_thread);
  events_.clear();
  logprob_rows_used_ = 0;
  prompt_logprobs_.clear();
  StepReport report;
  if (steps_->empty()) begin_step();
  const bool computes = !steps_->empty();
  if (computes) end_step(report);
  const bool audited = steps_->empty() && audit_cached(computes);
  if (!computes && !audited && !scheduler_->idle() && kv_->transfers_underway()) {
    kv_->wait_transfers(kTransferNap);
  }
  if (const auto held_back = scheduler_->held_back()) {
    report.held_back = admission_name(*held_back);
  }
  report.events = events_;
  return report;
}

// What has happened since the last step, and a batch if there is work.
void Engine::begin_step() {
  kv_->poll_transfers();
  drain_inbox();
  constraints_->work();
  if (!scheduler_->plan_step()) return;
  note_started();
  start_step(scheduler_->batch(), scheduler_->outputs());
}

// Computes a page of the cache again if that is due; false if there was nothing to do.
bool Engine::audit_cached(bool computed) {
  if (audit_or_null_ == nullptr) return false;
  const bool pages_short = scheduler_->held_back() == Admission::kNoPages;
  const auto outcome = audit_or_null_->end_step({computed, pages_short});
  if (outcome == ShadowAudit::Outcome::kQuarantined) scheduler_->requeue_quarantined();
  return outcome != ShadowAudit::Outcome::kNothing;
}

// At most inbox_max messages a step, so that a flood of them cannot stop the requests that run.
void Engine::drain_inbox() {
  for (std::int64_t taken = 0; taken < inbox_->messages_max(); ++taken) {
    std::optional<InboxMessage> message = inbox_->try_take();
    if (!message.has_value()) {
      inbox_->purges().forget();
      return;
    }
    if (message->spec.has_value()) {
      admit(std::move(*message));
    } else if (Request* request = scheduler_->find_or_null(message->id)) {
      scheduler_->cancel(*request);
      events_.push_back(end_event(*request, FinishReason::kCancelled));
    }
  }
}

// What differs between the copies of a request, and what is of all, beside its spec.
struct Engine::Entry {
  AdapterLease adapter;
  std::vector<TokenId> prompt;
  std::span<const TokenId> distinct_prompt;
  std::uint64_t seed = 0;
  std::int64_t submitted_us = 0;
  bool publishes = true;
};

void Engine::admit(InboxMessage message) {
  RequestSpec& spec = *message.spec;
  if (message.adapter && options_.kv.events_pages_max > 0) {
    const std::string& name = message.adapter.identity().name;
    adapter_names_->note(spec.namespace_digest, name);
    if (spec.shared_prefix.has_value()) adapter_names_->note(spec.shared_prefix->digest, name);
  }
  const std::uint64_t seed = *spec.sampling.seed;
  const bool publishes = !inbox_->purges().came_before(message.id, spec);
  const auto entry = [&](std::vector<TokenId>& prompt, std::uint64_t own_seed) {
    return Entry{message.adapter, std::move(prompt),    message.distinct_prompt,
                 own_seed,        message.submitted_us, publishes};
  };
  admit_one(message.id, RequestId(), spec, entry(spec.prompt, seed));
  for (std::size_t copy = 1; copy <= message.other_prompts.size(); ++copy) {
    const RequestId id(message.id.value() + static_cast<std::int64_t>(copy));
    admit_one(id, message.id, spec,
              entry(message.other_prompts[copy - 1], seed_of_copy(seed, copy)));
  }
}

void Engine::admit_one(RequestId id, RequestId fork_of, const RequestSpec& spec, Entry entry) {
  const std::int64_t ghost_space = ghost_space_of(spec.namespace_digest);
  const SharedPrefix* const shared =
      spec.shared_prefix.has_value() ? &*spec.shared_prefix : nullptr;
  const std::optional<NamespaceId> ns = kv_->try_open_namespace(spec.namespace_digest, shared);
  if (!ns.has_value()) {
    return refuse(id, {ErrorCode::kTooLarge, "as many namespaces are open as the cache may have"});
  }
  const bool scores = spec.prompt_logprobs.has_value() && !fork_of.valid();
  const std::int64_t given = scores ? spec.prompt_logprobs_from - 1 : 0;
  Request* request = scheduler_->try_submit_or_null({.id = id,
                                                     .ns = *ns,
                                                     .prompt = std::move(entry.prompt),
                                                     .output_tokens_max = spec.max_tokens,
                                                     .priority = spec.priority,
                                                     .retention = spec.retention,
                                                     .adapter = entry.adapter.place(),
                                                     .fork_of = fork_of,
                                                     .publishes = entry.publishes,
                                                     .scores_prompt = scores,
                                                     .scored_tokens = given});
  if (request == nullptr) {
    kv_->close_namespace(*ns);
    return refuse(id, {ErrorCode::kTooLarge, fmt::format("waiting_max: {} requests wait already",
                                                         options_.scheduler.waiting_max)});
  }
  RequestExtra& extra = extra_of(*request);
  extra.sampling = spec.sampling;
  extra.sampling.seed = entry.seed;
  extra.distinct_prompt.assign(entry.distinct_prompt.begin(), entry.distinct_prompt.end());
  extra.output_counts.clear();
  if (spec.sampling.has_penalties()) {
    extra.output_counts.reserve(
        static_cast<std::size_t>(std::min(spec.max_tokens, parts_.vocab_tokens)));
  }
  extra.stop_tokens = spec.stop_tokens;
  extra.constraint = spec.constraint;
  if (extra.constraint.get() != nullptr) constraints_->add(*request, *extra.constraint.get());
  extra.min_tokens = spec.min_tokens;
  extra.logprobs = spec.logprobs;
  extra.prompt_logprobs = spec.prompt_logprobs.value_or(0);
  extra.prompt_logprobs_from = spec.prompt_logprobs_from;
  extra.has_copies = spec.copies > 1;
  extra.is_copy = fork_of.valid();
  extra.submitted_us = entry.submitted_us;
  extra.ghost_space = ghost_space;
  extra.started_us = -1;
  extra.first_token_us = -1;
  extra.stop = PrefixStop::kCold;
  extra.evicted_ago_us = 0;
  extra.adapter = std::move(entry.adapter);
  extra.siblings = spec.siblings;
  extra.namespace_digest = spec.namespace_digest;
  extra.shared_prefix = spec.shared_prefix;
  extra.differing_field = {};
  if (parts_.observer != nullptr) parts_.observer->came(id, extra.submitted_us);
}

FinishReason Engine::finish_reason(const Request& request, TokenId token) const {
  const auto& stop_tokens = extra_of(request).stop_tokens;
  if (std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end()) {
    return FinishReason::kStop;
  }
  return request.generated_tokens() == request.output_tokens_max ? FinishReason::kLength
                                                                 : FinishReason::kNone;
}

void Engine::refuse(RequestId id, Error error) {
  ++totals_.failed_requests;
  events_.push_back(
      {.request = id, .finish = FinishReason::kFailed, .stats = {}, .error = std::move(error)});
}

void Engine::finish(Request& request) {
  if (ghosts_or_null_ != nullptr) {
    ghosts_or_null_->insert(extra_of(request).ghost_space, request.computed());
  }
  scheduler_->finish(request);
}

void Engine::fail(Request& request, const Error& error) {
  scheduler_->fail(request);
  events_.push_back(end_event(request, FinishReason::kFailed));
  events_.back().error = error;
}

std::optional<RequestStats> Engine::stop(RequestId id, FinishReason reason) {
  assume_role(engine_thread);
  STEMMA_CHECK(reason == FinishReason::kStop || reason == FinishReason::kCancelled, "why it ends");
  Request* request = scheduler_->find_or_null(id);
  if (request == nullptr) {
    return std::nullopt;
  }
  if (request->in_flight() && reason == FinishReason::kStop) {
    finish(*request);
  } else {
    scheduler_->cancel(*request);
  }
  return end_event(*request, reason).stats;
}

// Counts the end of a request, lets its namespace go and describes it. A prompt counts once, as the
// first of its copies found it.
EngineEvent Engine::end_event(Request& request, FinishReason reason) {
  kv_->close_namespace(request.ns);
  constraints_->remove(request);
  const RequestStats stats = stats_of(request);
  if (parts_.observer != nullptr) tell_ended(request, reason);
  // They may be long, and it may be a while until another request takes this place.
  std::vector<TokenId>().swap(request.tokens);
  extra_of(request).let_go();
  if (!extra_of(request).is_copy) {
    totals_.prompt_tokens += stats.prompt_tokens;
    totals_.cached_tokens += stats.cached_tokens;
  }
  totals_.output_tokens += stats.output_tokens;
  totals_.finished_requests +=
      reason == FinishReason::kStop || reason == FinishReason::kLength ? 1 : 0;
  totals_.cancelled_requests += reason == FinishReason::kCancelled ? 1 : 0;
  totals_.failed_requests += reason == FinishReason::kFailed ? 1 : 0;
  return {.request = request.id, .finish = reason, .stats = stats, .error = {}};
}

void Engine::tell_ended(Request& request, FinishReason reason) {
  const RequestExtra& extra = extra_of(request);
  parts_.observer->ended({.request = request.id,
                          .finish = reason,
                          .namespace_digest = extra.namespace_digest,
                          .shared_prefix = extra.shared_prefix,
                          .tokens = std::move(request.tokens),
                          .prompt_tokens = request.prompt_tokens,
                          .priority = request.priority});
}

const RequestExtra& Engine::extra_of(const Request& request) const {
  return extras_[static_cast<std::size_t>(request.slot)];
}

RequestExtra& Engine::extra_of(const Request& request) {
  return extras_[static_cast<std::size_t>(request.slot)];
}

void Engine::visit_metrics(MetricVisitor& visitor) const {
  const EngineTotals now = totals();
  visitor.counter("stemma_steps_total", now.steps);
  visitor.counter("stemma_failed_steps_total", now.failed_steps);
  visitor.counter("stemma_prompt_tokens_total", now.prompt_tokens);
  visitor.counter("stemma_cached_tokens_total", now.cached_tokens);
  visitor.counter("stemma_computed_prompt_tokens_total", now.computed_prompt_tokens);
  visitor.counter("stemma_output_tokens_total", now.output_tokens);
  visitor.counter("stemma_finished_requests_total", now.finished_requests);
  visitor.counter("stemma_cancelled_requests_total", now.cancelled_requests);
  visitor.counter("stemma_failed_requests_total", now.failed_requests);
  visitor.counter("stemma_preemptions_total", now.preemptions);
  visitor.counter("stemma_forks_total", now.forks);
  visitor.counter("stemma_evicted_pages_total", now.evicted_pages);
  if (ghosts_or_null_ != nullptr) ghosts_or_null_->visit_metrics(visitor);
  if (audit_or_null_ != nullptr) audit_or_null_->visit_metrics(visitor);
  visitor.gauge("stemma_running_requests", scheduler_->in_flight());
  visitor.gauge("stemma_waiting_requests", scheduler_->waiting());
  kv_->visit_metrics(visitor);
}

std::vector<std::string> Engine::cache_advice() const {
  return ghosts_or_null_ == nullptr ? std::vector<std::string>() : ghosts_or_null_->advice();
}

void Engine::settle(std::chrono::microseconds time) {
  if (!steps_->empty()) steps_->await_first();
  kv_->settle(parts_.clock.now_us() + time.count());
}

void Engine::set_quota(const NamespaceFamily& tenant, std::int64_t pages) {
  kv_->set_quota(tenant, pages);
}

void Engine::set_quotas(std::span<const TenantQuota> quotas) {
  kv_->set_quotas(quotas);
}

Result<PurgeId> Engine::purge(std::span<const NamespaceFamily> families) {
  if (!steps_->empty()) steps_->await_first();
  Result<PurgeId> purged = kv_->purge(families);
  if (!purged.ok()) return purged;
  assume_role(engine_thread);
  scheduler_->note_purged(families);
  inbox_->purges().note(RequestId(next_id_.load()), families);
  return purged;
}

bool Engine::idle() const {
  const bool audits = audit_or_null_ != nullptr && audit_or_null_->waits();
  return scheduler_->idle() && inbox_->empty() && !audits && steps_->empty();
}

EngineTotals Engine::totals() const {
  EngineTotals totals = totals_;
  totals.computed_prompt_tokens = scheduler_->totals().computed_prompt_tokens;
  totals.preemptions = scheduler_->totals().preemptions;
  totals.forks = scheduler_->totals().forks;
  totals.evicted_pages = kv_->evicted_pages();
  if (audit_or_null_ != nullptr) {
    totals.shadow_audits = audit_or_null_->audits();
    totals.shadow_audit_mismatches = audit_or_null_->mismatches();
    totals.shadow_audits_skipped = audit_or_null_->skipped();
  }
  return totals;
}

std::optional<std::string> Engine::audit() const {
  if (auto contradiction = kv_->audit()) {
    return contradiction;
  }
  return scheduler_->audit();
}

}  // namespace stemma
