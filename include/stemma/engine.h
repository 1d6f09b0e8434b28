// Engine: takes requests, runs steps, gives tokens. The serving loop around any Runner.
//
//   submit, cancel   from any thread; they only leave a message (prepare, post: submit in halves)
//   step             on the engine thread: takes the messages in, computes one batch, samples
//   the events of a step say which tokens came and which requests ended
//
// Thread:     submit, cancel and wait_for_work from any thread; everything else from the engine
//             thread only. Step and its events belong together: no other thread reads them.
// Memory:     everything sized from EngineOptions when opened; a request's tokens are allocated by
//             the thread that submits it. In steady state a step allocates nothing (I10).
// Cost:       the Runner's, and a few microseconds a request in flight.
// Not here:   text (engine/text_generation), HTTP (server/), what a batch computes (Runner).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/ids.h"
#include "stemma/kv_cache.h"
#include "stemma/lower_tiers.h"
#include "stemma/metrics.h"
#include "stemma/options.h"
#include "stemma/prefix_cache.h"
#include "stemma/request.h"
#include "stemma/result.h"
#include "stemma/runner.h"
#include "stemma/sampling.h"
#include "stemma/thread_role.h"

namespace stemma {

class AdapterLease;
class AdapterNames;
class Clock;
class ConstraintQueue;
class EngineGhosts;
class Inbox;
class LoadCosts;
struct InboxMessage;
class Request;
struct RequestExtra;
class Sampler;
class Scheduler;
class ShadowAudit;
class StepQueue;
struct ComputedStep;
struct StepOutput;

// One request in one step.
struct EngineEvent {
  RequestId request;
  TokenId token = -1;  // the token that came; -1: none
  FinishReason finish = FinishReason::kNone;
  RequestStats stats;  // where finish is not kNone; with the first token, as far as known then
  Error error;         // where finish is kFailed
  // Where RequestSpec::logprobs asked for them: that of `token`, then the likeliest, best first
  // (ties: lower id). Valid as long as the events.
  std::span<const TokenLogprob> logprobs = {};
  // Those of the next tokens of its prompt, where RequestSpec::prompt_logprobs asked for them; in
  // events without a token, before the first.
  std::span<const TokenLogprob> prompt_logprobs = {};
};

// What one step did.
struct StepReport {
  std::int64_t computed_tokens = 0;
  std::int64_t requests = 0;  // that computed something
  // Why the queue was not taken in further ("no_pages", ...); empty if nothing was turned away.
  std::string_view held_back;
  // Valid until the next step.
  std::span<const EngineEvent> events;
};

// What an engine is built around; all of it must outlive the engine.
struct EngineParts {
  Runner& runner;
  KvPools pools;                  // of exactly KvCacheOptions::pages pages of page_size tokens
  std::int64_t vocab_tokens = 0;  // of the runner's logits
  const Clock& clock;
  LowerTiers* lower_tiers = nullptr;  // nullptr: there is only the device
  // Is told of every request that a step takes in, and of its end: the step waits for it, as it
  // does for the runner. nullptr: nobody is told.
  RequestObserver* observer = nullptr;
};

class Engine {
 public:
  // kInvalidArgument naming the option that is wrong, or where the pool differs from the options.
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options,
                                              const EngineParts& parts);
  // Requests that have not ended are dropped without an event.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Any thread. Checks everything that can be checked without running; kInvalidArgument, kNotFound
  // or kTooLarge says in one line, with the numbers, why a request is refused. What is accepted
  // ends with exactly one event whose `finish` is not kNone; of several copies, each does. The same
  // as prepare, which is the work of it, and post, which is quick.
  Result<RequestId> submit(RequestSpec spec);
  Result<PreparedRequest> prepare(RequestSpec spec) const;
  // kTooLarge if inbox_max messages wait. REQUIRES: this engine prepared it.
  Result<RequestId> post(PreparedRequest&& request);

  // Any thread, any number of times, in any state of the request: one that has ended is left alone.
  // After the step that sees it there are no more tokens. kTooLarge if inbox_max messages wait.
  Status cancel(RequestId id);

  // Any thread. Waits until a message is there or the time is over.
  void wait_for_work(std::chrono::microseconds time);

  // Takes messages in, computes one batch if there is work, reports. A failure of the Runner fails
  // the requests of its batch and nothing else. Where the Runner queues steps, the next one may be
  // under way when this returns; messages are then taken in when it is done.
  StepReport step();

  // Ends a request now: with kStop as a stop token would, what it computed stays in the cache; with
  // kCancelled as cancel does. nullopt if it has ended, or no step has seen it yet. No event
  // follows. REQUIRES: one of these reasons.
  std::optional<RequestStats> stop(RequestId id, FinishReason reason = FinishReason::kStop);

  // Copies what is cached to lower tiers, if there are any, as far as it is not there, and waits
  // for it, `time` at most; where host memory has a file, writes it then. A step that is under way
  // is waited for; what requests hold that have not ended is left out.
  void settle(std::chrono::microseconds time);

  // See KvCache; with the names of adapters. Between steps.
  void drain_kv_events(PrefixEventSink& sink);
  void resend_kv_events() { kv_->resend_events(); }

  // What the device and the tiers have of `tokens` now, and the cached text that is nearest to
  // them, with at most `next_tokens_max` tokens of what it goes on with. Changes nothing, and opens
  // no namespace. nullopt where nothing is shared or there is no such adapter. `adapter` as in
  // RequestSpec.
  // REQUIRES: tokens not empty. O(nodes).
  std::optional<CacheExplanation> explain(const NamespaceDigest& digest,
                                          std::span<const TokenId> tokens,
                                          std::int64_t next_tokens_max,
                                          const SharedPrefix* shared_or_null = nullptr,
                                          std::string_view adapter = {});

  // Requests that have not ended, running ones first. Between steps. Allocates.
  std::vector<RequestLease> leases() const;

  // Forgets what is cached of these families of namespaces, of all where none is named: see
  // KvCache::purge. Requests that were submitted before run, or go on, and publish nothing any
  // more; those that wait are computed afresh. Between steps.
  Result<PurgeId> purge(std::span<const NamespaceFamily> families);
  std::optional<PurgeReport> purge_report(PurgeId id) const { return kv_->purge_report(id); }

  // See KvCache. Before the first step, or between steps.
  void set_quota(const NamespaceFamily& tenant, std::int64_t pages);
  void set_quotas(std::span<const TenantQuota> quotas);

  // Whether a step would find nothing to do.
  bool idle() const;
  EngineTotals totals() const;
  // What it caches, to be looked at between steps.
  const KvCache& kv() const noexcept { return *kv_; }
  const EngineOptions& options() const noexcept { return options_; }

  // The totals as counters, what ghosts of the cache found as gauges. Between steps.
  void visit_metrics(MetricVisitor& visitor) const;
  // What other sizes and policies would have been worth: "device +2 GiB: +6.1 points". Empty where
  // nothing was looked up, or nothing is watched. Between steps.
  std::vector<std::string> cache_advice() const;

  // Every invariant of cache and scheduler; the first contradiction, or nullopt. Allocates.
  std::optional<std::string> audit() const;

 private:
  struct Entry;

  // What an engine is made with beside its options.
  struct Own {
    std::unique_ptr<KvCache> kv;
    std::unique_ptr<EngineGhosts> ghosts_or_null;
    std::unique_ptr<ShadowAudit> audit_or_null;
  };

  Engine(const EngineOptions& options, const EngineParts& parts, Own own);

  // The door: what is checked on the caller's thread.
  Result<AdapterLease> lease_adapter(std::string_view name) const;
  Status check(const RequestSpec& spec) const;
  // What was left at it, a request at a time.
  void drain_inbox() STEMMA_REQUIRES_ROLE(engine_thread);
  void admit(InboxMessage message) STEMMA_REQUIRES_ROLE(engine_thread);
  void admit_one(RequestId id, RequestId fork_of, const RequestSpec& spec, Entry entry)
      STEMMA_REQUIRES_ROLE(engine_thread);
  // A step: planned, started, perhaps with the next one behind it, and when done, its tokens.
  void begin_step() STEMMA_REQUIRES_ROLE(engine_thread);
  void end_step(StepReport& report) STEMMA_REQUIRES_ROLE(engine_thread);
  bool chooses_here(const Request& request) const;
  bool completes(const Request& request, TokenId token) STEMMA_REQUIRES_ROLE(engine_thread);
  void start_step(const KvBatch& batch, std::span<const StepOutput> outputs);
  bool start_ahead() STEMMA_REQUIRES_ROLE(engine_thread);
  void accept_step(const ComputedStep& step, StepReport& report)
      STEMMA_REQUIRES_ROLE(engine_thread);
  // What the cache did for requests: found once they started, worth what computing costs here.
  void note_started() STEMMA_REQUIRES_ROLE(engine_thread);
  void note_prefix_stop(const Request& request, RequestExtra& extra);
  PrefixStop prefix_stop(const Request& request) const;
  std::optional<std::int64_t> saved_us(std::int64_t cached_tokens) const;
  void note_found() STEMMA_REQUIRES_ROLE(engine_thread);
  void note_computed(std::int64_t us) STEMMA_REQUIRES_ROLE(engine_thread);
  // Computes what is cached again, now and then, where a step leaves room. Whether it did.
  bool audit_cached(bool computed) STEMMA_REQUIRES_ROLE(engine_thread);
  // What becomes of a step's requests: all or some fail, or each has its token.
  void fail_batch(const Error& error) STEMMA_REQUIRES_ROLE(engine_thread);
  void fail_broken(const ComputedStep& step) STEMMA_REQUIRES_ROLE(engine_thread);
  void accept_tokens(const ComputedStep& step) STEMMA_REQUIRES_ROLE(engine_thread);
  void accept_logits(Request& request, std::span<const float> logits)
      STEMMA_REQUIRES_ROLE(engine_thread);
  void accept_chosen(Request& request, std::optional<TokenId> token, std::span<const float> logits)
      STEMMA_REQUIRES_ROLE(engine_thread);
  void fork_off(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void accept_token(Request& request, TokenId token, std::span<const float> logits)
      STEMMA_REQUIRES_ROLE(engine_thread);
  // Chances that were asked for, of the prompt's tokens and of those that came.
  void accept_scores(const ComputedStep& step) STEMMA_REQUIRES_ROLE(engine_thread);
  std::span<const TokenLogprob> score(const Request& request, std::int64_t position,
                                      std::span<const float> logits);
  std::span<const TokenLogprob> logprobs_of(const Request& request, std::span<const float> logits,
                                            TokenId token);
  FinishReason finish_reason(const Request& request, TokenId token) const;
  // A request's end, and the one event that says so.
  void refuse(RequestId id, Error error);
  void finish(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void fail(Request& request, const Error& error) STEMMA_REQUIRES_ROLE(engine_thread);
  EngineEvent end_event(Request& request, FinishReason reason);
  // REQUIRES: there is an observer. It has the tokens then.
  void tell_ended(Request& request, FinishReason reason);
  RequestStats stats_of(const Request& request) const;
  // What the engine keeps of a request beside what the scheduler does.
  RequestExtra& extra_of(const Request& request);
  const RequestExtra& extra_of(const Request& request) const;

  // Each may use those above it.
  EngineOptions options_;
  EngineParts parts_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Scheduler> scheduler_;  // its requests hold pages of kv_: destroyed before it
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<EngineGhosts> ghosts_or_null_;
  std::unique_ptr<ShadowAudit> audit_or_null_;
  std::unique_ptr<ConstraintQueue> constraints_;
  std::unique_ptr<AdapterNames> adapter_names_;
  std::vector<RequestExtra> extras_;
  std::vector<Request*> forked_;      // off the request whose logits are looked at
  std::vector<TokenChoice> choices_;  // of the step that is started
  std::vector<EngineEvent> events_;
  // Of this step's events: the first logprob_rows_used_ of rows that stay where they are.
  std::deque<std::array<TokenLogprob, 1 + kLogprobsMax>> logprob_rows_;
  std::size_t logprob_rows_used_ = 0;
  std::vector<TokenLogprob> prompt_logprobs_;  // of this step's events
  std::atomic<std::int64_t> next_id_ = 0;
  std::unique_ptr<LoadCosts> costs_;  // of computing
  std::unique_ptr<StepQueue> steps_;  // uses all of the above: ends first
  EngineTotals totals_;
};

}  // namespace stemma
