// PageAllocator and OwnedPages: every page has one owner, runs come first, pages of a step in
// flight are not handed out again, and a broken rule stops the program. A random run against a
// std::set checks the rest.
#include "stemma/page_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

std::vector<int> ids(const OwnedPages& pages) {
  std::vector<PageId> out(static_cast<std::size_t>(pages.pages()));
  pages.copy_to(out);
  std::vector<int> values;
  for (const PageId page : out) values.push_back(page.value());
  return values;
}

using Ids = std::vector<int>;

TEST(PageAllocator, HandsOutTheLowestPagesInOrder) {
  PageAllocator allocator(8);
  const OwnedPages a = *allocator.try_allocate(3);
  const OwnedPages b = *allocator.try_allocate(2);
  EXPECT_EQ(ids(a), (Ids{0, 1, 2}));
  EXPECT_EQ(ids(b), (Ids{3, 4}));
  EXPECT_EQ(allocator.free_pages(), 3);
}

TEST(PageAllocator, AllOrNone) {
  PageAllocator allocator(8);
  EXPECT_FALSE(allocator.try_allocate(9).has_value());
  EXPECT_EQ(allocator.free_pages(), 8);
  const OwnedPages all = *allocator.try_allocate(8);
  EXPECT_FALSE(allocator.try_allocate(1).has_value());
  EXPECT_TRUE(allocator.try_allocate(0)->empty());
}

TEST(PageAllocator, PrefersAContiguousRunToScatteredPages) {
  PageAllocator allocator(200);
  OwnedPages all = *allocator.try_allocate(200);
  OwnedPages head = all.take_front(10);     // 0 … 9
  OwnedPages hole = head.take_front(1);     // 0
  OwnedPages middle = all.take_front(60);   // 10 … 69
  OwnedPages kept = middle.take_front(50);  // 10 … 59
  hole.reset();                             // free: 0
  middle.reset();                           // free: 0, 60 … 69
  EXPECT_EQ(ids(*allocator.try_allocate(9)), (Ids{60, 61, 62, 63, 64, 65, 66, 67, 68}));
  EXPECT_EQ(ids(*allocator.try_allocate(11)), (Ids{0, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69}));
}

TEST(PageAllocator, FindsARunAcrossWords) {
  PageAllocator allocator(256);
  OwnedPages all = *allocator.try_allocate(256);
  OwnedPages low = all.take_front(60);
  OwnedPages run = all.take_front(140);  // 60 … 199
  run.reset();
  const OwnedPages found = *allocator.try_allocate(140);
  EXPECT_EQ(ids(found).front(), 60);
  EXPECT_EQ(ids(found).back(), 199);
}

TEST(PageAllocator, AGapOfWholeWordsEndsARun) {
  PageAllocator allocator(64 * 4);
  OwnedPages all = *allocator.try_allocate(64 * 4);
  OwnedPages first = all.take_front(64);    // word 0
  OwnedPages second = all.take_front(128);  // words 1, 2
  first.reset();
  all.reset();  // word 3
  EXPECT_EQ(ids(*allocator.try_allocate(65)).at(64), 192);
}

// Where the first run of so many free pages begins, page by page; −1: nowhere.
int first_run(const std::vector<bool>& is_free, int pages) {
  int run = 0;
  for (int page = 0; page < static_cast<int>(is_free.size()); ++page) {
    run = is_free[static_cast<std::size_t>(page)] ? run + 1 : 0;
    if (run == pages) return page - pages + 1;
  }
  return -1;
}

TEST(PageAllocator, TakesTheFirstRunHoweverFreePagesLie) {
  Prng prng(20261128);
  for (int trial = 0; trial < 2'000; ++trial) {
    constexpr int kPages = 300;
    PageAllocator allocator(kPages);
    OwnedPages all = *allocator.try_allocate(kPages);
    std::vector<OwnedPages> held;
    std::vector<bool> is_free;
    const std::int64_t longest = 1 + prng.below(trial % 2 == 0 ? 8 : 150);
    for (bool frees = prng.below(2) == 0; all.pages() > 0; frees = !frees) {
      const std::int64_t length = std::min(all.pages(), 1 + prng.below(longest));
      OwnedPages part = all.take_front(length);
      is_free.insert(is_free.end(), static_cast<std::size_t>(length), frees);
      if (!frees) held.push_back(std::move(part));
    }
    const int wanted = 1 + static_cast<int>(prng.below(longest));
    const int expected = first_run(is_free, wanted);
    const std::optional<OwnedPages> got = allocator.try_allocate(wanted);
    if (expected < 0 || !got.has_value()) continue;
    EXPECT_EQ(ids(*got).front(), expected) << wanted << " pages, trial " << trial;
    EXPECT_EQ(ids(*got).back(), expected + wanted - 1);
  }
}

TEST(OwnedPages, SplitsAndJoinsInOrder) {
  PageAllocator allocator(6);
  OwnedPages all = *allocator.try_allocate(6);
  OwnedPages front = all.take_front(2);
  EXPECT_EQ(ids(front), (Ids{0, 1}));
  all.append(std::move(front));
  EXPECT_EQ(ids(all), (Ids{2, 3, 4, 5, 0, 1}));
  EXPECT_TRUE(all.take_front(0).empty());
  OwnedPages moved = std::move(all);
  EXPECT_EQ(moved.pages(), 6);
  EXPECT_TRUE(all.empty());  // NOLINT(bugprone-use-after-move): the moved-from state is part of the
                             // contract
}

TEST(OwnedPages, DestructionGivesBack) {
  PageAllocator allocator(4);
  { const OwnedPages pages = *allocator.try_allocate(4); }
  EXPECT_EQ(allocator.free_pages(), 4);
  EXPECT_EQ(allocator.audit(), std::nullopt);
}

TEST(OwnedPages, ReleaseAndAdoptAreTheHandOver) {
  PageAllocator allocator(4);
  OwnedPages pages = *allocator.try_allocate(3);
  std::vector<PageId> tree(3);
  pages.release(tree);
  EXPECT_TRUE(pages.empty());
  EXPECT_EQ(allocator.released_pages(), 3);
  const OwnedPages back = allocator.adopt(std::span(tree).subspan(1));
  EXPECT_EQ(ids(back), (Ids{1, 2}));
  EXPECT_EQ(allocator.released_pages(), 1);
  EXPECT_EQ(allocator.audit(), std::nullopt);
}

TEST(PageAllocator, APageFreedDuringAStepIsFreeWhenTheStepRetires) {
  PageAllocator allocator(2);
  OwnedPages pages = *allocator.try_allocate(2);
  const std::int64_t step = allocator.begin_step();
  pages.take_front(1).reset();
  EXPECT_FALSE(allocator.try_allocate(1).has_value());
  EXPECT_EQ(allocator.retiring_pages(), 1);
  allocator.retire_step(step);
  EXPECT_TRUE(allocator.try_allocate(1).has_value());
}

TEST(PageAllocator, APageWaitsForTheLastStepBegunBeforeItWasFreed) {
  PageAllocator allocator(1);
  OwnedPages pages = *allocator.try_allocate(1);
  const std::int64_t first = allocator.begin_step();
  const std::int64_t second = allocator.begin_step();
  pages.reset();
  allocator.retire_step(first);
  EXPECT_EQ(allocator.free_pages(), 0);
  allocator.retire_step(second);
  EXPECT_EQ(allocator.free_pages(), 1);
}

TEST(PageAllocatorDeath, AForeignOrDoubleHandOverStopsTheProgram) {
  PageAllocator allocator(4);
  OwnedPages pages = *allocator.try_allocate(2);
  const std::vector<PageId> owned = {PageId(0)};
  EXPECT_DEATH(static_cast<void>(allocator.adopt(owned)), "adopted pages were released");
  const std::vector<PageId> never = {PageId(3)};
  EXPECT_DEATH(static_cast<void>(allocator.adopt(never)), "adopted pages were released");
  const std::vector<PageId> foreign = {PageId(4)};
  EXPECT_DEATH(static_cast<void>(allocator.adopt(foreign)), "is of this pool");
  std::vector<PageId> tree(2);
  pages.release(tree);
  const OwnedPages back = allocator.adopt(tree);
  EXPECT_DEATH(static_cast<void>(allocator.adopt(tree)), "adopted pages were released");
}

TEST(PageAllocator, RandomRunAgreesWithASet) {
  const std::uint64_t seed = 20261121;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Prng prng(seed);
  PageAllocator allocator(300);
  std::vector<OwnedPages> held;
  std::set<int> in_use;
  for (int op = 0; op < 20'000; ++op) {
    if (prng.below(2) == 0) {
      const std::int64_t wanted = prng.below(20);
      std::optional<OwnedPages> got = allocator.try_allocate(wanted);
      ASSERT_EQ(got.has_value(), wanted <= 300 - static_cast<std::int64_t>(in_use.size()));
      if (!got.has_value()) continue;
      for (const int id : ids(*got)) ASSERT_TRUE(in_use.insert(id).second);
      held.push_back(std::move(*got));
    } else if (!held.empty()) {
      const auto i = static_cast<std::size_t>(prng.below(static_cast<std::int64_t>(held.size())));
      std::swap(held[i], held.back());
      for (const int id : ids(held.back())) in_use.erase(id);
      held.pop_back();
    }
    if (op % 64 == 0) {
      ASSERT_EQ(allocator.audit(), std::nullopt);
    }
  }
}

}  // namespace
}  // namespace stemma
