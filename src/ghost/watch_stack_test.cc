// WatchStack: ranks as in a plain list, whatever is put on, taken out and dropped.
#include "ghost/watch_stack.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.h"

namespace stemma {
namespace {

TEST(WatchStack, CountsWhatLiesAbove) {
  WatchStack stack(10);
  for (const std::int64_t hash : {7, 8, 9}) stack.push(hash);
  EXPECT_EQ(stack.try_rank(9), 0);
  EXPECT_EQ(stack.try_rank(7), 2);
  EXPECT_EQ(stack.try_rank(5), std::nullopt);
}

TEST(WatchStack, ForgetsWhatIsTakenOut) {
  WatchStack stack(10);
  for (const std::int64_t hash : {7, 8, 9}) stack.push(hash);
  stack.remove(8);
  stack.remove(8);
  EXPECT_EQ(stack.try_rank(8), std::nullopt);
  EXPECT_EQ(stack.try_rank(7), 1);
  EXPECT_EQ(stack.watches(), 2);
}

TEST(WatchStack, DropsTheLowestWhenFull) {
  WatchStack stack(3);
  for (const std::int64_t hash : {7, 8, 9}) stack.push(hash);
  stack.remove(7);
  stack.push(7);
  stack.push(10);
  EXPECT_EQ(stack.try_rank(8), std::nullopt);
  EXPECT_EQ(stack.try_rank(9), 2);
  EXPECT_EQ(stack.watches(), 3);
}

TEST(WatchStack, HoldsOneWatch) {
  WatchStack stack(1);
  for (std::int64_t hash = 0; hash < 100; ++hash) stack.push(hash);
  EXPECT_EQ(stack.try_rank(99), 0);
  EXPECT_EQ(stack.watches(), 1);
}

TEST(WatchStack, IsAListInWhichAnythingMoves) {
  constexpr std::int64_t kWatchesMax = 37;
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    WatchStack stack(kWatchesMax);
    std::vector<std::int64_t> list;  // the top first
    for (int step = 0; step < 20'000; ++step) {
      const std::int64_t hash = random.below(60);
      const auto found = std::find(list.begin(), list.end(), hash);
      if (found == list.end()) {
        ASSERT_EQ(stack.try_rank(hash), std::nullopt);
      } else {
        ASSERT_EQ(stack.try_rank(hash), found - list.begin());
        stack.remove(hash);
        list.erase(found);
      }
      if (random.below(3) == 0) continue;
      stack.push(hash);
      list.insert(list.begin(), hash);
      if (list.size() > kWatchesMax) list.pop_back();
      ASSERT_EQ(stack.watches(), static_cast<std::int64_t>(list.size()));
    }
  }
}

TEST(WatchStackDeathTest, AnEmptyStackIsRefused) {
  EXPECT_DEATH(WatchStack(0), "watches fit");
}

}  // namespace
}  // namespace stemma
