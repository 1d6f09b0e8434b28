// Covers RequestTable (rows all or none, a row kept over chunks), write_slots against the extend
// and decode allocation vectors of the field, and PageTableAssembly.
#include "alloc/request_table.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>

#include "base/math.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<PageId> page_ids(const std::vector<int>& values) {
  std::vector<PageId> ids;
  for (const int value : values) {
    ids.push_back(PageId(value));
  }
  return ids;
}

// One request of an extend: `prefix` tokens have slots, the last of them `last_slot`.
struct Extend {
  std::int64_t prefix = 0;
  std::int64_t tokens = 0;
  std::int64_t last_slot = -1;
};

constexpr std::int64_t kPageSize = 4;

// The slots that a request gets for tokens prefix … tokens−1 when `free` is handed out in order.
std::vector<std::int64_t> extend_slots(const Extend& extend, std::vector<int>& free) {
  RequestTable table({.rows = 1, .pages_max = 64});
  RequestRow row = *table.try_take();
  const std::int64_t held = ceil_div(extend.prefix, kPageSize);
  for (PageId& page : table.grow(row.id(), held)) {
    page = PageId(63);  // some page that no slot may come from, but for the last one:
  }
  if (held > 0) {
    table.pages(row.id()).back() = PageId(static_cast<int>(extend.last_slot / kPageSize));
  }
  const std::int64_t wanted = ceil_div(extend.tokens, kPageSize) - held;
  for (PageId& page : table.grow(row.id(), wanted)) {
    page = PageId(free.front());
    free.erase(free.begin());
  }
  std::vector<SlotId> slots(static_cast<std::size_t>(extend.tokens - extend.prefix));
  write_slots(std::as_const(table).pages(row.id()), kPageSize, extend.prefix, slots);
  std::vector<std::int64_t> values;
  for (const SlotId slot : slots) {
    values.push_back(slot.value());
  }
  return values;
}

std::vector<std::int64_t> extend_one(const Extend& extend, std::vector<int> free) {
  return extend_slots(extend, free);
}

TEST(RequestTable, HandsOutEveryRowOnceAndThenNone) {
  RequestTable table({.rows = 2, .pages_max = 3});
  RequestRow first = *table.try_take();
  RequestRow second = *table.try_take();
  EXPECT_NE(first.id(), second.id());
  EXPECT_FALSE(table.try_take().has_value());
  first.reset();
  EXPECT_EQ(table.free_rows(), 1);
  EXPECT_TRUE(table.try_take().has_value());
}

TEST(RequestTable, GivesRowsToAllOrToNone) {
  RequestTable table({.rows = 4, .pages_max = 1});
  std::array<RequestRow, 3> three;
  ASSERT_TRUE(table.try_take(three));
  std::array<RequestRow, 2> two;
  EXPECT_FALSE(table.try_take(two));
  EXPECT_FALSE(two[0].valid());
  EXPECT_EQ(table.free_rows(), 1);
}

TEST(RequestTable, AChunkedRequestKeepsItsRow) {
  RequestTable table({.rows = 2, .pages_max = 4});
  std::array<RequestRow, 2> rows;
  ASSERT_TRUE(table.try_take(rows));
  table.grow(rows[0].id(), 1)[0] = PageId(7);
  const RowId before = rows[0].id();
  ASSERT_TRUE(table.try_take(rows)) << "no free row is needed: both entries hold one";
  EXPECT_EQ(rows[0].id(), before);
  EXPECT_THAT(table.pages(before), ElementsAre(PageId(7)));
  EXPECT_EQ(table.free_rows(), 0);
}

TEST(RequestTable, ARowIsEmptyWhenItIsHandedOutAgain) {
  RequestTable table({.rows = 1, .pages_max = 4});
  {
    RequestRow row = *table.try_take();
    table.grow(row.id(), 4);
  }
  RequestRow row = *table.try_take();
  EXPECT_THAT(table.pages(row.id()), IsEmpty());
}

TEST(RequestTable, ARowForgetsItsLastPages) {
  RequestTable table({.rows = 1, .pages_max = 4});
  RequestRow row = *table.try_take();
  for (PageId& page : table.grow(row.id(), 3)) page = PageId(7);
  table.shrink(row.id(), 1);
  EXPECT_THAT(table.pages(row.id()), ElementsAre(PageId(7)));
  table.grow(row.id(), 1)[0] = PageId(9);
  EXPECT_THAT(table.pages(row.id()), ElementsAre(PageId(7), PageId(9)));
}

TEST(RequestTable, ReleaseAndAdoptHandARowOver) {
  RequestTable table({.rows = 1, .pages_max = 1});
  const RowId id = table.try_take()->release();
  EXPECT_EQ(table.free_rows(), 0);
  { RequestRow row = table.adopt(id); }
  EXPECT_EQ(table.free_rows(), 1);
}

TEST(RequestTableDeathTest, ARowThatIsNotHeldStopsTheProgram) {
  RequestTable table({.rows = 1, .pages_max = 1});
  EXPECT_DEATH({ RequestRow row = table.adopt(RowId(0)); }, "");
  RequestRow row = *table.try_take();
  EXPECT_DEATH(table.grow(row.id(), 2), "");
}

TEST(WriteSlots, ExtendFillsTheLastPageThenNewPages) {
  EXPECT_THAT(extend_one({.prefix = 2, .tokens = 4, .last_slot = 1}, {}), ElementsAre(2, 3));
  EXPECT_THAT(extend_one({.prefix = 0, .tokens = 8}, {5, 6}),
              ElementsAre(20, 21, 22, 23, 24, 25, 26, 27));
  EXPECT_THAT(extend_one({.prefix = 4, .tokens = 7, .last_slot = 3}, {3}), ElementsAre(12, 13, 14));
  EXPECT_THAT(extend_one({.prefix = 2, .tokens = 8, .last_slot = 1}, {3}),
              ElementsAre(2, 3, 12, 13, 14, 15));
  EXPECT_THAT(extend_one({.prefix = 2, .tokens = 7, .last_slot = 1}, {3}),
              ElementsAre(2, 3, 12, 13, 14));
  EXPECT_THAT(extend_one({.prefix = 4, .tokens = 11, .last_slot = 3}, {2, 3}),
              ElementsAre(8, 9, 10, 11, 12, 13, 14));
  EXPECT_THAT(extend_one({.prefix = 2, .tokens = 11, .last_slot = 1}, {3, 4}),
              ElementsAre(2, 3, 12, 13, 14, 15, 16, 17, 18));
  EXPECT_THAT(extend_one({.prefix = 4, .tokens = 4, .last_slot = 3}, {}), IsEmpty());
}

TEST(WriteSlots, RequestsOfOneExtendNeverShareASlot) {
  std::set<std::int64_t> slots;
  std::vector<int> free = {1, 2};
  for (int request = 0; request < 2; ++request) {
    for (const std::int64_t slot : extend_slots({.prefix = 0, .tokens = 4}, free)) {
      slots.insert(slot);
    }
  }
  EXPECT_EQ(slots.size(), 8u);

  slots.clear();
  free = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
  for (const Extend& extend : {Extend{0, 4, -1}, Extend{2, 6, 1}, Extend{4, 8, 3}}) {
    for (const std::int64_t slot : extend_slots(extend, free)) {
      slots.insert(slot);
    }
  }
  EXPECT_EQ(slots.size(), 12u);
}

TEST(WriteSlots, DecodeTakesANewPageOnlyWhenTheLastOneIsFull) {
  for (std::int64_t tokens = 1; tokens <= 13; ++tokens) {
    const bool new_page = (tokens - 1) % kPageSize == 0;
    const std::int64_t last_slot = tokens == 1 ? -1 : 5 * kPageSize + (tokens - 2) % kPageSize;
    std::vector<int> free = {9};
    const auto slots = extend_slots({tokens - 1, tokens, last_slot}, free);
    EXPECT_THAT(slots, ElementsAre(new_page ? 9 * kPageSize : last_slot + 1)) << tokens;
    EXPECT_EQ(free.empty(), new_page);
  }
}

TEST(PageTableAssembly, IsTheTripleOfTheField) {
  PageTableAssembly assembly({.requests_max = 3, .pages_max = 8, .page_size = 4});
  assembly.add(page_ids({4, 2, 9}), 9);
  assembly.add(page_ids({}), 0);
  assembly.add(page_ids({1, 3}), 4);
  const PageTableView view = assembly.view();
  EXPECT_THAT(view.indptr, ElementsAre(0, 3, 3, 4));
  EXPECT_THAT(view.pages, ElementsAre(PageId(4), PageId(2), PageId(9), PageId(1)));
  EXPECT_THAT(view.last_page_tokens, ElementsAre(1, 0, 4));
  EXPECT_EQ(view.tokens_of(0), 9);
  EXPECT_EQ(view.tokens_of(2), 4);
  EXPECT_EQ(view.slot(0, 8), SlotId(36));
  assembly.clear();
  EXPECT_EQ(assembly.view().requests(), 0);
}

TEST(PageTableAssembly, AnyPageSizeGivesTheSlotOfEveryPosition) {
  for (const std::int64_t page_size : {1, 3, 16, 64}) {
    PageTableAssembly assembly({.requests_max = 1, .pages_max = 200, .page_size = page_size});
    const std::int64_t tokens = 100;
    std::vector<PageId> pages;
    for (std::int64_t page = 0; page < ceil_div(tokens, page_size); ++page) {
      pages.push_back(PageId(static_cast<int>(500 - page)));
    }
    assembly.clear();
    assembly.add(pages, tokens);
    std::vector<SlotId> slots(static_cast<std::size_t>(tokens));
    write_slots(pages, page_size, 0, slots);
    for (std::int64_t position = 0; position < tokens; ++position) {
      EXPECT_EQ(assembly.view().slot(0, position), slots[static_cast<std::size_t>(position)]);
    }
  }
}

}  // namespace
}  // namespace stemma
