// The order in which waiting requests are looked at: one function of what is known about each.
//
// Thread:     engine thread only (QueueOrder keeps scratch memory and a generator).
// Memory:     scratch for `entries_max` entries, fixed at construction.
// Cost:       O(n), and O(k log k) comparisons for the k that move; of hrrn, random and dfs-weight
//             all move, and dfs-weight reads all matched tokens too.
// Not here:   whether a request fits (batch_builder), names of policies (stemma/options.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/prng.h"
#include "stemma/ids.h"
#include "stemma/options.h"

namespace stemma {

// One waiting request, as a policy sees it.
struct QueueEntry {
  std::int64_t arrival = 0;  // order of arrival; settles every tie
  std::int32_t priority = 0;
  std::int64_t output_tokens_max = 0;
  std::span<const TokenId> matched;  // its cached prefix
  std::int64_t uncached_tokens = 0;  // to compute before its next output
  std::int64_t waited_tokens = 0;    // computed by the engine since it arrived
  bool deferred = false;             // waits for another request's pages
  bool moves = true;                 // is new, or stood otherwise when it was sorted last
  std::int32_t slot = 0;             // the caller's
};

// The policy that applies: those that look at cached prefixes become fcfs where nothing is shared.
SchedulePolicy effective_policy(SchedulePolicy policy, bool cache_shares) noexcept;

// Which priorities `policy` puts first, with `rule` as the options have it; kIgnore where it looks
// at none.
PriorityRule effective_rule(SchedulePolicy policy, PriorityRule rule) noexcept;

// −1, 0 or 1: whether priority `a` goes before, with or after `b`.
int by_priority(PriorityRule rule, std::int32_t a, std::int32_t b) noexcept;

// Whether `policy` looks at cached prefixes, so that the order changes with the cache's epoch.
bool looks_at_cache(SchedulePolicy policy) noexcept;

// Whether an entry's place among others follows from the two alone and does not move with time: who
// did not change stays in order.
bool places_stand(SchedulePolicy policy) noexcept;

class QueueOrder {
 public:
  struct Rules {
    SchedulePolicy policy = SchedulePolicy::kFcfs;
    PriorityRule priority_rule = PriorityRule::kIgnore;
    std::uint64_t seed = 0;      // for kRandom
    std::int64_t page_size = 1;  // for kDfsWeight: prefixes part at pages
  };
  QueueOrder(const Rules& rules, std::int64_t entries_max);

  // Puts the entries into order, first to be looked at first.
  // REQUIRES: entries.size() <= entries_max; arrivals differ; where places stand, entries that do
  // not move follow each other as they were sorted before.
  void sort(std::span<QueueEntry> entries);

 private:
  struct Group {
    std::int64_t first;
    std::int64_t count;
  };

  template <typename Before>
  void sort_moved(std::span<QueueEntry> entries, Before before);
  template <typename Key>
  void sort_by(std::span<QueueEntry> entries, Key key);
  template <typename Key>
  void sort_with_priority(std::span<QueueEntry> entries, PriorityRule rule, Key key);
  void shuffle(std::span<QueueEntry> entries);
  void sort_by_weight(std::span<QueueEntry> entries);
  void emit_subtree(std::span<QueueEntry> entries, std::size_t depth_tokens);
  void find_groups(std::span<QueueEntry> rest, std::size_t depth_tokens);

  Rules rules_;
  Prng prng_;
  std::vector<QueueEntry> emitted_;  // dfs-weight: the order so far; else those that move
  std::vector<Group> groups_;        // dfs-weight: a stack of child groups
};

// How much of a long prompt one step may compute under kShortestUncachedFirst, so that whole
// shorter prompts that wait fit beside it.
struct ChunkLimit {
  std::int64_t continuation_tokens = 0;  // left of the long prompt
  std::int64_t budget_tokens = 0;        // of the step
  std::int64_t page_size = 1;
};
// nullopt where nothing shorter waits or fits. `waiting_tokens` ascend: uncached tokens of those
// that wait. At least one page is left to the long prompt.
std::optional<std::int64_t> shortest_uncached_chunk_limit(
    const ChunkLimit& limit, std::span<const std::int64_t> waiting_tokens);

}  // namespace stemma
