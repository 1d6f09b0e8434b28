// Request: a user's job from the queue to its end, and the states it goes through.
//
// Thread:     engine thread only.
// Memory:     requests live in a slab of the scheduler; a request's tokens were allocated by the
//             thread that submitted it, with room for its whole output.
// Cost:       none.
// Not here:   who runs next (scheduler, schedule_policy), sampling and stop rules (engine/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cache/kept_probe.h"
#include "stemma/ids.h"
#include "stemma/kv_cache.h"

namespace stemma {

enum class RequestState : std::uint8_t {
  kWaiting,     // never ran; holds nothing
  kPrefilling,  // holds a Sequence; not all of its tokens are computed
  kRunning,     // holds a Sequence; one new token a step
  kPreempted,   // ran and lost its pages; waits again, with its tokens; holds nothing
  kFinished,    // has all its output
  kCancelled,   // the user gave up
  kFailed,      // rejected, or its step failed
};

std::string_view request_state_name(RequestState state);
// Whether the transition table allows `from` -> `to`.
bool may_become(RequestState from, RequestState to) noexcept;

// What a request starts from.
struct NewRequest {
  RequestId id;
  NamespaceId ns;
  std::vector<TokenId> prompt;  // REQUIRES: capacity for prompt and output; at least one token
  std::int64_t output_tokens_max = 1;
  std::int32_t priority = 0;
  Retention retention = Retention::kDefault;
  AdapterId adapter = {};
  // Has the same prompt as this one, which was submitted before it and computes it for both.
  RequestId fork_of = {};
  bool publishes = true;           // false: it came before a purge of its namespace
  bool scores_prompt = false;      // logits of its prompt's tokens are wanted too,
  std::int64_t scored_tokens = 0;  // but of the first so many
};

class Request {
 public:
  RequestId id;
  NamespaceId ns;
  std::vector<TokenId> tokens;  // the prompt, then what was generated
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens_max = 0;
  std::int32_t priority = 0;
  Retention retention = Retention::kDefault;
  AdapterId adapter;      // what it is computed with; invalid: the model alone
  bool publishes = true;  // what it computes; not once its namespace was purged
  bool scores_prompt = false;
  // Its next token cannot be chosen yet: a step computes nothing whose logits would be for it.
  bool rests = false;
  std::int32_t slot = 0;        // its place in the slab
  std::size_t queue_place = 0;  // in WaitingList, while it waits
  std::int64_t arrival = 0;     // 0, 1, 2, … in order of submission; kept over preemption
  std::int64_t processed_at_arrival = 0;  // SchedulerTotals::computed_tokens when it arrived

  Sequence sequence;                  // valid in kPrefilling and kRunning
  std::int64_t computed_tokens = 0;   // tokens whose KV is in the sequence's pages
  std::int64_t scheduled_tokens = 0;  // of those computed in this step
  std::int64_t ahead_tokens = 0;      // in the step that was planned while this one is computed
  std::int64_t output_place = 0;      // among the outputs of the step that was planned last
  std::int64_t scored_tokens = 0;     // whose logits were had, or are not wanted: scores_prompt

  // For reports. A preempted request computes some of its prompt again.
  std::int64_t cached_tokens = 0;           // found when it was first admitted
  std::int64_t computed_prompt_tokens = 0;  // computed, again included
  std::int64_t preemptions = 0;

  // Waits for the pages of a prefilling request: until that one has published `leader_tokens`.
  RequestId leader;
  const Request* leader_place =
      nullptr;  // in the slab; whoever is there, once the leader has ended
  std::int64_t leader_tokens = 0;

  // Waits to be forked off the request that computes its prompt, until that is done or has ended.
  RequestId fork_of;
  std::int64_t forks_waiting = 0;  // that wait to be forked off this one,
  Request* first_fork = nullptr;   // in the order in which they arrived
  Request* last_fork = nullptr;
  Request* previous_fork = nullptr;  // of the same request as this one
  Request* next_fork = nullptr;

  // What lower tiers bring for it: asked when there is room for it, and again where another's text
  // or others' needs have ended that early (`looks`: how often), until its prompt is computed.
  // `promoted` is what came of it. Where too much is under way it asks again: since `asked_us`.
  bool looked_below = false;
  std::int32_t looks = 0;
  std::int64_t asked_us = -1;  // -1: not in vain
  bool prefetched = false;
  PromotionId promotion;
  PromotionOutcome promoted;

  // Its turn as the cache was told of it, and the cache's epoch then; -1: it was not told.
  std::int64_t wanted_turn = -1;
  std::uint64_t wanted_epoch = 0;

  // What of it need not be computed.
  KeptProbe probe;
  std::int64_t stored_tokens = -1;  // page stores had when they were asked; -1: they were not

  // How it stood when the queue was put into order; -1 tokens: it was not there.
  std::int64_t ordered_tokens = -1;  // that it need not compute
  bool ordered_deferred = false;

  RequestState state() const noexcept { return state_; }
  // REQUIRES: may_become(state(), next).
  void become(RequestState next);
  // A fresh life in a reused place of the slab.
  void start(NewRequest&& request);

  // `fork` waits to be forked off this one. REQUIRES: fork.fork_of is its id.
  void add_fork(Request& fork);
  // It waits for that no more. REQUIRES: add_fork.
  void remove_fork(Request& fork);

  // Waits for another one's pages.
  bool deferred() const noexcept { return leader.valid() || fork_of.valid(); }
  bool in_queue() const noexcept {
    return state_ == RequestState::kWaiting || state_ == RequestState::kPreempted;
  }
  bool in_flight() const noexcept {
    return state_ == RequestState::kPrefilling || state_ == RequestState::kRunning;
  }
  std::int64_t total_tokens() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
  // Tokens that are computed for their logits, though others may have their KV.
  std::int64_t scorable_tokens() const noexcept { return scores_prompt ? prompt_tokens - 1 : 0; }
  // What of it is looked for in the cache. The last of these tokens is never taken from there.
  std::span<const TokenId> findable() const {
    const bool all = scored_tokens >= scorable_tokens();
    return std::span(tokens).first(all ? tokens.size()
                                       : static_cast<std::size_t>(scored_tokens) + 1);
  }
  std::int64_t generated_tokens() const noexcept { return total_tokens() - prompt_tokens; }
  // Tokens that have no KV yet.
  std::int64_t remaining_tokens() const noexcept { return total_tokens() - computed_tokens; }
  std::span<const TokenId> computed() const {
    return std::span<const TokenId>(tokens).first(static_cast<std::size_t>(computed_tokens));
  }

 private:
  RequestState state_ = RequestState::kFinished;
};

}  // namespace stemma
