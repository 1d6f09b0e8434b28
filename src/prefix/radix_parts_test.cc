// The parts of the tree by themselves: node slab, child table and its hash, eviction orders with
// their key tuples, eviction index.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/prng.h"
#include "prefix/child_table.h"
#include "prefix/eviction_index.h"
#include "prefix/eviction_order.h"
#include "prefix/radix_node.h"

namespace stemma {
namespace {

TEST(NodeSlab, SlotsAreReusedIdsAreNot) {
  NodeSlab slab(2);
  const NodeSlot first = slab.make(10);
  const NodeSlot second = slab.make(11);
  EXPECT_EQ(slab.history(first).id, NodeId(0));
  EXPECT_EQ(slab.history(second).id, NodeId(1));
  EXPECT_EQ(slab.history(second).created, 11);
  slab.drop(first);
  EXPECT_FALSE(slab.exists(first));
  const NodeSlot third = slab.make(12);
  EXPECT_EQ(third, first);
  EXPECT_EQ(slab.history(third).id, NodeId(2));
  EXPECT_TRUE(slab[third].is_root());
  EXPECT_EQ(slab.nodes(), 2);
  EXPECT_EQ(slab.slot_of(&slab[second]), second);
  EXPECT_DEATH(static_cast<void>(slab.make(13)), "nodes_max");
  slab.drop(third);
  EXPECT_DEATH(slab.drop(third), "once");
}

TEST(ChildHash, DependsOnParentSeedAndEveryToken) {
  for (const std::size_t page_size : {1u, 2u, 3u, 8u, 9u, 16u, 17u, 64u}) {
    const ChildHash hash(1, 32);
    const ChildHash other_seed(2, 32);
    std::vector<TokenId> page(page_size, 5);
    std::set<std::uint32_t> seen = {hash(NodeSlot(0), page), hash(NodeSlot(1), page),
                                    other_seed(NodeSlot(0), page)};
    for (TokenId& token : page) {
      token = 6;
      seen.insert(hash(NodeSlot(0), page));
      token = 5;
    }
    EXPECT_EQ(seen.size(), page_size + 3) << page_size;
  }
}

TEST(ChildHash, SpreadsOverItsRange) {
  const ChildHash hash(3, 32);
  std::vector<int> buckets(64, 0);
  for (TokenId token = 0; token < 6400; ++token) {
    const std::vector<TokenId> page(16, token);
    ++buckets[hash(NodeSlot(4), page) >> 26];
  }
  EXPECT_GT(*std::min_element(buckets.begin(), buckets.end()), 50);
  EXPECT_LT(*std::max_element(buckets.begin(), buckets.end()), 150);
}

// Against a plain set, with so few hashes that runs of entries are long and wrap around.
TEST(ChildTable, FindsExactlyWhatIsInIt) {
  Prng random(4);
  ChildTable table(64);
  std::set<std::pair<std::uint32_t, std::int32_t>> model;
  const auto hash_of = [](std::int32_t slot) {
    return static_cast<std::uint32_t>(slot % 5) * 0x3FFFFFFFu +
           static_cast<std::uint32_t>(slot % 2);
  };
  for (int i = 0; i < 20'000; ++i) {
    const auto slot = static_cast<std::int32_t>(random.below(64));
    const std::uint32_t hash = hash_of(slot);
    const bool present = model.contains({hash, slot});
    const NodeSlot found = table.find(hash, [&](NodeSlot s) { return s.value() == slot; });
    ASSERT_EQ(found.valid(), present) << i;
    if (present) {
      table.erase(hash, NodeSlot(slot));
      model.erase({hash, slot});
    } else {
      table.insert(hash, NodeSlot(slot));
      model.insert({hash, slot});
    }
    ASSERT_EQ(table.entries(), static_cast<std::int64_t>(model.size()));
  }
}

TEST(ChildTable, GrowsWithItsNodesAndLosesNone) {
  constexpr std::int32_t kNodes = 100'000;
  ChildTable table(kNodes);
  const std::int64_t first_bytes = table.reserved_bytes();
  // Runs of 16 slots collide, also across the end of the table.
  const auto hash_of = [](std::int32_t slot) {
    return 0u - static_cast<std::uint32_t>(slot / 16) * 0x9E3779B9u;
  };
  for (std::int32_t slot = 0; slot < kNodes; ++slot) table.insert(hash_of(slot), NodeSlot(slot));
  EXPECT_LT(first_bytes, table.reserved_bytes() / 4);
  EXPECT_EQ(table.entries(), kNodes);
  for (std::int32_t slot = 0; slot < kNodes; ++slot) {
    const NodeSlot found = table.find(hash_of(slot), [&](NodeSlot s) { return s.value() == slot; });
    ASSERT_EQ(found.value(), slot);
  }
  for (std::int32_t slot = 0; slot < kNodes; ++slot) table.erase(hash_of(slot), NodeSlot(slot));
  EXPECT_EQ(table.entries(), 0);
  EXPECT_FALSE(table.find(hash_of(0), [](NodeSlot) { return true; }).valid());
}

TEST(ChildTable, ReplaceKeepsTheHash) {
  ChildTable table(4);
  table.insert(9, NodeSlot(1));
  table.replace(9, NodeSlot(1), NodeSlot(2));
  EXPECT_EQ(table.find(9, [](NodeSlot) { return true; }), NodeSlot(2));
  EXPECT_DEATH(table.erase(9, NodeSlot(1)), "in the table");
}

TEST(EvictionOrder, KeysOfEveryPolicy) {
  const auto key = [](const char* name, const NodeUse& use, std::int64_t protected_hits = 2) {
    return EvictionOrder::make(name, protected_hits).value().key(use);
  };
  EXPECT_EQ(key("lru", {.last_use = 42}), (EvictionKey{42, 0}));
  EXPECT_EQ(key("lfu", {.last_use = 3, .hits = 5}), (EvictionKey{5, 3}));
  EXPECT_EQ(key("fifo", {.last_use = 9, .created = 7}), (EvictionKey{7, 0}));
  EXPECT_EQ(key("mru", {.last_use = 5}), (EvictionKey{-5, 0}));
  EXPECT_EQ(key("filo", {.last_use = 9, .created = 3}), (EvictionKey{-3, 0}));
  EXPECT_EQ(key("priority", {.last_use = 4, .priority = 2}), (EvictionKey{2, 4}));
  EXPECT_EQ(key("gdsf", {.last_use = 4, .hits = 3, .aging = 20}), (EvictionKey{24, 4}));
  EXPECT_EQ(key("slru", {.last_use = 5, .hits = 1}), (EvictionKey{0, 5}));
  EXPECT_EQ(key("slru", {.last_use = 5, .hits = 2}), (EvictionKey{1, 5}));
  EXPECT_EQ(key("slru", {.last_use = 5, .hits = 100}), (EvictionKey{1, 5}));
  EXPECT_EQ(key("slru", {.last_use = 5, .hits = 4}, 5), (EvictionKey{0, 5}));
  EXPECT_EQ(key("slru", {.last_use = 5, .hits = 5}, 5), (EvictionKey{1, 5}));
}

TEST(EvictionOrder, UnknownNamesListTheKnownOnes) {
  const auto order = EvictionOrder::make("clock");
  ASSERT_FALSE(order.ok());
  EXPECT_EQ(order.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(order.error().detail,
            "eviction: unknown order \"clock\" (known: lru, lfu, fifo, mru, filo, slru, priority, "
            "gdsf, tlru, s3fifo, hazard)");
  EXPECT_EQ(EvictionOrder::make("slru").value().name(), "slru");
}

TEST(EvictionIndex, EqualKeysGoByTheAgeOfTheNode) {
  EvictionIndex index(4);
  index.push(NodeSlot(0), {1, 0}, NodeId(7));
  index.push(NodeSlot(1), {1, 0}, NodeId(3));
  index.push(NodeSlot(2), {0, 9}, NodeId(8));
  EXPECT_EQ(index.top(), NodeSlot(2));
  index.remove(NodeSlot(2));
  EXPECT_EQ(index.top(), NodeSlot(1));
  EXPECT_FALSE(index.contains(NodeSlot(2)));
  EXPECT_DEATH(index.remove(NodeSlot(2)), "index");
  EXPECT_DEATH(index.push(NodeSlot(1), {0, 0}, NodeId(9)), "once");
}

// The order of victims is that of a reference that sorts all leaves each time.
TEST(EvictionIndex, TopIsAlwaysTheSmallestOfAll) {
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int32_t>;
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed);
    EvictionIndex index(200);
    std::set<Key> model;
    std::vector<Key> in_index(200);
    for (std::int64_t i = 0; i < 20'000; ++i) {
      const auto slot = static_cast<std::int32_t>(random.below(200));
      if (index.contains(NodeSlot(slot))) {
        const bool pop = random.below(2) == 0;
        const NodeSlot gone = pop ? index.top() : NodeSlot(slot);
        if (pop) {
          ASSERT_EQ(std::get<3>(*model.begin()), gone.value());
        }
        model.erase(in_index[gone.index()]);
        index.remove(gone);
      } else {
        const Key key = {random.below(20), random.below(4), i, slot};
        in_index[static_cast<std::size_t>(slot)] = key;
        model.insert(key);
        index.push(NodeSlot(slot), {std::get<0>(key), std::get<1>(key)}, NodeId(i));
      }
      if (i % 64 == 0) {
        ASSERT_EQ(index.audit(), std::nullopt);
      }
    }
  }
}

}  // namespace
}  // namespace stemma
