// Scheduler: which requests compute what in the next step, and what happens to their pages after
// it.
//
//   plan_step      running requests first, then prompts already begun, then the queue in order
//   complete_step  the step's tokens have KV: publish, move on
//   finish/cancel/fail   the end of one request
//   plan_ahead     while a step is computed: the one behind it, of those that are in flight
//
// Under pressure the running request with the fewest generated tokens (of these, the one that
// arrived last) gives its pages up and waits again; what it computed is published, so that it comes
// back cheaply if there was room to keep it. While anything is in flight that does not rest (its
// next token cannot be chosen yet), each step computes at least one token (I12).
//
// Thread:     engine thread only.                      Invariants: I10, I12, I13.
// Memory:     a slab of requests_max + waiting_max requests, lists and scratch; fixed at
//             construction. No step allocates.
// Cost:       O(requests) a step, and ordering the queue when it or the cache changed; to submit
//             and to end one that waits O(1).
// Not here:   the model, sampling, threads (engine/).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sched/batch_builder.h"
#include "sched/request.h"
#include "sched/request_index.h"
#include "sched/schedule_policy.h"
#include "sched/waiting_list.h"
#include "stemma/kv_cache.h"
#include "stemma/options.h"
#include "stemma/thread_role.h"

namespace stemma {

// Since the scheduler was made.
struct SchedulerTotals {
  std::int64_t submitted_requests = 0;
  std::int64_t computed_tokens = 0;         // prompts and outputs
  std::int64_t computed_prompt_tokens = 0;  // computed again after preemption included
  std::int64_t preemptions = 0;
  std::int64_t forks = 0;  // requests that began to run without computing any of their prompt
};

// A page to be copied to another, in each pool; invalid ones: none.
struct ForkedTail {
  PageId from;
  PageId to;
  PageId windowed_from;
  PageId windowed_to;
};

class Scheduler {
 public:
  // Generated tokens are published when this many wait for it; prompts after each chunk.
  static constexpr std::int64_t kCommitEveryTokens = 64;

  // `kv` is used as long as this lives. REQUIRES: validate(EngineOptions) holds.
  Scheduler(KvCache& kv, const SchedulerOptions& options);

  // Queues a request; nullptr, and `request` unchanged, if waiting_max wait already. The pointer is
  // valid until the request has ended.
  // REQUIRES: it can run alone: its tokens fit the context, a row and the pool.
  Request* try_submit_or_null(NewRequest&& request) STEMMA_REQUIRES_ROLE(engine_thread);

  // The request of that id that has not ended, or nullptr.
  Request* find_or_null(RequestId id);

  // Fills the next step. False if there is nothing to compute. REQUIRES: the last step was
  // completed or its requests have ended.
  bool plan_step() STEMMA_REQUIRES_ROLE(engine_thread);
  KvBatch batch() const { return builder_->batch(); }
  // The requests of the step, nullptr where one has ended since, and whose its logits are, in the
  // order of batch().
  std::span<Request* const> scheduled() const { return builder_->scheduled(); }
  std::span<const StepOutput> outputs() const { return builder_->outputs(); }
  // Why the queue was not taken in further, nullopt if nothing was turned away.
  std::optional<Admission> held_back() const noexcept { return held_back_; }

  // Steps are small until it is known how long they take: what is computed needlessly while pages
  // are on their way from a lower tier is then little.
  void guess_pace() STEMMA_REQUIRES_ROLE(engine_thread);
  // A step that computed `tokens` tokens, prompts for the most part, took `us`: what is known of
  // how many fit into step_us_max.
  void note_pace(std::int64_t tokens, std::int64_t us) STEMMA_REQUIRES_ROLE(engine_thread);

  // Lets steps name pages that are still arriving, for runners that wait by layer.
  void allow_loans() STEMMA_REQUIRES_ROLE(engine_thread) { builder_->allow_loans(); }
  // The step has retired: what it named and was still arriving is taken in. False if a page turned
  // out to be wrong: the step is void, as if it had not been planned, and its requests are planned
  // anew.
  [[nodiscard]] bool settle_loans() STEMMA_REQUIRES_ROLE(engine_thread);

  // The KV of the whole step is in its pages. Publishes; a prompt that is done starts running.
  // The caller then appends a token to each of outputs() that chooses one. REQUIRES: settle_loans.
  void complete_step() STEMMA_REQUIRES_ROLE(engine_thread);

  // Lets plan_ahead plan. Takes memory for a second step.
  void allow_ahead();
  // Fills the step behind the one that is being computed, with what those that are in flight
  // compute next: as plan_step would once that is complete, if nobody came, ended or ran out of
  // pages until then. False, and nothing is planned, where more is to be decided than that. Makes
  // room for the step after it. REQUIRES: a step is being computed, that is not on loan; nothing
  // that came up for who waits is still to be taken.
  bool plan_ahead() STEMMA_REQUIRES_ROLE(engine_thread);
  KvBatch batch_ahead() const { return ahead_->batch(); }
  std::span<const StepOutput> outputs_ahead() const { return ahead_->outputs(); }
  // The step is complete, its tokens appended: the one planned ahead takes its place.
  // REQUIRES: plan_ahead gave true.
  void enter_ahead() STEMMA_REQUIRES_ROLE(engine_thread);

  // Whether another request in flight has, or is computing, the page of `request` that begins with
  // `first_token`, and all before it. O(requests in flight).
  bool is_computed_beside(const Request& request, std::int64_t first_token) const;

  // A request that waits to be forked off `request`, or nullptr.
  Request* fork_or_null(const Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  // Forks it off: it runs as if it had computed the prompt itself, once the page is copied that the
  // caller is told of. nullopt: there is no room, or it rests, and it waits in the queue as any
  // other.
  // REQUIRES: complete_step was called; `request` has computed all of its prompt and is running.
  std::optional<ForkedTail> try_fork(Request& request, Request& fork)
      STEMMA_REQUIRES_ROLE(engine_thread);

  // Requests in flight that hold pages in quarantine wait again and compute anew, from what is left
  // of their prefix on; nothing they computed is published. Their tokens stay. Between steps.
  void requeue_quarantined() STEMMA_REQUIRES_ROLE(engine_thread);

  // These families of namespaces, all where none is named, were purged: who waits of them publishes
  // nothing when it runs, as who runs does from now on (KvCache::purge).
  void note_purged(std::span<const NamespaceFamily> families) STEMMA_REQUIRES_ROLE(engine_thread);

  // The end of a request: its pages are published as far as they are computed, or (cancel, fail)
  // given back. Afterwards the Request may be read until the next try_submit.
  void finish(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void cancel(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void fail(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);

  // Who waits, in the order in which it is looked at, and who runs.
  std::span<Request* const> waiting_requests() { return waiting_.requests(); }
  std::span<Request* const> requests_in_flight() const noexcept { return in_flight_; }
  std::int64_t waiting() const noexcept { return waiting_.size(); }
  std::int64_t in_flight() const noexcept { return static_cast<std::int64_t>(in_flight_.size()); }
  bool idle() const noexcept { return waiting_.empty() && in_flight_.empty(); }
  const SchedulerTotals& totals() const noexcept { return totals_; }

  // Checks that those in flight, and only those, hold rows, and that lists agree with states; the
  // first contradiction, or nullopt. O(requests).
  std::optional<std::string> audit() const;

 private:
  void keep_for_waiting() STEMMA_REQUIRES_ROLE(engine_thread);
  void reserve_for_running() STEMMA_REQUIRES_ROLE(engine_thread);
  void add_running() STEMMA_REQUIRES_ROLE(engine_thread);
  void order_queue() STEMMA_REQUIRES_ROLE(engine_thread);
  void continue_prefills() STEMMA_REQUIRES_ROLE(engine_thread);
  void admit_waiting() STEMMA_REQUIRES_ROLE(engine_thread);
  void forget_held_back() STEMMA_REQUIRES_ROLE(engine_thread);
  void hold_back(Request& request, Admission why) STEMMA_REQUIRES_ROLE(engine_thread);
  void unstick_prefills() STEMMA_REQUIRES_ROLE(engine_thread);
  bool somebody_rests() const;
  bool decides_nothing() const;
  bool may_admit() const;
  bool add_all_ahead() STEMMA_REQUIRES_ROLE(engine_thread);
  void drop_ahead() STEMMA_REQUIRES_ROLE(engine_thread);
  std::int64_t chunk_limit(const Request& request);
  Request& victim() const;
  void preempt(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void requeue(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void prefetch_waiting() STEMMA_REQUIRES_ROLE(engine_thread);
  void look_again(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void look_again_in_flight() STEMMA_REQUIRES_ROLE(engine_thread);
  bool has_ended(PromotionId promotion) const;
  void let_ended_promotion_go(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void let_promotion_go(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void let_forks_go(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  // Commits what may be shared of what is computed.
  void publish(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  // Of what is computed.
  std::int64_t step_tokens() const;
  std::int64_t publishable_tokens(const Request& request) const;
  void enter_flight(Request& request) STEMMA_REQUIRES_ROLE(engine_thread);
  void end(Request& request, RequestState state) STEMMA_REQUIRES_ROLE(engine_thread);
  QueueEntry entry_of(Request& request);

  KvCache& kv_;
  SchedulerOptions options_;
  SchedulePolicy policy_;
  std::unique_ptr<BatchBuilder> builder_;
  std::unique_ptr<BatchBuilder> ahead_;  // nullptr: nothing is planned ahead
  QueueOrder order_;
  std::vector<Request> requests_;   // the slab
  std::vector<std::int32_t> free_;  // places of the slab
  RequestIndex index_;              // of those that have not ended
  WaitingList waiting_;
  std::vector<Request*> in_flight_;    // by arrival
  std::vector<QueueEntry> entries_;    // scratch of order_queue
  std::vector<std::int64_t> shorter_;  // scratch of chunk_limit
  bool queue_changed_ = false;
  bool ended_since_plan_ = false;   // somebody
  bool prompt_since_plan_ = false;  // somebody's, who runs now
  std::uint64_t ordered_epoch_ = 0;
  std::int64_t next_arrival_ = 0;
  std::int64_t wants_ = 0;                // said to the cache and not forgotten
  std::optional<Admission> held_back_;    // since plan_step, as the next two
  bool waits_for_prefix_ = false;         // somebody
  std::vector<Request*> waits_for_tier_;  // valid until somebody has ended
  double us_per_token_ = 0;               // of late; 0: not known
  bool pace_is_guess_ = false;
  SchedulerTotals totals_;
};

}  // namespace stemma
