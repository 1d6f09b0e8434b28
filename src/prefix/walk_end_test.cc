// Where a walk ended is believed only as long as another one would end there.
#include "prefix/walk_end.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"
#include "prefix/prefix_fixture.h"
#include "prefix/random_life.h"

namespace stemma {
namespace {

Tokens drawn_text(Prng& prng, std::int64_t page_size) {
  Tokens tokens;
  for (std::int64_t page = prng.below(7); page >= 0; --page) {
    tokens.insert(tokens.end(), static_cast<std::size_t>(page_size - 1), 7);
    tokens.push_back(static_cast<TokenId>(prng.below(3)));
  }
  return tokens;
}

// A text that is asked for again and again, in the namespace that is the space's at the time.
struct Watched {
  std::size_t space = 0;
  Tokens tokens;
  WalkEnd end;
};

class RandomWalkEnds : public ::testing::TestWithParam<int> {};

// Hashes of few bits collide.
TEST_P(RandomWalkEnds, AreThoseOfWalksDoneAnew) {
  constexpr std::uint64_t kSeed = 31;
  SCOPED_TRACE(kSeed);
  for (const std::int64_t page_size : {1, 2, 5}) {
    RandomLife life({.page_size = page_size, .pages = 90, .hash_bits = GetParam()}, kSeed);
    Prng prng(kSeed);
    std::vector<Watched> watched;
    for (int i = 0; i < 60; ++i) {
      watched.push_back({.space = static_cast<std::size_t>(prng.below(3)),
                         .tokens = drawn_text(prng, page_size),
                         .end = {}});
    }
    for (int operation = 0; operation < 4000; ++operation) {
      life.step();
      for (Watched& text : watched) {
        if (prng.below(4) == 0) continue;  // some lie for a while
        const NamespaceId ns = life.space(text.space);
        ASSERT_EQ(life.f.cache->probe_again(ns, text.tokens, text.end),
                  life.f.cache->probe(ns, text.tokens).matched_tokens)
            << "operation " << operation;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HashBits, RandomWalkEnds, ::testing::Values(32, 4));

// As many pages as before are not the same pages.
TEST(WalkEnd, ALeafThatShrankAndGrewIsLookedAtAnew) {
  PrefixFixture fixture({.page_size = 2, .pages = 8});
  fixture.add({1, 1, 2, 2, 3, 3});
  const Tokens asked = {1, 1, 2, 2, 4, 4};
  WalkEnd end;
  EXPECT_EQ(fixture.cache->probe_again(fixture.ns, asked, end), 4);
  fixture.evict(1);
  fixture.add({1, 1, 2, 2, 4, 4});
  EXPECT_EQ(fixture.cache->probe_again(fixture.ns, asked, end), 6);
}

TEST(WalkEnd, AnEmptyTreeIsLookedAtAgainWhenItHasChildren) {
  PrefixFixture fixture({.page_size = 2, .pages = 8});
  const Tokens asked = {1, 1, 2, 2};
  WalkEnd end;
  EXPECT_EQ(fixture.cache->probe_again(fixture.ns, asked, end), 0);
  fixture.add({5, 5});
  EXPECT_EQ(fixture.cache->probe_again(fixture.ns, asked, end), 0);
  fixture.add({1, 1});
  EXPECT_EQ(fixture.cache->probe_again(fixture.ns, asked, end), 2);
}

}  // namespace
}  // namespace stemma
