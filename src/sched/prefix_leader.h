// Sharing of prefixes that are still being computed: a request whose next uncached page is being
// computed by another waits for that page instead of computing it twice.
//
// The one that computes is the leader. A waiter holds no lock, page or row (I12): it only remembers
// whom it waits for and how far, so that asking again costs nothing until that is reached. A leader
// that is cancelled, preempted or fails is no leader any more, and the next waiter computes.
// Whoever scores its prompt is none: that goes by a few tokens a step.
//
// Thread:     engine thread only.
// Memory:     none.
// Cost:       O(requests in flight); O(1) of who waits already; once a pair, O(tokens in common).
// Not here:   who is admitted (batch_builder).
#pragma once

#include <span>

#include "sched/request.h"
#include "stemma/kv_cache.h"

namespace stemma {

// What begin would find for a request in the queue; looked up again only if the cache has changed.
std::int64_t matched_tokens(const KvCache& kv, Request& request);

// The same, of the device, of host memory, and of page stores that know without asking anybody,
// whichever has more: what need not be computed. Stores are asked once in a request's life.
std::int64_t reachable_tokens(KvCache& kv, Request& request);

// The tokens of full pages that `leader` will publish and `waiting` could match: 0 if they do not
// go beyond the `matched` ones that are in the cache already.
std::int64_t shared_tokens(const KvCache& kv, const Request& waiting, const Request& leader,
                           std::int64_t matched);

// Lets go of the leader that `waiting` remembers if that computes nothing for it any more.
void forget_idle_leader(const KvCache& kv, Request& waiting);

// Whether `waiting` should wait for pages that one of `in_flight` is computing.
// REQUIRES: waiting.in_queue().
bool waits_for_prefix(const KvCache& kv, Request& waiting, std::span<Request* const> in_flight);

}  // namespace stemma
