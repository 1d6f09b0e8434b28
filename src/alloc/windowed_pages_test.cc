// WindowedPages: what hangs on a page is found there until it is evicted, freed or its carrier is;
// what is held stays; what is unlikely to be gone on from goes first, then what was let go first.
#include "alloc/windowed_pages.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "alloc/windowed_holds.h"

namespace stemma {
namespace {

using Return = WindowedPages::Return;

class WindowedPagesTest : public ::testing::Test {
 protected:
  WindowedPagesTest() { carriers_.carry(pages_); }

  // Carriers that somebody owns, with a page each.
  OwnedPages hang(std::int64_t count, std::vector<PageId>& ids) {
    OwnedPages owned = *carriers_.try_allocate(count);
    ids.resize(static_cast<std::size_t>(count));
    owned.copy_to(ids);
    EXPECT_TRUE(pages_.try_hang(ids));
    return owned;
  }

  void expect_holders(const std::vector<std::int32_t>& holders) {
    EXPECT_EQ(pages_.audit(holders), std::nullopt);
  }

  WindowedPages pages_ = WindowedPages({.pages = 4, .carriers = 10});
  PageAllocator carriers_ = PageAllocator(10);  // destroyed first
};

TEST_F(WindowedPagesTest, APageHangsOnItsCarrierUntilThatIsFreed) {
  std::vector<PageId> ids;
  OwnedPages owned = hang(3, ids);
  EXPECT_EQ(pages_.free_pages(), 1);
  for (const PageId id : ids) {
    EXPECT_TRUE(pages_.of(id).valid());
    pages_.let_go(id, Return::kLikely);
  }
  expect_holders({0, 0, 0, 0});
  owned.reset();
  EXPECT_FALSE(pages_.of(ids[0]).valid());
  EXPECT_EQ(pages_.free_pages(), 4);
}

TEST_F(WindowedPagesTest, AllOrNoneAreHung) {
  std::vector<PageId> ids;
  const OwnedPages owned = hang(3, ids);
  std::vector<PageId> more(2);
  OwnedPages others = *carriers_.try_allocate(2);
  others.copy_to(more);
  EXPECT_FALSE(pages_.try_hang(more)) << "three are held";
  EXPECT_FALSE(pages_.of(more[0]).valid());
  for (const PageId id : ids) pages_.let_go(id, Return::kLikely);
  EXPECT_TRUE(pages_.try_hang(more));
  EXPECT_EQ(pages_.evicted_pages(), 1);
  for (const PageId id : more) pages_.give_up(id);
}

TEST_F(WindowedPagesTest, TheUnlikelyGoFirstThenThoseLetGoFirst) {
  std::vector<PageId> ids;
  const OwnedPages owned = hang(4, ids);
  pages_.let_go(ids[3], Return::kLikely);
  pages_.let_go(ids[1], Return::kLikely);
  pages_.let_go(ids[2], Return::kUnlikely);
  std::vector<PageId> gone;
  OwnedPages others;
  for (int i = 0; i < 3; ++i) {
    std::vector<PageId> one(1);
    OwnedPages carrier = *carriers_.try_allocate(1);
    carrier.copy_to(one);
    others.append(std::move(carrier));
    ASSERT_TRUE(pages_.try_hang(one));
    for (const PageId id : ids) {
      if (!pages_.of(id).valid() && std::count(gone.begin(), gone.end(), id) == 0) {
        gone.push_back(id);
      }
    }
  }
  EXPECT_EQ(gone, (std::vector<PageId>{ids[2], ids[3], ids[1]}));
  EXPECT_TRUE(pages_.of(ids[0]).valid()) << "it is held";
  EXPECT_EQ(pages_.available_pages(), 0);
  std::vector<PageId> last(3);
  others.copy_to(last);
  for (const PageId id : last) pages_.give_up(id);
  pages_.let_go(ids[0], Return::kLikely);
}

TEST_F(WindowedPagesTest, SeveralMayHoldOne) {
  std::vector<PageId> ids;
  const OwnedPages owned = hang(1, ids);
  pages_.hold(ids[0]);
  pages_.let_go(ids[0], Return::kLikely);
  EXPECT_EQ(pages_.available_pages(), 3) << "one holds it still";
  pages_.let_go(ids[0], Return::kLikely);
  EXPECT_EQ(pages_.available_pages(), 4);
  pages_.hold(ids[0]);
  EXPECT_EQ(pages_.available_pages(), 3) << "found again";
  pages_.give_up(ids[0]);
  EXPECT_EQ(pages_.free_pages(), 4);
}

TEST_F(WindowedPagesTest, APageMovesToAnotherCarrier) {
  std::vector<PageId> ids;
  OwnedPages owned = hang(2, ids);
  const PageId page = pages_.of(ids[0]);
  EXPECT_EQ(pages_.take_off(ids[0]), page);
  EXPECT_FALSE(pages_.take_off(ids[0]).valid());
  pages_.give_up(ids[1]);
  pages_.hang(ids[1], page);
  EXPECT_EQ(pages_.of(ids[1]), page);
  pages_.let_go(ids[1], Return::kLikely);
  expect_holders({0, 0, 0, 0});
}

// A step may still read what was freed while it ran.
TEST_F(WindowedPagesTest, DuringAStepNothingBecomesFree) {
  std::vector<PageId> ids;
  const OwnedPages owned = hang(4, ids);
  const std::int64_t step = carriers_.begin_step();
  pages_.begin_step();
  pages_.give_up(ids[0]);
  pages_.let_go(ids[1], Return::kLikely);
  EXPECT_EQ(pages_.available_pages(), 0);
  carriers_.retire_step(step);
  pages_.retire_step();
  EXPECT_EQ(pages_.available_pages(), 2);
  EXPECT_EQ(pages_.free_pages(), 1);
  pages_.let_go(ids[2], Return::kLikely);
  pages_.let_go(ids[3], Return::kLikely);
}

// What is evicted while a step runs is free after it, for the step behind it.
TEST_F(WindowedPagesTest, PagesAreKeptFreeAStepAhead) {
  std::vector<PageId> ids;
  const OwnedPages owned = hang(4, ids);
  pages_.let_go(ids[0], Return::kLikely);
  pages_.let_go(ids[1], Return::kUnlikely);
  const std::int64_t step = carriers_.begin_step();
  pages_.begin_step();
  pages_.keep_free(1);
  EXPECT_FALSE(pages_.of(ids[1]).valid());
  EXPECT_TRUE(pages_.of(ids[0]).valid()) << "one is enough";
  pages_.keep_free(3);
  EXPECT_FALSE(pages_.of(ids[0]).valid()) << "as many as there are";
  EXPECT_EQ(pages_.available_pages(), 0);
  carriers_.retire_step(step);
  pages_.retire_step();
  EXPECT_EQ(pages_.free_pages(), 2);
  pages_.let_go(ids[2], Return::kLikely);
  pages_.let_go(ids[3], Return::kLikely);
}

// A copy that reads them keeps them, as likely as they were.
TEST_F(WindowedPagesTest, WhatACopyReadsStaysUntilItHasEnded) {
  std::vector<PageId> ids;
  const OwnedPages owned = hang(2, ids);
  HeldWindowedPages held(pages_, ids);
  pages_.let_go(ids[0], Return::kLikely);
  pages_.let_go(ids[1], Return::kUnlikely);
  EXPECT_EQ(pages_.available_pages(), 2);
  pages_.forget(ids[0]);
  EXPECT_TRUE(pages_.of(ids[0]).valid()) << "somebody holds it";
  std::vector<std::int32_t> holders(4, 0);
  held.count(pages_, holders);
  expect_holders(holders);
  HeldWindowedPages moved = std::move(held);
  moved.reset();
  EXPECT_EQ(pages_.available_pages(), 4);
  TakenWindowedPages most = TakenWindowedPages::try_take(pages_, 3);
  EXPECT_TRUE(pages_.of(ids[0]).valid());
  EXPECT_FALSE(pages_.of(ids[1]).valid()) << "the unlikely one goes first";
  pages_.forget(ids[0]);
  EXPECT_FALSE(pages_.of(ids[0]).valid());
}

// What a copy writes hangs nowhere until it has come.
TEST_F(WindowedPagesTest, WhatACopyWritesIsHungOrFreed) {
  std::vector<PageId> ids;
  const OwnedPages owned = hang(1, ids);
  OwnedPages other = *carriers_.try_allocate(1);
  PageId bare;
  other.copy_to(std::span(&bare, 1));
  TakenWindowedPages taken = TakenWindowedPages::try_take(pages_, 3);
  EXPECT_TRUE(TakenWindowedPages::try_take(pages_, 1).empty()) << "all or none";
  std::vector<std::int32_t> holders(4, 0);
  ++holders[pages_.of(ids[0]).index()];
  EXPECT_EQ(taken.count(pages_, holders), 3);
  EXPECT_EQ(pages_.audit(holders, 3), std::nullopt);
  EXPECT_TRUE(pages_.audit(holders, 2).has_value());
  EXPECT_FALSE(taken.hang(0, ids[0])) << "a page hangs there";
  EXPECT_TRUE(taken.hang(1, bare));
  EXPECT_TRUE(pages_.of(bare).valid());
  EXPECT_EQ(pages_.free_pages(), 1);
  taken.reset();
  EXPECT_EQ(pages_.free_pages(), 2);
  pages_.let_go(ids[0], Return::kLikely);
}

TEST_F(WindowedPagesTest, AHoldThatTakesAnothersPlaceLetsGoOfWhatWasThere) {
  std::vector<PageId> ids;
  const OwnedPages owned = hang(2, ids);
  HeldWindowedPages held(pages_, {ids[0]});
  pages_.let_go(ids[0], Return::kLikely);
  pages_.let_go(ids[1], Return::kLikely);
  held = HeldWindowedPages(pages_, {ids[1]});
  std::vector<std::int32_t> holders(4, 0);
  held.count(pages_, holders);
  expect_holders(holders);
  EXPECT_EQ(pages_.available_pages(), 3);
  TakenWindowedPages taken = TakenWindowedPages::try_take(pages_, 2);
  taken = TakenWindowedPages();
  EXPECT_EQ(pages_.available_pages(), 3);
}

// Whoever keeps in mind how much of a text is usable looks again.
TEST_F(WindowedPagesTest, WhateverComesOrGoesRaisesTheEpoch) {
  std::vector<PageId> ids;
  OwnedPages owned = hang(4, ids);
  std::uint64_t epoch = 0;
  const auto is_raised = [&] { return std::exchange(epoch, pages_.epoch()) < pages_.epoch(); };
  EXPECT_TRUE(is_raised()) << "hung";
  for (const PageId id : ids) pages_.let_go(id, Return::kLikely);
  EXPECT_FALSE(is_raised()) << "all are still there";
  pages_.keep_free(1);
  EXPECT_TRUE(is_raised()) << "evicted";
  pages_.forget(ids[1]);
  EXPECT_TRUE(is_raised()) << "forgotten";
  pages_.hold(ids[2]);
  const PageId taken = pages_.take_off(ids[2]);
  EXPECT_TRUE(is_raised()) << "taken off";
  pages_.hang(ids[0], taken);
  EXPECT_TRUE(is_raised()) << "hung on another";
  pages_.let_go(ids[0], Return::kLikely);
  owned.reset();
  EXPECT_TRUE(is_raised()) << "freed with what carries them";
}

TEST_F(WindowedPagesTest, AWrongCountOfHoldersIsFound) {
  std::vector<PageId> ids;
  const OwnedPages owned = hang(1, ids);
  EXPECT_TRUE(pages_.audit(std::vector<std::int32_t>(4, 0)).has_value());
  pages_.let_go(ids[0], Return::kLikely);
}

}  // namespace
}  // namespace stemma
