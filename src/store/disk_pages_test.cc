// What the disk holds, beside a plain list of the same: which slabs are in use and what lies in
// them, and all pages a piece at a time.
#include "store/disk_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/prng.h"
#include "prefix/namespace_examples.h"

namespace stemma {
namespace {

IndexedPage page_of(std::int64_t number, std::uint8_t owner, SlotRef slot) {
  IndexedPage page = {.key = {}, .namespace_digest = digest_of(owner), .slot = slot};
  for (std::size_t i = 0; i < 8; ++i) {
    page.key.bytes[i] = static_cast<std::uint8_t>(number >> (8 * i));
  }
  return page;
}

std::int64_t insert_many(DiskPages& pages, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const SlotRef slot = {static_cast<std::int32_t>(i / 100), static_cast<std::int32_t>(i % 100)};
    pages.insert(page_of(i, 1, slot), 512, DiskPages::Warmth::kUsed);
  }
  return count;
}

// A random life of pages in 4 slabs of 8 slots, and what is to be said of it.
class DiskPagesLife : public testing::Test {
 protected:
  static constexpr std::int32_t kSlabs = 4;

  void step() {
    const auto owner = static_cast<std::uint8_t>(prng_.below(5));
    const SlotRef slot = {static_cast<std::int32_t>(prng_.below(kSlabs)),
                          static_cast<std::int32_t>(prng_.below(8))};
    const auto held = at_.find(slot);
    if (prng_.below(40) == 0) {
      pages_.make_current(digest_of(owner));
      current_.insert(owner);
    } else if (held == at_.end()) {
      at_[slot] = page_of(next_, owner, slot);
      pages_.insert(at_[slot], 512, DiskPages::Warmth::kUsed);
      ++next_;
    } else if (prng_.below(40) == 0) {
      pages_.touch(*pages_.find_or_null(held->second.key));
      current_.insert(held->second.namespace_digest.bytes[0]);
    } else {
      forget_current_without_pages(held->second);
      pages_.erase(*pages_.find_or_null(held->second.key));
      at_.erase(held);
    }
  }

  // A namespace that nobody described goes with its last page.
  void forget_current_without_pages(const IndexedPage& last) {
    const auto of_owner = std::ranges::count_if(at_, [&](const auto& entry) {
      return entry.second.namespace_digest == last.namespace_digest;
    });
    if (of_owner == 1) current_.erase(last.namespace_digest.bytes[0]);
  }

  void expect_slab(std::int32_t slab) {
    std::set<SlotRef> slots;
    bool in_use = false;
    for (const auto& [slot, page] : at_) {
      if (slot.slab != slab) continue;
      slots.insert(slot);
      in_use |= current_.contains(page.namespace_digest.bytes[0]);
    }
    std::set<SlotRef> found;
    for (const DiskPages::Page* const page : pages_.pages_of_slab(slab)) found.insert(page->slot);
    EXPECT_EQ(found, slots);
    EXPECT_EQ(pages_.slab_is_in_use(slab), in_use);
  }

 private:
  Prng prng_{31};
  DiskPages pages_;
  std::map<SlotRef, IndexedPage> at_;
  std::set<std::uint8_t> current_;
  std::int64_t next_ = 0;
};

TEST_F(DiskPagesLife, ASlabIsInUseWhileItHoldsAPageOfACurrentNamespace) {
  for (int i = 0; i < 5000; ++i) {
    step();
    for (std::int32_t slab = 0; slab < kSlabs; ++slab) expect_slab(slab);
  }
}

// However many there are: so long is the store's mutex held.
TEST(DiskPages, AreVisitedAPieceAtATime) {
  DiskPages pages;
  const std::int64_t count = insert_many(pages, 20'000);
  std::set<PageKey> seen;
  std::size_t bucket = 0;
  do {
    std::int64_t visited = 0;
    bucket = pages.visit_some(bucket, 100, [&](const DiskPages::Page& page) {
      EXPECT_TRUE(seen.insert(page.key).second);
      ++visited;
    });
    EXPECT_LE(visited, 100 + 20) << "a bucket is not left half seen";
  } while (bucket != 0);
  EXPECT_EQ(std::ssize(seen), count);
}

TEST(DiskPages, ThatGoBetweenTwoPiecesTakeNoOthersWithThem) {
  DiskPages pages;
  const std::int64_t count = insert_many(pages, 2000);
  std::set<PageKey> seen;
  std::size_t bucket = 0;
  for (std::int64_t i = 0; i == 0 || bucket != 0; ++i) {
    bucket =
        pages.visit_some(bucket, 50, [&](const DiskPages::Page& page) { seen.insert(page.key); });
    const PageKey gone = page_of(i, 1, {}).key;
    pages.erase(*pages.find_or_null(gone));
    seen.insert(gone);
  }
  EXPECT_EQ(std::ssize(seen), count);
}

// However many lay there at opening: so long is the store's mutex held.
TEST(DiskPages, OfCurrentNamespacesArePassedOverAFewAtATime) {
  DiskPages pages;
  for (std::int32_t i = 0; i < 100; ++i) {
    const int owner = i == 99 ? 2 : 1;
    pages.insert(page_of(i, static_cast<std::uint8_t>(owner), {0, i}), 512,
                 DiskPages::Warmth::kLoaded);
  }
  pages.make_current(digest_of(1));
  const auto passed_over = [&pages] {
    std::int64_t passed = 0;
    for (std::int32_t i = 0; i < 100; ++i) {
      const DiskPages::Page* const page = pages.find_or_null(page_of(i, 1, {}).key);
      passed += page->warmth == DiskPages::Warmth::kOld ? 1 : 0;
    }
    return passed;
  };
  EXPECT_TRUE(pages.pass_over_some(512, 40));
  EXPECT_EQ(passed_over(), 40);
  EXPECT_TRUE(pages.pass_over_some(512, 40));
  EXPECT_FALSE(pages.pass_over_some(512, 40)) << "the next one is another's";
  EXPECT_EQ(passed_over(), 99);
  EXPECT_EQ(pages.coldest_or_null(512)->key, page_of(99, 2, {}).key);
  EXPECT_FALSE(pages.pass_over_some(4096, 40)) << "none has that size";
}

// Two namespaces in slabs 0 to 3, a third in slab 3 alone, and holes.
void insert_in_slabs(DiskPages& pages) {
  for (std::int32_t i = 0; i < 400; ++i) {
    const SlotRef slot = {i / 100, 2 * (i % 100)};
    const int owner = i >= 390 ? 3 : 1 + i % 2;
    pages.insert(page_of(i, static_cast<std::uint8_t>(owner), slot), 512, DiskPages::Warmth::kUsed);
  }
}

TEST(DiskPages, KnowInWhichSlabsANamespaceHasSome) {
  DiskPages pages;
  insert_in_slabs(pages);
  const auto slabs_of = [&pages](std::vector<int> owners) {
    std::vector<NamespaceFamily> families;
    for (const int owner : owners) families.push_back(family_of(digest_of(owner)));
    return pages.slabs_of(families);
  };
  using Slabs = std::set<std::int32_t>;
  EXPECT_EQ(slabs_of({3}), (Slabs{3}));
  EXPECT_EQ(slabs_of({3, 1}), (Slabs{0, 1, 2, 3}));
  EXPECT_EQ(slabs_of({0}), Slabs());
  EXPECT_EQ(slabs_of({}), (Slabs{0, 1, 2, 3})) << "of none is of all";
  for (std::int32_t i = 390; i < 400; ++i) pages.erase(*pages.find_or_null(page_of(i, 3, {}).key));
  EXPECT_EQ(slabs_of({3}), Slabs());
}

TEST(DiskPages, OfASlabAreVisitedAFewSlotsAtATime) {
  DiskPages pages;
  insert_in_slabs(pages);
  std::vector<std::int32_t> seen;
  std::int32_t slot = 0;
  do {
    const std::size_t before = seen.size();
    slot = pages.visit_slots(2, slot, 16,
                             [&](const DiskPages::Page& page) { seen.push_back(page.slot.slot); });
    EXPECT_LE(seen.size() - before, 8u) << "every other slot has a page";
  } while (slot != 0);
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_EQ(pages.visit_slots(7, 0, 16, [](const DiskPages::Page&) { FAIL(); }), 0) << "no slab";
}

}  // namespace
}  // namespace stemma
