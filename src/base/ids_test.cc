// Ids: explicit, ordered, invalid by default, and readable by kernels as plain integers.
#include "stemma/ids.h"

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace stemma {
namespace {

static_assert(!std::is_convertible_v<int, PageId>, "an id is made on purpose");
static_assert(!std::is_convertible_v<PageId, int>, "an id is read on purpose");
static_assert(!std::is_constructible_v<PageId, RowId>, "ids of two kinds never mix");
static_assert(sizeof(PageId) == 4 && std::is_trivially_copyable_v<PageId>);

TEST(StrongId, IsInvalidByDefault) {
  EXPECT_FALSE(PageId().valid());
  EXPECT_TRUE(PageId(0).valid());
}

TEST(StrongId, IsOrderedHashableAndPrintable) {
  EXPECT_LT(PageId(1), PageId(2));
  const std::unordered_set<PageId> set = {PageId(1), PageId(1), PageId(2)};
  EXPECT_EQ(set.size(), 2u);
  std::ostringstream out;
  out << NodeId(42);
  EXPECT_EQ(out.str(), "42");
}

TEST(StrongId, RangesIterate) {
  std::vector<PageId> pages;
  for (const PageId page : id_range(PageId(3), 2)) pages.push_back(page);
  EXPECT_EQ(pages, (std::vector<PageId>{PageId(3), PageId(4)}));
}

TEST(StrongId, KernelsReadPlainIntegers) {
  const std::vector<PageId> pages = {PageId(7), PageId(9)};
  EXPECT_EQ(raw(std::span<const PageId>(pages))[1], 9);
}

}  // namespace
}  // namespace stemma
