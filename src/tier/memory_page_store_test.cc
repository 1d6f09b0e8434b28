// The store in a map: what it has is bounded, the page that was used longest ago goes first, and
// what goes, whichever way, makes room for others.
#include "tier/memory_page_store.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tier/page_frame_fixture.h"

namespace stemma {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr PageVerdict kDone = PageVerdict::kDone;
constexpr std::int64_t kRoom = 4;  // pages

class MemoryPageStoreTest : public ::testing::Test {
 protected:
  MemoryPageStoreTest() {
    for (std::int64_t page = 0; page < 2 * kRoom; ++page) {
      pages.emplace_back(small_format(), 1, page);
    }
  }

  static std::int64_t frame_size() {
    return static_cast<std::int64_t>(frame_bytes(small_format()));
  }
  // Of the text's pages from `first` on.
  std::vector<PageVerdict> write(std::size_t first, std::size_t count) {
    std::vector<PageWrite> writes;
    for (std::size_t page = first; page < first + count; ++page) {
      writes.push_back({.key = pages[page].key(), .frame = pages[page].frame()});
    }
    store.write(writes, 0);
    std::vector<PageVerdict> verdicts;
    for (const PageWrite& write : writes) verdicts.push_back(write.verdict);
    return verdicts;
  }
  std::vector<PageKey> keys(std::size_t first, std::size_t count) const {
    std::vector<PageKey> keys;
    for (std::size_t page = first; page < first + count; ++page) keys.push_back(pages[page].key());
    return keys;
  }
  bool has(std::size_t page) {
    std::vector<std::byte> frame(pages[page].frame().size());
    PageRead read = {.key = pages[page].key(), .frame = frame};
    store.read({&read, 1}, 0);
    if (read.verdict != kDone) return false;
    EXPECT_TRUE(std::ranges::equal(frame, pages[page].frame()));
    return true;
  }
  // The numbers of the text's pages that it has.
  std::vector<std::size_t> had() {
    std::vector<std::size_t> numbers;
    for (std::size_t page = 0; page < pages.size(); ++page) {
      if (has(page)) numbers.push_back(page);
    }
    return numbers;
  }
  void remove(std::size_t page, std::span<const std::byte> frame) {
    const PageRemoval removal = {.key = pages[page].key(), .frame = frame};
    store.remove({&removal, 1}, 0);
  }

  std::vector<TestPage> pages;
  MemoryPageStore store{Tier::kRemote, kRoom* frame_size()};
};

TEST_F(MemoryPageStoreTest, HasWhatWasWrittenLast) {
  EXPECT_THAT(write(0, 6), Each(kDone));
  EXPECT_THAT(had(), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(store.usage().pages, kRoom);
  EXPECT_EQ(store.usage().bytes, kRoom * frame_size());
}

// What continues a page goes before the page.
TEST_F(MemoryPageStoreTest, ALookupIsAUseOfWhatItFinds) {
  ASSERT_THAT(write(0, 4), Each(kDone));
  EXPECT_EQ(store.lookup(keys(0, 3), 0).value(), 3);
  EXPECT_THAT(write(4, 1), Each(kDone));
  EXPECT_THAT(had(), ElementsAre(0, 1, 2, 4)) << "nobody looked for 3";
  EXPECT_THAT(write(5, 1), Each(kDone));
  EXPECT_THAT(had(), ElementsAre(0, 1, 4, 5));
}

TEST_F(MemoryPageStoreTest, AFrameThatNeverFitsIsRefusedAndNothingGoesForIt) {
  ASSERT_THAT(write(0, 4), Each(kDone));
  const std::vector<std::byte> huge(static_cast<std::size_t>(kRoom * frame_size()) + 1);
  PageWrite write = {.key = pages[7].key(), .frame = huge};
  store.write({&write, 1}, 0);
  EXPECT_EQ(write.verdict, PageVerdict::kRefused);
  EXPECT_THAT(had(), ElementsAre(0, 1, 2, 3));
}

TEST_F(MemoryPageStoreTest, AFrameOfAnotherLengthIsNotThePageAskedFor) {
  ASSERT_THAT(write(0, 1), Each(kDone));
  std::vector<std::byte> shorter(pages[0].frame().size() - 1);
  PageRead read = {.key = pages[0].key(), .frame = shorter};
  store.read({&read, 1}, 0);
  EXPECT_EQ(read.verdict, PageVerdict::kMissing);
}

TEST_F(MemoryPageStoreTest, OnlyTheVeryBytesThatWereWrongAreRemoved) {
  ASSERT_THAT(write(0, 4), Each(kDone));
  std::vector<std::byte> other(pages[1].frame().begin(), pages[1].frame().end());
  other.back() ^= std::byte{1};
  remove(1, other);
  EXPECT_TRUE(has(1)) << "it has been written anew since";
  remove(1, pages[1].frame());
  EXPECT_THAT(had(), ElementsAre(0, 2, 3));
  EXPECT_EQ(store.usage().bytes, 3 * frame_size());
  EXPECT_THAT(write(1, 1), Each(kDone));
  EXPECT_THAT(had(), ElementsAre(0, 1, 2, 3)) << "there was room";
}

TEST_F(MemoryPageStoreTest, APurgeMakesRoomAndForgetsTheirUses) {
  ASSERT_THAT(write(0, 4), Each(kDone));
  const std::array families = {family_of(pages[0].identity().namespace_digest)};
  EXPECT_EQ(store.purge_behind(families, 2, 0).pages, 2);
  EXPECT_THAT(had(), ElementsAre(0, 1));
  EXPECT_EQ(store.usage().bytes, 2 * frame_size());
  EXPECT_THAT(write(4, 4), Each(kDone));
  EXPECT_THAT(had(), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(write(0, 1), Each(kDone));
  EXPECT_THAT(had(), ElementsAre(0, 5, 6, 7)) << "what was purged is not what goes next";
  EXPECT_EQ(store.purge_behind({}, 5, 0).pages, 3) << "everybody's";
  EXPECT_THAT(had(), ElementsAre(0));
  EXPECT_EQ(store.purge({}, 0).pages, 1);
  EXPECT_EQ(store.usage().bytes, 0);
}

}  // namespace
}  // namespace stemma
