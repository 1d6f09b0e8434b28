// Every order ends in the order of arrival, so no two entries are equal and std::sort, which
// neither allocates nor keeps equal entries in place, gives one answer.
//
// dfs-weight: what the entries of a group have in common leads to a subtree of the radix tree, and
// the page behind it parts them into its children: the tree needs not be seen, and a token of a
// matched prefix is looked at once or twice. The size of a group is its weight.
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

// What all entries have in common, of which the first depth_tokens are known to be. Whole prefixes
// are compared first: that is quick, and nearly all are equal as far as they are looked at.
std::size_t common_tokens(std::span<const QueueEntry> entries, std::size_t depth_tokens) {
  const std::span<const TokenId> first = entries.front().matched;
  std::size_t common = first.size();
  for (const QueueEntry& entry : entries.subspan(1)) {
    common = std::min(common, entry.matched.size());
    const auto a = first.first(common).subspan(depth_tokens);
    const auto b = entry.matched.first(common).subspan(depth_tokens);
    if (std::ranges::equal(a, b)) continue;
    common = depth_tokens + static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  }
  return common;
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

bool places_stand(SchedulePolicy policy) noexcept {
  return policy != SchedulePolicy::kHrrn && policy != SchedulePolicy::kDfsWeight &&
         policy != SchedulePolicy::kRandom;
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

// Sorts those that move and merges them into the others: from the back, where each is read before
// its place is taken.
template <typename Before>
void QueueOrder::sort_moved(std::span<QueueEntry> entries, Before before) {
  emitted_.clear();
  std::size_t kept = 0;
  for (const QueueEntry& entry : entries) {
    if (entry.moves) {
      emitted_.push_back(entry);
    } else {
      entries[kept++] = entry;
    }
  }
  std::sort(emitted_.begin(), emitted_.end(), before);
  std::size_t moved = emitted_.size();
  for (std::size_t place = entries.size(); moved > 0; --place) {
    const bool kept_is_last = kept > 0 && before(emitted_[moved - 1], entries[kept - 1]);
    entries[place - 1] = kept_is_last ? entries[--kept] : emitted_[--moved];
  }
}

template <typename Key>
void QueueOrder::sort_by(std::span<QueueEntry> entries, Key key) {
  sort_moved(entries, [&](const QueueEntry& a, const QueueEntry& b) {
    const auto key_a = key(a);
    const auto key_b = key(b);
    return key_a != key_b ? key_a < key_b : arrived_before(a, b);
  });
}

// By priority first, then by `key`, then by arrival.
template <typename Key>
void QueueOrder::sort_with_priority(std::span<QueueEntry> entries, PriorityRule rule, Key key) {
  sort_moved(entries, [&](const QueueEntry& a, const QueueEntry& b) {
    if (const int order = by_priority(rule, a.priority, b.priority); order != 0) {
      return order < 0;
    }
    return key(a) != key(b) ? key(a) < key(b) : arrived_before(a, b);
  });
}

void QueueOrder::shuffle(std::span<QueueEntry> entries) {
  std::sort(entries.begin(), entries.end(), arrived_before);
  for (std::size_t left = entries.size(); left > 1; --left) {
    const auto chosen = static_cast<std::size_t>(prng_.below(static_cast<std::int64_t>(left)));
    std::swap(entries[left - 1], entries[chosen]);
  }
}

void QueueOrder::sort_by_weight(std::span<QueueEntry> entries) {
  emitted_.clear();
  groups_.clear();
  emit_subtree(entries, 0);
  std::copy(emitted_.begin(), emitted_.end(), entries.begin());
}

// Emits a subtree: the entries that have their first depth_tokens in common. Those that end at its
// root go after all of its children.
void QueueOrder::emit_subtree(std::span<QueueEntry> entries, std::size_t depth_tokens) {
  if (entries.empty()) {
    return;
  }
  const auto page = static_cast<std::size_t>(rules_.page_size);
  const std::size_t depth = round_down(common_tokens(entries, depth_tokens), page);
  const auto children =
      std::partition(entries.begin(), entries.end(),
                     [&](const QueueEntry& entry) { return entry.matched.size() == depth; });
  const std::span<QueueEntry> own(entries.begin(), children);
  const std::span<QueueEntry> rest(children, entries.end());
  const std::size_t first_group = groups_.size();
  find_groups(rest, depth);
  const std::size_t groups_end = groups_.size();
  for (std::size_t i = first_group; i < groups_end; ++i) {
    const Group group = groups_[i];
    emit_subtree(
        rest.subspan(static_cast<std::size_t>(group.first), static_cast<std::size_t>(group.count)),
        depth + page);
  }
  groups_.resize(first_group);
  std::sort(own.begin(), own.end(), arrived_before);
  emitted_.insert(emitted_.end(), own.begin(), own.end());
}

// Pushes the children of a subtree, of which `rest` are the entries, heaviest first (ties: the one
// that was waited for first). Afterwards those of a child lie side by side.
void QueueOrder::find_groups(std::span<QueueEntry> rest, std::size_t depth_tokens) {
  const auto page_at = [&](const QueueEntry& entry) {
    return entry.matched.subspan(depth_tokens, static_cast<std::size_t>(rules_.page_size));
  };
  const auto alike = [&](const QueueEntry& a, const QueueEntry& b) {
    return std::ranges::equal(page_at(a), page_at(b));
  };
  const auto is_first = [&](const QueueEntry& entry) { return alike(entry, rest.front()); };
  if (!std::all_of(rest.begin(), rest.end(), is_first)) {
    std::sort(rest.begin(), rest.end(), [&](const QueueEntry& a, const QueueEntry& b) {
      return std::ranges::lexicographical_compare(page_at(a), page_at(b));
    });
  }
  const std::size_t first_group = groups_.size();
  for (std::size_t begin = 0, end = 0; begin < rest.size(); begin = end) {
    while (end < rest.size() && alike(rest[end], rest[begin])) ++end;
    groups_.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin)});
  }
  const auto earliest = [&](const Group& group) {
    const auto members =
        rest.subspan(static_cast<std::size_t>(group.first), static_cast<std::size_t>(group.count));
    return std::min_element(members.begin(), members.end(), arrived_before)->arrival;
  };
  std::sort(groups_.begin() + static_cast<std::ptrdiff_t>(first_group), groups_.end(),
            [&](const Group& a, const Group& b) {
              return a.count != b.count ? a.count > b.count : earliest(a) < earliest(b);
            });
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
