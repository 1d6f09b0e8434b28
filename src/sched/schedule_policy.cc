// Every order ends in the order of arrival, so no two entries are equal and std::sort, which
// neither allocates nor keeps equal entries in place, gives one answer.
//
// dfs-weight: sorted by their matched prefixes, the entries of one subtree of the radix tree lie
// side by side, so that the tree needs not be seen: a group is a subtree, its size is the weight.
#include "sched/schedule_policy.h"

#include <algorithm>
#include <compare>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace stemma {
namespace {

bool arrived_before(const QueueEntry& a, const QueueEntry& b) {
  return a.arrival < b.arrival;
}

template <typename Key>
void sort_by(std::span<QueueEntry> entries, Key key) {
  std::sort(entries.begin(), entries.end(), [&](const QueueEntry& a, const QueueEntry& b) {
    const auto key_a = key(a);
    const auto key_b = key(b);
    return key_a != key_b ? key_a < key_b : arrived_before(a, b);
  });
}

// Sorts by priority first, then by `key`, then by arrival.
template <typename Key>
void sort_with_priority(std::span<QueueEntry> entries, PriorityRule rule, Key key) {
  std::sort(entries.begin(), entries.end(), [&](const QueueEntry& a, const QueueEntry& b) {
    if (const int order = by_priority(rule, a.priority, b.priority); order != 0) {
      return order < 0;
    }
    return key(a) != key(b) ? key(a) < key(b) : arrived_before(a, b);
  });
}

// Response ratio, highest first: waited(a) / uncached(a) > waited(b) / uncached(b), in integers.
void sort_by_response_ratio(std::span<QueueEntry> entries) {
  std::sort(entries.begin(), entries.end(), [](const QueueEntry& a, const QueueEntry& b) {
    const bool free_a = a.uncached_tokens <= 0;
    const bool free_b = b.uncached_tokens <= 0;
    if (free_a || free_b) {
      return free_a != free_b ? free_a : arrived_before(a, b);
    }
    const double left =
        static_cast<double>(a.waited_tokens) * static_cast<double>(b.uncached_tokens);
    const double right =
        static_cast<double>(b.waited_tokens) * static_cast<double>(a.uncached_tokens);
    return left != right ? left > right : arrived_before(a, b);
  });
}

std::size_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

}  // namespace

SchedulePolicy effective_policy(SchedulePolicy policy, bool cache_shares) noexcept {
  return looks_at_cache(policy) && !cache_shares ? SchedulePolicy::kFcfs : policy;
}

PriorityRule effective_rule(SchedulePolicy policy, PriorityRule rule) noexcept {
  switch (policy) {
    case SchedulePolicy::kFcfs:
    case SchedulePolicy::kLof:
      return rule;
    case SchedulePolicy::kPriority:
      return rule == PriorityRule::kIgnore ? PriorityRule::kHighFirst : rule;
    default:
      return PriorityRule::kIgnore;
  }
}

int by_priority(PriorityRule rule, std::int32_t a, std::int32_t b) noexcept {
  if (rule == PriorityRule::kIgnore || a == b) return 0;
  return (a > b) == (rule == PriorityRule::kHighFirst) ? -1 : 1;
}

bool looks_at_cache(SchedulePolicy policy) noexcept {
  switch (policy) {
    case SchedulePolicy::kLpm:
    case SchedulePolicy::kDfsWeight:
    case SchedulePolicy::kShortestUncachedFirst:
    case SchedulePolicy::kHrrn:
      return true;
    case SchedulePolicy::kFcfs:
    case SchedulePolicy::kLof:
    case SchedulePolicy::kRandom:
    case SchedulePolicy::kPriority:
      return false;
  }
  return false;
}

QueueOrder::QueueOrder(const Rules& rules, std::int64_t entries_max)
    : rules_(rules), prng_(rules.seed) {
  emitted_.reserve(static_cast<std::size_t>(entries_max));
  groups_.reserve(static_cast<std::size_t>(entries_max) * 2);
}

void QueueOrder::sort(std::span<QueueEntry> entries) {
  STEMMA_CHECK(entries.size() <= emitted_.capacity(), "entries_max entries");
  const PriorityRule rule = effective_rule(rules_.policy, rules_.priority_rule);
  switch (rules_.policy) {
    case SchedulePolicy::kFcfs:
    case SchedulePolicy::kPriority:
      return sort_with_priority(entries, rule, [](const QueueEntry&) { return 0; });
    case SchedulePolicy::kLof:
      return sort_with_priority(entries, rule,
                                [](const QueueEntry& entry) { return -entry.output_tokens_max; });
    case SchedulePolicy::kLpm:
      return sort_by(entries, [](const QueueEntry& entry) {
        return std::pair(entry.deferred, -static_cast<std::int64_t>(entry.matched.size()));
      });
    case SchedulePolicy::kShortestUncachedFirst:
      return sort_by(entries, [](const QueueEntry& entry) {
        return std::pair(entry.deferred, entry.uncached_tokens);
      });
    case SchedulePolicy::kHrrn:
      return sort_by_response_ratio(entries);
    case SchedulePolicy::kDfsWeight:
      return sort_by_weight(entries);
    case SchedulePolicy::kRandom:
      return shuffle(entries);
  }
}

void QueueOrder::shuffle(std::span<QueueEntry> entries) {
  sort_by(entries, [](const QueueEntry&) { return 0; });
  for (std::size_t left = entries.size(); left > 1; --left) {
    const auto chosen = static_cast<std::size_t>(prng_.below(static_cast<std::int64_t>(left)));
    std::swap(entries[left - 1], entries[chosen]);
  }
}

void QueueOrder::sort_by_weight(std::span<QueueEntry> entries) {
  std::sort(entries.begin(), entries.end(), [](const QueueEntry& a, const QueueEntry& b) {
    const auto order = std::lexicographical_compare_three_way(a.matched.begin(), a.matched.end(),
                                                              b.matched.begin(), b.matched.end());
    return std::is_neq(order) ? std::is_lt(order) : arrived_before(a, b);
  });
  emitted_.clear();
  groups_.clear();
  emit_subtree(entries, 0);
  std::copy(emitted_.begin(), emitted_.end(), entries.begin());
}

// Emits a subtree: `sorted` are its entries, which have their first depth_tokens in common. The
// entries that end there are the first ones; they go after all of its children.
void QueueOrder::emit_subtree(std::span<QueueEntry> sorted, std::size_t depth_tokens) {
  if (sorted.empty()) {
    return;
  }
  const auto page = static_cast<std::size_t>(rules_.page_size);
  const std::size_t common = common_tokens(sorted.front().matched, sorted.back().matched);
  const std::size_t depth = std::max(depth_tokens, round_down(common, page));
  const std::size_t first_group = groups_.size();
  const std::size_t own = find_groups(sorted, depth);
  const std::size_t groups_end = groups_.size();
  for (std::size_t i = first_group; i < groups_end; ++i) {
    const Group group = groups_[i];
    emit_subtree(sorted.subspan(static_cast<std::size_t>(group.first),
                                static_cast<std::size_t>(group.count)),
                 depth + page);
  }
  groups_.resize(first_group);
  for (const QueueEntry& entry : sorted.first(own)) {
    emitted_.push_back(entry);
  }
}

// Pushes the children of a subtree, heaviest first (ties: the one that was waited for first), and
// returns how many entries end at the subtree's root.
std::size_t QueueOrder::find_groups(std::span<QueueEntry> sorted, std::size_t depth_tokens) {
  const auto ends_here = [&](const QueueEntry& entry) {
    return entry.matched.size() == depth_tokens;
  };
  const auto page_at = [&](const QueueEntry& entry) {
    return entry.matched.subspan(depth_tokens, static_cast<std::size_t>(rules_.page_size));
  };
  const auto own = static_cast<std::size_t>(
      std::find_if_not(sorted.begin(), sorted.end(), ends_here) - sorted.begin());
  const std::size_t first_group = groups_.size();
  for (std::size_t begin = own; begin < sorted.size();) {
    const auto page = page_at(sorted[begin]);
    std::size_t end = begin;
    while (end < sorted.size() && std::ranges::equal(page_at(sorted[end]), page)) {
      ++end;
    }
    groups_.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin)});
    begin = end;
  }
  const auto earliest = [&](const Group& group) {
    const auto members = sorted.subspan(static_cast<std::size_t>(group.first),
                                        static_cast<std::size_t>(group.count));
    return std::min_element(members.begin(), members.end(), arrived_before)->arrival;
  };
  std::sort(groups_.begin() + static_cast<std::ptrdiff_t>(first_group), groups_.end(),
            [&](const Group& a, const Group& b) {
              return a.count != b.count ? a.count > b.count : earliest(a) < earliest(b);
            });
  return own;
}

std::optional<std::int64_t> shortest_uncached_chunk_limit(
    const ChunkLimit& limit, std::span<const std::int64_t> waiting_tokens) {
  std::int64_t kept_for_waiting = 0;
  for (const std::int64_t waiting : waiting_tokens) {
    const std::int64_t wanted = kept_for_waiting + round_up(waiting, limit.page_size);
    if (waiting >= limit.continuation_tokens || wanted > limit.budget_tokens - limit.page_size) {
      break;
    }
    kept_for_waiting = wanted;
  }
  if (kept_for_waiting == 0) {
    return std::nullopt;
  }
  return limit.budget_tokens - kept_for_waiting;
}

}  // namespace stemma
