// PageArena: tokens and ids survive every cut, growth and removal, however broken up the arena is.
#include "prefix/page_arena.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

// A chain and what it should hold.
struct Twin {
  PageChain chain;
  std::vector<TokenId> tokens;
  std::vector<PageId> ids;
};

class PageArenaTest : public testing::Test {
 protected:
  void make(std::int64_t pages, std::int64_t page_size) {
    allocator_ = std::make_unique<PageAllocator>(pages);
    arena_ = std::make_unique<PageArena>(pages, page_size);
  }

  void append(Twin& twin, std::int64_t pages) {
    OwnedPages owned = *allocator_->try_allocate(pages);
    std::vector<PageId> ids(static_cast<std::size_t>(pages));
    owned.copy_to(ids);
    std::vector<TokenId> tokens;
    for (std::int64_t i = 0; i < pages * arena_->page_size(); ++i) tokens.push_back(next_token_++);
    arena_->append(twin.chain, tokens, std::move(owned));
    twin.tokens.insert(twin.tokens.end(), tokens.begin(), tokens.end());
    twin.ids.insert(twin.ids.end(), ids.begin(), ids.end());
  }

  void take_back(Twin& twin, std::int64_t pages) {
    std::vector<PageId> ids(static_cast<std::size_t>(pages));
    arena_->take_back(twin.chain, ids);
    EXPECT_EQ(ids, std::vector<PageId>(twin.ids.end() - pages, twin.ids.end()));
    allocator_->adopt(ids).reset();
    twin.ids.resize(twin.ids.size() - static_cast<std::size_t>(pages));
    twin.tokens.resize(twin.ids.size() * static_cast<std::size_t>(arena_->page_size()));
  }

  Twin take_front(Twin& twin, std::int64_t pages) {
    Twin front;
    front.chain = arena_->take_front(twin.chain, pages);
    front.ids.assign(twin.ids.begin(), twin.ids.begin() + pages);
    twin.ids.erase(twin.ids.begin(), twin.ids.begin() + pages);
    const auto tokens = pages * arena_->page_size();
    front.tokens.assign(twin.tokens.begin(), twin.tokens.begin() + tokens);
    twin.tokens.erase(twin.tokens.begin(), twin.tokens.begin() + tokens);
    return front;
  }

  void expect_holds(const Twin& twin) {
    ASSERT_EQ(arena_->audit_chain(twin.chain), std::nullopt);
    ASSERT_EQ(twin.chain.pages, static_cast<std::int64_t>(twin.ids.size()));
    std::vector<PageId> ids(twin.ids.size());
    EXPECT_EQ(arena_->copy_ids(twin.chain, 0, ids), twin.chain.pages);
    EXPECT_EQ(ids, twin.ids);
    EXPECT_EQ(arena_->common_pages(twin.chain, twin.tokens), twin.chain.pages);
  }

  static std::int64_t runs(const PageArena& arena, const PageChain& chain) {
    std::int64_t count = 0;
    arena.for_each_run(chain, [&](UnitId, std::int64_t) { ++count; });
    return count;
  }

  std::unique_ptr<PageAllocator> allocator_;
  std::unique_ptr<PageArena> arena_;
  TokenId next_token_ = 0;
};

TEST_F(PageArenaTest, AChainGrowsInOneRunWhileTheUnitsBehindItAreUnused) {
  make(64, 4);
  Twin twin;
  for (int i = 0; i < 4; ++i) append(twin, 5);
  EXPECT_EQ(runs(*arena_, twin.chain), 1);
  expect_holds(twin);
  take_back(twin, 20);
  EXPECT_EQ(arena_->used_pages(), 0);
}

TEST_F(PageArenaTest, TwoGrowingChainsTakeTurnsAndKeepTheirOrder) {
  make(64, 2);
  Twin first;
  Twin second;
  for (int i = 0; i < 4; ++i) {
    append(first, 3);
    append(second, 3);
  }
  EXPECT_GT(runs(*arena_, first.chain), 1);
  expect_holds(first);
  expect_holds(second);
  take_back(first, 12);
  take_back(second, 12);
}

TEST_F(PageArenaTest, CommonPagesAreCountedAcrossRunsAndStopAtTheFirstDifference) {
  make(4096, 2);
  Twin twin;
  Twin other;
  for (int i = 0; i < 3; ++i) {  // runs of 700 pages: longer than what is compared at once
    append(twin, 700);
    append(other, 1);
  }
  EXPECT_EQ(runs(*arena_, twin.chain), 3);
  for (const std::size_t differs : {0u, 1u, 2u, 1023u, 1024u, 1399u, 1400u, 2801u, 4199u}) {
    std::vector<TokenId> tokens = twin.tokens;
    tokens[differs] = -1;
    EXPECT_EQ(arena_->common_pages(twin.chain, tokens), static_cast<std::int64_t>(differs / 2));
  }
  for (const std::size_t length : {0u, 1u, 2u, 3u, 2048u, 4199u}) {
    const std::span<const TokenId> shorter(twin.tokens.data(), length);
    EXPECT_EQ(arena_->common_pages(twin.chain, shorter), static_cast<std::int64_t>(length / 2));
  }
  take_back(twin, 2100);
  take_back(other, 3);
}

TEST_F(PageArenaTest, ACutAtEveryPageMovesNothing) {
  make(64, 2);
  for (std::int64_t cut = 1; cut < 12; ++cut) {
    Twin twin;
    Twin other;
    for (int i = 0; i < 3; ++i) {
      append(twin, 4);
      append(other, 1);
    }
    Twin front = take_front(twin, cut);
    expect_holds(front);
    expect_holds(twin);
    append(front, 2);
    expect_holds(front);
    for (Twin* each : {&front, &twin, &other}) take_back(*each, each->chain.pages);
    ASSERT_EQ(arena_->audit(), std::nullopt);
  }
}

TEST_F(PageArenaTest, IdsAreCopiedFromTheMiddle) {
  make(64, 1);
  Twin twin;
  Twin other;
  for (int i = 0; i < 3; ++i) {
    append(twin, 4);
    append(other, 1);
  }
  for (std::int64_t skip = 0; skip <= 12; ++skip) {
    std::vector<PageId> ids(static_cast<std::size_t>(12 - skip));
    EXPECT_EQ(arena_->copy_ids(twin.chain, skip, ids), 12 - skip);
    EXPECT_EQ(ids, std::vector<PageId>(twin.ids.begin() + skip, twin.ids.end()));
  }
  take_back(twin, 12);
  take_back(other, 3);
}

TEST_F(PageArenaTest, RandomChainsFillTheArenaToItsLastPage) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    make(97, 3);
    Prng random(seed);
    std::vector<Twin> twins(6);
    for (int i = 0; i < 3000; ++i) {
      Twin& twin = twins[static_cast<std::size_t>(random.below(6))];
      switch (random.below(3)) {
        case 0:
          append(twin, random.below(allocator_->free_pages() + 1));
          break;
        case 1:
          take_back(twin, random.below(twin.chain.pages + 1));
          break;
        default:
          Twin& target = twins[static_cast<std::size_t>(random.below(6))];
          if (twin.chain.pages < 2 || target.chain.pages > 0) break;
          Twin front = take_front(twin, 1 + random.below(twin.chain.pages - 1));
          target = std::move(front);
      }
      ASSERT_EQ(arena_->audit(), std::nullopt);
      for (const Twin& each : twins) expect_holds(each);
    }
    for (Twin& twin : twins) take_back(twin, twin.chain.pages);
    EXPECT_EQ(arena_->used_pages(), 0);
  }
}

// 16 bytes a page and 4 a token, for a quarter more units than pages, and a bit for each.
TEST_F(PageArenaTest, MemoryIsBoundedByThePages) {
  const PageArena arena(1'000'000, 16);
  EXPECT_EQ(arena.reserved_bytes(), 1'250'000 * (16 * 4 + 16) + 1'250'000 / 64 * 8 + 8);
}

TEST_F(PageArenaTest, BrokenPreconditionsStopTheProgram) {
  make(4, 2);
  Twin twin;
  append(twin, 3);
  EXPECT_DEATH(arena_->take_front(twin.chain, 3), "both sides");
  EXPECT_DEATH(arena_->take_front(twin.chain, 0), "both sides");
  std::vector<PageId> ids(4);
  EXPECT_DEATH(arena_->take_back(twin.chain, ids), "taken");
  const std::vector<TokenId> tokens(5);
  EXPECT_DEATH(arena_->append(twin.chain, tokens, *allocator_->try_allocate(1)), "size");
  take_back(twin, 3);
}

}  // namespace
}  // namespace stemma
