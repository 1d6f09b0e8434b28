#include "sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "sched/prefix_leader.h"

namespace stemma {
namespace {

std::size_t slab_requests(const KvCache& kv, const SchedulerOptions& options) {
  return static_cast<std::size_t>(kv.options().requests_max + options.waiting_max);
}

// Waiting requests whose wants are said again when the cache has changed: more would cost a large
// queue more than the tail of it is worth.
constexpr std::size_t kWantsRenewed = 64;

bool by_arrival(const Request* a, const Request* b) {
  return a->arrival < b->arrival;
}

// Whether later ones may not be let in: they would take what it waits for, for ever.
bool holds_up_others(Admission admission) {
  return admission == Admission::kNoTokenBudget || admission == Admission::kNoPages ||
         admission == Admission::kNoRow;
}

}  // namespace

Scheduler::Scheduler(KvCache& kv, const SchedulerOptions& options)
    : kv_(kv),
      options_(options),
      policy_(effective_policy(options.policy, kv.shares())),
      builder_(std::make_unique<BatchBuilder>(kv, options)),
      order_({.policy = policy_,
              .priority_rule = options.priority_rule,
              .seed = options.seed,
              .page_size = kv.page_size()},
             static_cast<std::int64_t>(slab_requests(kv, options))),
      requests_(slab_requests(kv, options)),
      index_(requests_.size()),
      waiting_(requests_.size()) {
  free_.reserve(requests_.size());
  for (std::size_t place = requests_.size(); place > 0; --place) {
    requests_[place - 1].slot = static_cast<std::int32_t>(place - 1);
    free_.push_back(static_cast<std::int32_t>(place - 1));
  }
  waits_for_tier_.reserve(requests_.size());
  entries_.reserve(requests_.size());
  shorter_.reserve(requests_.size());
  in_flight_.reserve(static_cast<std::size_t>(kv.options().requests_max));
}

Request* Scheduler::try_submit_or_null(NewRequest&& request) {
  if (waiting() >= options_.waiting_max || free_.empty()) {
    return nullptr;
  }
  STEMMA_CHECK(!request.prompt.empty(), "a prompt has at least one token");
  Request& place = requests_[static_cast<std::size_t>(free_.back())];
  free_.pop_back();
  place.start(std::move(request));
  place.arrival = next_arrival_++;
  place.processed_at_arrival = totals_.computed_tokens;
  if (place.fork_of.valid()) {
    Request* const original = find_or_null(place.fork_of);
    if (original == nullptr) place.fork_of = RequestId();
    if (original != nullptr) original->add_fork(place);
    place.prefetched = original != nullptr;
  }
  index_.add(place.id, place.slot);
  waiting_.push_back(place);
  queue_changed_ = true;
  ++totals_.submitted_requests;
  return &place;
}

Request* Scheduler::find_or_null(RequestId id) {
  const std::int32_t place = index_.find(id);
  return place == RequestIndex::kNone ? nullptr : &requests_[static_cast<std::size_t>(place)];
}

bool Scheduler::plan_step() {
  builder_->clear(step_tokens());
  forget_held_back();
  ended_since_plan_ = false;
  prompt_since_plan_ = false;
  keep_for_waiting();
  const std::int64_t preemptions = totals_.preemptions;
  reserve_for_running();
  add_running();
  order_queue();
  look_again_in_flight();
  continue_prefills();
  if (totals_.preemptions == preemptions) {  // else it would come straight back
    admit_waiting();
  }
  unstick_prefills();
  prefetch_waiting();
  STEMMA_CHECK(!builder_->empty() || idle() || !in_flight_.empty() || kv_.transfers_underway() ||
                   !waits_for_tier_.empty(),
               "I12: the queue moves on");
  return !builder_->empty();
}

void Scheduler::guess_pace() {
  us_per_token_ = static_cast<double>(options_.step_us_max);  // the smallest steps there are
  pace_is_guess_ = true;
}

void Scheduler::note_pace(std::int64_t tokens, std::int64_t us) {
  constexpr double kOfTheNew = 0.3;
  const double seen = static_cast<double>(us) / static_cast<double>(tokens);
  const bool first = us_per_token_ == 0 || std::exchange(pace_is_guess_, false);
  us_per_token_ = first ? seen : us_per_token_ + kOfTheNew * (seen - us_per_token_);
}

// Room for an output of each request in flight, and for a page, there always is. A step of a few
// tokens reads every weight for them: only while pages keep arriving, which the next step may
// find there, is it made that small.
std::int64_t Scheduler::step_tokens() const {
  constexpr std::int64_t kWorthwhileTokens = 64;
  if (options_.step_us_max == 0 || us_per_token_ <= 0) return options_.step_tokens_max;
  const double tokens = static_cast<double>(options_.step_us_max) / us_per_token_;
  if (tokens >= static_cast<double>(options_.step_tokens_max)) return options_.step_tokens_max;
  std::int64_t least = kv_.options().requests_max + kv_.page_size();
  if (!kv_.pages_arriving(options_.step_us_max)) least = std::max(least, kWorthwhileTokens);
  return std::max(static_cast<std::int64_t>(tokens), least);
}

// Tells the cache what is waited for. A want covers what is cached when it is said: the first ones
// of the queue say theirs again whenever that may have changed. Wants of requests that wait no more
// stay until there are as many of them as of others; then all are forgotten, and said in the order
// of the queue.
void Scheduler::keep_for_waiting() {
  if (!options_.keep_for_waiting || (wants_ == 0 && waiting() + in_flight() <= 1)) return;
  if (wants_ > 2 * waiting_.size()) {
    kv_.forget_wants();
    wants_ = 0;
    for (Request* request : waiting_.requests()) request->wanted_turn = -1;
  }
  const std::span<Request* const> waiting = waiting_.requests();
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    Request& request = *waiting[i];
    const bool stale = i < kWantsRenewed && request.wanted_epoch != kv_.epoch();
    if (request.wanted_turn >= 0 && !stale) continue;
    if (request.wanted_turn < 0) request.wanted_turn = wants_++;
    request.wanted_epoch = kv_.epoch();
    kv_.want(request.ns, request.findable(), request.wanted_turn);
  }
}

// Afterwards every running request that does not rest has room for its next token; but one that is
// alone may have to wait until copies have landed whose pages it needs.
void Scheduler::reserve_for_running() {
  for (std::size_t i = 0; i < in_flight_.size();) {
    Request& request = *in_flight_[i];
    if (request.state() != RequestState::kRunning || request.rests ||
        kv_.reserve(request.sequence, request.total_tokens())) {
      ++i;
      continue;
    }
    kv_.give_up_promotions(PromotionUse::kWaiting);
    if (kv_.reserve(request.sequence, request.total_tokens())) continue;
    if (in_flight() > 1) {
      preempt(victim());
      i = 0;
    } else {
      STEMMA_CHECK(kv_.transfers_underway(), "alone, a request fits: that was asked at the door");
      ++i;
    }
  }
}

void Scheduler::add_running() {
  for (Request* request : in_flight_) {
    const bool has_room = request->sequence.capacity_tokens() >= request->total_tokens();
    if (request->state() == RequestState::kRunning && has_room && !request->rests) {
      builder_->add_output(*request);
    }
  }
}

void Scheduler::order_queue() {
  const bool every_step = policy_ == SchedulePolicy::kHrrn || policy_ == SchedulePolicy::kRandom;
  const bool cache_changed = looks_at_cache(policy_) && ordered_epoch_ != kv_.epoch();
  if (!queue_changed_ && !cache_changed && !every_step) {
    return;
  }
  queue_changed_ = false;
  ordered_epoch_ = kv_.epoch();
  bool any_moves = !places_stand(policy_);
  entries_.clear();
  for (Request* request : waiting_.requests()) {
    forget_idle_leader(kv_, *request);
    entries_.push_back(entry_of(*request));
    any_moves = any_moves || entries_.back().moves;
  }
  if (!any_moves) return;
  order_.sort(entries_);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    waiting_.put(i, requests_[static_cast<std::size_t>(entries_[i].slot)]);
  }
}

QueueEntry Scheduler::entry_of(Request& request) {
  const std::int64_t matched = looks_at_cache(policy_) ? reachable_tokens(kv_, request) : 0;
  const bool stood = std::exchange(request.ordered_tokens, matched) == matched;
  const bool was_deferred = std::exchange(request.ordered_deferred, request.deferred());
  return {
      .arrival = request.arrival,
      .priority = request.priority,
      .output_tokens_max = request.output_tokens_max,
      .matched = std::span<const TokenId>(request.tokens).first(static_cast<std::size_t>(matched)),
      .uncached_tokens = request.total_tokens() - matched,
      .waited_tokens = totals_.computed_tokens - request.processed_at_arrival,
      .deferred = request.deferred(),
      .moves = !stood || was_deferred != request.deferred(),
      .slot = request.slot};
}

void Scheduler::continue_prefills() {
  for (Request* request : in_flight_) {
    if (request->state() == RequestState::kPrefilling) {
      builder_->add_chunk(*request, chunk_limit(*request));
      let_ended_promotion_go(*request);
    }
  }
}

// Room is left for those that admit_waiting would let in: it stops at the first that lacks a row or
// pages.
std::int64_t Scheduler::chunk_limit(const Request& request) {
  if (policy_ != SchedulePolicy::kShortestUncachedFirst) {
    return options_.chunk_tokens_max;
  }
  const ChunkLimit limit = {.continuation_tokens = request.remaining_tokens(),
                            .budget_tokens = builder_->tokens_left(),
                            .page_size = kv_.page_size()};
  shorter_.clear();
  std::int64_t tokens = 0;
  for (Request* waiting : waiting_.requests()) {
    if (waiting->deferred()) continue;
    if (std::ssize(shorter_) == kv_.free_rows() || tokens > limit.budget_tokens) break;
    if (!builder_->has_pages_for(*waiting, in_flight_)) break;
    shorter_.push_back(waiting->total_tokens() - reachable_tokens(kv_, *waiting));
    tokens += shorter_.back();
  }
  const auto shortened = shortest_uncached_chunk_limit(limit, shorter_);
  return std::min(shortened.value_or(options_.chunk_tokens_max), options_.chunk_tokens_max);
}

// Stops at the first request that lacks tokens, pages or a row. Waiting for a prefix, for a tier or
// for others that score their prompts holds nobody else up, and takes no row. What a request takes
// part in bringing up may be another's text, of which it shares but the beginning: if that holds
// the pages that it lacks, nothing is brought up any more.
void Scheduler::admit_waiting() {
  for (Request* request : waiting_.requests()) {
    look_again(*request);
    Admission admission = builder_->try_add(*request, in_flight_);
    if (admission == Admission::kNoPages && held_back_ != Admission::kWaitingForTier) {
      kv_.give_up_promotions(PromotionUse::kWaiting, request->promotion);
      admission = builder_->try_add(*request, in_flight_);
    }
    if (admission == Admission::kNoPages && in_flight_.empty() &&
        held_back_ != Admission::kWaitingForTier) {
      kv_.give_up_promotions(PromotionUse::kWaiting);
      admission = builder_->try_add(*request, in_flight_);
    }
    if (admission == Admission::kAdmitted) {
      waiting_.remove(*request);
      enter_flight(*request);
      continue;
    }
    hold_back(*request, admission);
    if (holds_up_others(admission)) break;
  }
}

// Nothing can compute: prompts hold each other's pages. The one that stays last fits alone, once
// nothing is brought up any more: not even what it asked for itself, of which it may use a part.
// Whoever rests goes on by itself.
void Scheduler::unstick_prefills() {
  if (somebody_rests()) return;
  if (builder_->empty() && in_flight() > 0) {
    kv_.give_up_promotions(PromotionUse::kWaiting);
    continue_prefills();
  }
  while (builder_->empty() && in_flight() > 1) {
    preempt(victim());
    continue_prefills();
  }
  if (builder_->empty() && in_flight() == 1) {
    kv_.give_up_promotions(PromotionUse::kComputing);
    continue_prefills();
  }
}

bool Scheduler::somebody_rests() const {
  return std::any_of(in_flight_.begin(), in_flight_.end(),
                     [](const Request* request) { return request->rests; });
}

// Of the least urgent ones that which loses least.
Request& Scheduler::victim() const {
  const PriorityRule rule = effective_rule(policy_, options_.priority_rule);
  return **std::min_element(
      in_flight_.begin(), in_flight_.end(), [&](const Request* a, const Request* b) {
        const int order = by_priority(rule, a->priority, b->priority);
        if (order != 0) return order > 0;
        const std::int64_t generated_a = a->generated_tokens();
        const std::int64_t generated_b = b->generated_tokens();
        return generated_a != generated_b ? generated_a < generated_b : a->arrival > b->arrival;
      });
}

void Scheduler::preempt(Request& request) {
  publish(request);
  requeue(request);
}

void Scheduler::requeue_quarantined() {
  for (std::size_t i = 0; i < in_flight_.size();) {
    Request& request = *in_flight_[i];
    if (kv_.is_quarantined(request.sequence)) {
      requeue(request);
    } else {
      ++i;
    }
  }
}

// Those that run keep it in mind by what they hold.
void Scheduler::note_purged(std::span<const NamespaceFamily> families) {
  for (Request* request : waiting_.requests()) {
    if (kv_.is_of_any(request->ns, families)) request->publishes = false;
  }
}

// From in flight to waiting, without anything of its own.
void Scheduler::requeue(Request& request) {
  request.publishes = request.sequence.publishes();
  request.sequence.reset();  // no end that the eviction policy should learn from
  let_promotion_go(request);
  request.looked_below = false;
  request.asked_us = -1;
  request.computed_tokens = 0;
  ++request.preemptions;
  ++totals_.preemptions;
  request.become(RequestState::kPreempted);
  std::erase(in_flight_, &request);
  waiting_.push_back(request);
  request.probe.forget();
  request.ordered_tokens = -1;
  request.wanted_turn = -1;
  queue_changed_ = true;
}

bool Scheduler::is_computed_beside(const Request& request, std::int64_t first_token) const {
  const auto shares = [&](const Request* other) {
    return other != &request && shared_tokens(kv_, request, *other, first_token) > 0;
  };
  return std::any_of(in_flight_.begin(), in_flight_.end(), shares);
}

void Scheduler::publish(Request& request) {
  const auto tokens = static_cast<std::size_t>(publishable_tokens(request));
  kv_.commit(request.sequence, request.computed().first(tokens));
}

std::int64_t Scheduler::publishable_tokens(const Request& request) const {
  return options_.publish_outputs ? request.computed_tokens
                                  : std::min(request.computed_tokens, request.prompt_tokens);
}

void Scheduler::enter_flight(Request& request) {
  in_flight_.insert(std::upper_bound(in_flight_.begin(), in_flight_.end(), &request, by_arrival),
                    &request);
}

bool Scheduler::settle_loans() {
  if (builder_->settle_loans()) return true;
  for (Request* request : builder_->scheduled()) {
    if (request != nullptr) request->scheduled_tokens = 0;
  }
  return false;
}

void Scheduler::complete_step() {
  for (Request* request : builder_->scheduled()) {
    if (request == nullptr) continue;
    const std::int64_t first = request->computed_tokens;
    request->computed_tokens += std::exchange(request->scheduled_tokens, 0);
    request->scored_tokens = std::max(
        request->scored_tokens, std::min(request->computed_tokens, request->scorable_tokens()));
    const std::int64_t prompt_end = std::min(request->computed_tokens, request->prompt_tokens);
    const std::int64_t of_prompt = std::max<std::int64_t>(prompt_end - first, 0);
    request->computed_prompt_tokens += of_prompt;
    totals_.computed_prompt_tokens += of_prompt;
    totals_.computed_tokens += request->computed_tokens - first;
    const std::int64_t unpublished =
        request->computed_tokens - request->sequence.published_tokens();
    if (request->state() == RequestState::kPrefilling || unpublished >= kCommitEveryTokens) {
      publish(*request);
    }
    kv_.advance(request->sequence, request->computed_tokens);
    if (request->state() == RequestState::kPrefilling && request->remaining_tokens() == 0) {
      request->become(RequestState::kRunning);
      prompt_since_plan_ = true;
      let_promotion_go(*request);
    }
  }
}

void Scheduler::finish(Request& request) {
  kv_.finish(std::move(request.sequence), request.computed(), publishable_tokens(request));
  end(request, RequestState::kFinished);
}

void Scheduler::cancel(Request& request) {
  end(request, RequestState::kCancelled);
}

void Scheduler::fail(Request& request) {
  end(request, RequestState::kFailed);
}

void Scheduler::end(Request& request, RequestState state) {
  request.sequence.reset();
  let_promotion_go(request);
  let_forks_go(request);
  if (request.fork_of.valid()) find_or_null(request.fork_of)->remove_fork(request);
  if (request.in_queue()) {
    waiting_.remove(request);
  } else {
    std::erase(in_flight_, &request);
  }
  if (request.state() != RequestState::kWaiting) {  // else it was in no step
    builder_->forget(request);
    if (ahead_ != nullptr) ahead_->forget(request);
  }
  request.become(state);
  index_.remove(request.id, request.slot);
  ended_since_plan_ = true;
  request.scheduled_tokens = request.ahead_tokens = 0;
  free_.push_back(request.slot);
}

std::optional<std::string> Scheduler::audit() const {
  std::optional<std::string> fault;
  waiting_.for_each([&](const Request& request) {
    if (request.in_queue() && !request.sequence.valid()) return;
    fault = fmt::format("I12: request {} in the queue is {} and holds {}", request.id.value(),
                        request_state_name(request.state()),
                        request.sequence.valid() ? "a sequence" : "nothing");
  });
  if (fault.has_value()) return fault;
  for (const Request* request : in_flight_) {
    if (!request->in_flight() || !request->sequence.valid()) {
      return fmt::format("request {} in flight is {}", request->id.value(),
                         request_state_name(request->state()));
    }
    if (request->sequence.capacity_tokens() < request->computed_tokens) {
      return fmt::format("request {} has {} tokens computed in pages for {}", request->id.value(),
                         request->computed_tokens, request->sequence.capacity_tokens());
    }
  }
  if (kv_.free_rows() + in_flight() != kv_.options().requests_max) {
    return fmt::format("{} rows are free while {} requests are in flight", kv_.free_rows(),
                       in_flight());
  }
  return std::nullopt;
}

}  // namespace stemma
