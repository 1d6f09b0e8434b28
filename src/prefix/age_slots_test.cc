// Ages cut into buckets, and the slots that count pages by age: against plain counts.
#include "prefix/age_slots.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/prng.h"
#include "prefix/age_buckets.h"

namespace stemma {
namespace {

TEST(AgeBuckets, EachBeginsWhereTheOneBeforeEnds) {
  for (int bucket = 1; bucket < AgeBuckets::kBuckets; ++bucket) {
    const auto begin_us = static_cast<std::int64_t>(std::ceil(AgeBuckets::begin_s(bucket) * 1e6));
    EXPECT_EQ(AgeBuckets::of(begin_us), bucket);
    EXPECT_EQ(AgeBuckets::of(begin_us - 1), bucket - 1);
  }
  EXPECT_EQ(AgeBuckets::of(0), 0);
  EXPECT_EQ(AgeBuckets::of(std::int64_t{1} << 60), AgeBuckets::kBuckets - 1);
}

struct KnownPage {
  int page_class = 0;
  std::int64_t weight = 0;
  std::int64_t used_us = 0;
};

std::int64_t total_weight(const AgeSlots& slots, int page_class) {
  std::int64_t total = 0;
  for (int slot = 0; slot < slots.slots(); ++slot) {
    total += slots.weights(slot)[static_cast<std::size_t>(page_class)];
  }
  return total;
}

TEST(AgeSlots, WeightsOfAClassAreThoseOfItsPagesHoweverSlotsMerge) {
  AgeSlots slots;
  Prng random(1);
  std::vector<KnownPage> pages;
  std::int64_t now_us = 0;
  for (int i = 0; i < 20'000; ++i) {
    now_us += random.below(2'000'000);
    const KnownPage page = {static_cast<int>(random.below(3)), 1 + random.below(100), now_us};
    slots.add(page.page_class, page.weight, 1, now_us);
    pages.push_back(page);
    if (random.below(2) == 0) {
      const auto gone = static_cast<std::size_t>(random.below(std::ssize(pages)));
      slots.remove(pages[gone].page_class, pages[gone].weight, 1, pages[gone].used_us);
      pages.erase(pages.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    if (i % 64 == 0) slots.merge(now_us);
  }
  for (int page_class = 0; page_class < 3; ++page_class) {
    std::int64_t expected = 0;
    for (const KnownPage& page : pages) expected += page.page_class == page_class ? page.weight : 0;
    EXPECT_EQ(total_weight(slots, page_class), expected);
  }
}

TEST(AgeSlots, ASlotIsNoLongerThanASixteenthOfItsAge) {
  AgeSlots slots;
  std::int64_t now_us = 0;
  for (int i = 0; i < 100'000; ++i) {
    now_us += 300'000;
    slots.add(0, 1, 1, now_us);
    if (i % 64 == 0) slots.merge(now_us);
  }
  slots.merge(now_us);
  EXPECT_LT(slots.slots(), 400);
  for (int slot = 0; slot + 1 < slots.slots(); ++slot) {
    const std::int64_t middle = slots.middle_us(slot, now_us);
    const std::int64_t next = slots.middle_us(slot + 1, now_us);
    EXPECT_LE(next - middle, (now_us - middle) / 8 + 600'000);
  }
}

// Exactly where no slot is cut, and to a slot otherwise.
TEST(AgeSlots, TellsSinceWhenTheMostRecentPagesWereUsed) {
  AgeSlots slots;
  for (std::int64_t i = 0; i < 10; ++i) slots.add(0, 1, 5, i * 1'000'000);
  EXPECT_EQ(slots.used_since_us(50), 0);
  EXPECT_EQ(slots.used_since_us(10), 8'000'000);
  EXPECT_EQ(slots.used_since_us(14), 8'000'000);
  slots.remove(0, 1, 1, 9'000'000);
  EXPECT_EQ(slots.used_since_us(14), 7'000'000);
}

}  // namespace
}  // namespace stemma
