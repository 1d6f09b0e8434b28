// Covers every order of QueueOrder with the values known in the field, where they exist, and the
// chunk limit of shortest-uncached-first. dfs-weight, lpm and random have values of our own.
#include "sched/schedule_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

// A waiting request called `name`, for the fields that a test does not care about.
struct Waiting {
  std::int32_t name = 0;
  std::int64_t arrival = 0;
  std::int32_t priority = 0;
  std::int64_t output_tokens_max = 0;
  std::vector<TokenId> matched = {};
  std::int64_t uncached_tokens = 0;
  std::int64_t waited_tokens = 0;
  bool deferred = false;
};

std::vector<int> order(const QueueOrder::Rules& rules, const std::vector<Waiting>& waiting) {
  std::vector<QueueEntry> entries;
  for (const Waiting& w : waiting) {
    entries.push_back({.arrival = w.arrival,
                       .priority = w.priority,
                       .output_tokens_max = w.output_tokens_max,
                       .matched = w.matched,
                       .uncached_tokens = w.uncached_tokens,
                       .waited_tokens = w.waited_tokens,
                       .deferred = w.deferred,
                       .slot = w.name});
  }
  QueueOrder queue_order(rules, static_cast<std::int64_t>(entries.size()));
  queue_order.sort(entries);
  std::vector<int> names;
  for (const QueueEntry& entry : entries) {
    names.push_back(entry.slot);
  }
  return names;
}

using Names = std::vector<int>;
using enum SchedulePolicy;

TEST(SchedulePolicy, NamesAreParsedAndUnknownOnesListTheKnown) {
  for (const char* name : {"fcfs", "lpm", "dfs-weight", "lof", "random", "priority",
                           "shortest-uncached-first", "hrrn"}) {
    const auto policy = parse_schedule_policy(name);
    ASSERT_TRUE(policy.ok());
    EXPECT_EQ(schedule_policy_name(*policy), name);
  }
  const auto invalid = parse_schedule_policy("invalid");
  ASSERT_FALSE(invalid.ok());
  EXPECT_NE(invalid.error().detail.find("known: fcfs, lpm"), std::string::npos);
}

TEST(SchedulePolicy, PoliciesThatLookAtTheCacheAreFcfsWithoutOne) {
  for (const SchedulePolicy policy : {kLpm, kDfsWeight, kShortestUncachedFirst, kHrrn}) {
    EXPECT_EQ(effective_policy(policy, false), kFcfs);
    EXPECT_EQ(effective_policy(policy, true), policy);
  }
  for (const SchedulePolicy policy : {kFcfs, kLof, kRandom, kPriority}) {
    EXPECT_EQ(effective_policy(policy, false), policy);
  }
}

TEST(SchedulePolicy, FcfsKeepsTheOrderOfArrival) {
  EXPECT_EQ(order({kFcfs}, {{1, 0}, {3, 1}, {2, 2}}), (Names{1, 3, 2}));
  EXPECT_EQ(order({kFcfs}, {{2, 7}, {1, 3}}), (Names{1, 2}));
}

TEST(SchedulePolicy, FcfsWithPriorities) {
  EXPECT_EQ(order({kFcfs, PriorityRule::kHighFirst}, {{1, 1, 1}, {3, 2, 0}, {2, 0, 0}}),
            (Names{1, 2, 3}));
  EXPECT_EQ(order({kFcfs, PriorityRule::kLowFirst}, {{1, 1, -1}, {3, 2, 0}, {2, 0, 0}}),
            (Names{1, 2, 3}));
  EXPECT_EQ(order({kPriority}, {{1, 1, 1}, {3, 2, 0}, {2, 0, 0}}), (Names{1, 2, 3}));
}

TEST(SchedulePolicy, LofTakesTheLongestOutputFirst) {
  EXPECT_EQ(order({kLof}, {{1, 0, 0, 1000}, {3, 1, 0, 10}, {2, 2, 0, 100}}), (Names{1, 2, 3}));
}

TEST(SchedulePolicy, LofWithPriorities) {
  EXPECT_EQ(order({kLof, PriorityRule::kHighFirst}, {{1, 0, 1, 1}, {3, 1, 0, 10}, {2, 2, 0, 100}}),
            (Names{1, 2, 3}));
  EXPECT_EQ(order({kLof, PriorityRule::kLowFirst}, {{1, 0, 0, 1}, {3, 1, 1, 10}, {2, 2, 1, 100}}),
            (Names{1, 2, 3}));
}

TEST(SchedulePolicy, LpmTakesTheLongestCachedPrefixFirstAndWaitersLast) {
  EXPECT_EQ(order({kLpm}, {{1, 0, 0, 0, {1}},
                           {2, 1, 0, 0, {1, 2, 3}},
                           {3, 2, 0, 0, {7, 8}},
                           {4, 3, 0, 0, {7, 9}},
                           {5, 4, 0, 0, {1, 2, 3, 4}, 0, 0, true}}),
            (Names{2, 3, 4, 1, 5}));
}

TEST(SchedulePolicy, LpmHasNoLimitOfWaitingRequests) {
  std::vector<Waiting> waiting;
  for (int i = 0; i < 1000; ++i) {
    waiting.push_back(
        {.name = i, .arrival = i, .matched = std::vector<TokenId>(static_cast<std::size_t>(i), 1)});
  }
  const Names names = order({kLpm}, waiting);
  EXPECT_TRUE(std::is_sorted(names.rbegin(), names.rend()));
}

TEST(SchedulePolicy, HrrnWeighsWaitingAgainstWork) {
  // Ratios 100, 333 and 1000.
  EXPECT_EQ(
      order({kHrrn},
            {{1, 0, 0, 0, {}, 10, 1000}, {2, 1, 0, 0, {}, 3, 1000}, {3, 2, 0, 0, {}, 1, 1000}}),
      (Names{3, 2, 1}));
  // A long request that waited goes before a short one that just came.
  EXPECT_EQ(order({kHrrn}, {{1, 0, 0, 0, {}, 100, 100'000}, {2, 1, 0, 0, {}, 1, 0}}),
            (Names{1, 2}));
  // 90 of 100 tokens cached: ratio 100 against 10 and 10.
  EXPECT_EQ(
      order({kHrrn},
            {{1, 2, 0, 0, {}, 10, 1000}, {2, 0, 0, 0, {}, 100, 1000}, {3, 1, 0, 0, {}, 100, 1000}}),
      (Names{1, 2, 3}));
  EXPECT_EQ(order({kHrrn}, {{1, 0, 0, 0, {}, 1, 9}, {2, 1, 0, 0, {}, 0, 0}}), (Names{2, 1}));
}

TEST(SchedulePolicy, ShortestUncachedFirst) {
  EXPECT_EQ(order({kShortestUncachedFirst},
                  {{1, 0, 0, 0, {}, 1024}, {2, 1, 0, 0, {}, 32}, {3, 2, 0, 0, {}, 16}}),
            (Names{3, 2, 1}));
  EXPECT_EQ(order({kShortestUncachedFirst}, {{1, 5, 0, 0, {}, 8}, {2, 4, 0, 0, {}, 8}}),
            (Names{2, 1}));
  EXPECT_EQ(order({kShortestUncachedFirst}, {{1, 0, 0, 0, {}, 1, 0, true}, {2, 1, 0, 0, {}, 500}}),
            (Names{2, 1}));
  // What was preempted has its output to compute again: 16 + 64 tokens against 32.
  EXPECT_EQ(order({kShortestUncachedFirst}, {{1, 0, 0, 0, {}, 80}, {2, 1, 0, 0, {}, 32}}),
            (Names{2, 1}));
}

TEST(SchedulePolicy, ShortestUncachedFirstLeavesRoomBesideALongPrompt) {
  const auto limit = [](std::int64_t continuation, std::vector<std::int64_t> waiting,
                        std::int64_t budget = 4096) {
    return shortest_uncached_chunk_limit({continuation, budget, 256}, waiting);
  };
  EXPECT_EQ(limit(16'384, {512, 1024}), 2560);
  EXPECT_EQ(limit(16'384, {257}), 3584);
  EXPECT_EQ(limit(16'384, {3840}), 256);
  EXPECT_EQ(limit(16'384, {}), std::nullopt);
  EXPECT_EQ(limit(8192, {8192}), std::nullopt);
  EXPECT_EQ(limit(16'384, {4096}), std::nullopt);
  EXPECT_EQ(limit(16'384, {512}, 256), std::nullopt);
}

// The tree of cached prefixes, page size 1, with who waits where:
//
//   [1] ── [1 2]   a b
//    │└─── [1 3]   c
//    │             d waits at [1] itself
//   [9]            e f
TEST(SchedulePolicy, DfsWeightGoesDownTheHeaviestSubtreeAndEmitsParentsLast) {
  EXPECT_EQ(order({kDfsWeight}, {{5, 0, 0, 0, {9}},
                                 {4, 1, 0, 0, {1}},
                                 {3, 2, 0, 0, {1, 3}},
                                 {1, 3, 0, 0, {1, 2}},
                                 {6, 4, 0, 0, {9}},
                                 {2, 5, 0, 0, {1, 2}}}),
            (Names{1, 2, 3, 4, 5, 6}));
}

TEST(SchedulePolicy, DfsWeightSettlesEqualWeightsByArrivalAndUncachedOnesLast) {
  EXPECT_EQ(order({kDfsWeight}, {{1, 0, 0, 0, {}}, {2, 2, 0, 0, {4}}, {3, 1, 0, 0, {8}}}),
            (Names{3, 2, 1}));
}

TEST(SchedulePolicy, DfsWeightPartsPrefixesAtPages) {
  // With pages of two tokens [1 2] and [1 3] are siblings of [7 7], not a subtree [1].
  EXPECT_EQ(order({.policy = kDfsWeight, .page_size = 2},
                  {{1, 0, 0, 0, {7, 7}}, {2, 1, 0, 0, {1, 2}}, {3, 2, 0, 0, {1, 3}}}),
            (Names{1, 2, 3}));
  EXPECT_EQ(order({.policy = kDfsWeight, .page_size = 1},
                  {{1, 0, 0, 0, {7, 7}}, {2, 1, 0, 0, {1, 2}}, {3, 2, 0, 0, {1, 3}}}),
            (Names{2, 3, 1}));
}

// A tree of prefixes, page by page, and who waits where: dfs-weight as it is told.
struct PageTree {
  void add(const Waiting& waiting, std::int64_t page_size, std::size_t depth = 0) {
    ++weight;
    if (earliest < 0 || waiting.arrival < earliest) earliest = waiting.arrival;
    if (depth == waiting.matched.size()) {
      ends[waiting.arrival] = waiting.name;
      return;
    }
    const auto begin = waiting.matched.begin() + static_cast<std::ptrdiff_t>(depth);
    children[{begin, begin + page_size}].add(waiting, page_size,
                                             depth + static_cast<std::size_t>(page_size));
  }

  void emit(Names& names) const {
    std::vector<const PageTree*> heaviest;
    for (const auto& [page, child] : children) heaviest.push_back(&child);
    std::sort(heaviest.begin(), heaviest.end(), [](const PageTree* a, const PageTree* b) {
      return a->weight != b->weight ? a->weight > b->weight : a->earliest < b->earliest;
    });
    for (const PageTree* child : heaviest) child->emit(names);
    for (const auto& [arrival, name] : ends) names.push_back(name);
  }

  std::int64_t weight = 0;
  std::int64_t earliest = -1;
  std::map<std::vector<TokenId>, PageTree> children;
  std::map<std::int64_t, int> ends;  // by arrival
};

TEST(SchedulePolicy, DfsWeightIsTheOrderOfTheTreeOfPages) {
  Prng prng(7);
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    const std::int64_t page_size = 1 + prng.below(3);
    const std::int64_t count = 1 + prng.below(24);
    std::vector<Waiting> waiting;
    PageTree tree;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto name = static_cast<std::int32_t>(i);
      waiting.push_back({.name = name, .arrival = (i * 7 + round) % 29});
      const std::int64_t tokens = page_size * prng.below(6);
      for (std::int64_t k = 0; k < tokens; ++k) {
        waiting.back().matched.push_back(prng.below(3) == 0 ? 2 : 1);
      }
      tree.add(waiting.back(), page_size);
    }
    Names wanted;
    tree.emit(wanted);
    EXPECT_EQ(order({.policy = kDfsWeight, .page_size = page_size}, waiting), wanted);
  }
}

TEST(SchedulePolicy, RandomIsAPermutationThatItsSeedDecides) {
  std::vector<QueueEntry> entries(8);
  std::map<int, int> first_places;
  QueueOrder a({.policy = kRandom, .seed = 5}, 8);
  QueueOrder b({.policy = kRandom, .seed = 5}, 8);
  for (int round = 0; round < 400; ++round) {
    for (int i = 0; i < 8; ++i) {
      entries[static_cast<std::size_t>(i)] = {.arrival = i, .matched = {}, .slot = i};
    }
    auto other = entries;
    a.sort(entries);
    b.sort(other);
    Names names;
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(entries[i].slot, other[i].slot);
      names.push_back(entries[i].slot);
    }
    ++first_places[names[0]];
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (Names{0, 1, 2, 3, 4, 5, 6, 7}));
  }
  EXPECT_EQ(first_places.size(), 8u) << "everyone is first some time";
}

// Entries that change now and then, put into order again and again by one that is told which, and
// by one that is told nothing.
TEST(SchedulePolicy, WhoMovesEndsUpWhereSortingEverybodyWouldPutHim) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  const std::vector<TokenId> text(40, 7);
  for (const SchedulePolicy policy : {kFcfs, kLof, kPriority, kLpm, kShortestUncachedFirst}) {
    Prng prng(kSeed);
    QueueOrder told({policy, PriorityRule::kLowFirst}, 100);
    QueueOrder untold({policy, PriorityRule::kLowFirst}, 100);
    std::vector<QueueEntry> entries;
    for (std::int32_t round = 0; round < 400; ++round) {
      std::erase_if(entries, [&](const QueueEntry&) { return prng.below(20) == 0; });
      for (QueueEntry& entry : entries) {
        entry.moves = looks_at_cache(policy) && prng.below(8) == 0;
        if (!entry.moves) continue;
        entry.matched = std::span(text).first(static_cast<std::size_t>(prng.below(5) * 8));
        entry.uncached_tokens = 40 - std::ssize(entry.matched);
        entry.deferred = prng.below(4) == 0;
      }
      for (std::int64_t left = prng.below(4); left > 0 && entries.size() < 100; --left) {
        entries.push_back({.arrival = round * 10 + left,
                           .priority = static_cast<std::int32_t>(prng.below(3)),
                           .output_tokens_max = prng.below(4),
                           .matched = {},
                           .uncached_tokens = 40});
      }
      std::vector<QueueEntry> all = entries;
      for (QueueEntry& entry : all) entry.moves = true;
      told.sort(entries);
      untold.sort(all);
      ASSERT_TRUE(std::ranges::equal(entries, all, {}, &QueueEntry::arrival, &QueueEntry::arrival))
          << schedule_policy_name(policy) << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace stemma
