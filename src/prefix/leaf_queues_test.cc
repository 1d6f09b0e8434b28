// Leaves by kind, in the order of last use, against sorted lists.
#include "prefix/leaf_queues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

TEST(LeafQueues, BothEndsOfEachKindAreThoseOfASortedList) {
  constexpr int kKinds = 3;
  constexpr std::int32_t kNodes = 40;
  LeafQueues queues(kNodes, kKinds);
  std::map<std::int32_t, std::pair<int, QueuedLeaf>> plain;  // by slot
  Prng random(1);
  for (int i = 0; i < 50'000; ++i) {
    const auto slot = static_cast<std::int32_t>(random.below(kNodes));
    if (plain.contains(slot)) {
      queues.remove(NodeSlot(slot));
      plain.erase(slot);
    } else {
      const QueuedLeaf leaf = {static_cast<std::uint32_t>(random.below(5)), NodeId(i),
                               NodeSlot(slot)};
      const int kind = static_cast<int>(random.below(kKinds));
      queues.add(kind, leaf);
      plain[slot] = {kind, leaf};
    }
    for (int kind = 0; kind < kKinds; ++kind) {
      std::vector<QueuedLeaf> leaves;
      for (const auto& [at, entry] : plain) {
        if (entry.first == kind) leaves.push_back(entry.second);
      }
      ASSERT_EQ(queues.leaves_of(kind), std::ssize(leaves));
      if (leaves.empty()) continue;
      const auto [oldest, youngest] = std::minmax_element(leaves.begin(), leaves.end());
      ASSERT_EQ(queues.oldest(kind).slot, oldest->slot);
      ASSERT_EQ(queues.youngest(kind).slot, youngest->slot);
    }
  }
}

}  // namespace
}  // namespace stemma
