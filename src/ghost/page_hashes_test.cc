// PageHashes: one name for each full page, of everything up to its end.
#include "ghost/page_hashes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace stemma {
namespace {

using Hashes = std::vector<std::int64_t>;

Hashes hashes_of(const std::vector<TokenId>& tokens, std::int64_t namespace_id = 0) {
  Hashes hashes = {7};  // is replaced
  hash_pages(namespace_id, tokens, 2, hashes);
  return hashes;
}

TEST(PageHashes, NameFullPages) {
  EXPECT_EQ(hashes_of({1, 2, 3, 4, 5}).size(), 2u);
  EXPECT_TRUE(hashes_of({1}).empty());
}

TEST(PageHashes, AreChained) {
  EXPECT_EQ(hashes_of({1, 2, 3, 4})[0], hashes_of({1, 2, 9, 9})[0]);
  EXPECT_NE(hashes_of({1, 2, 3, 4})[1], hashes_of({2, 1, 3, 4})[1]);
  EXPECT_NE(hashes_of({5, 5, 5, 5})[0], hashes_of({5, 5, 5, 5})[1]);
}

TEST(PageHashes, DependOnThePlaceOfEveryToken) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5};
  std::vector<TokenId> order = {0, 1, 2, 3, 4};
  std::set<std::int64_t> seen;
  do {
    std::vector<TokenId> moved;
    for (const TokenId place : order) moved.push_back(tokens[static_cast<std::size_t>(place)]);
    Hashes hashes;
    hash_pages(0, moved, 5, hashes);
    ASSERT_EQ(hashes.size(), 1u);
    seen.insert(hashes[0]);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(seen.size(), 120u);
}

TEST(PageHashes, OfNamespacesDiffer) {
  EXPECT_NE(hashes_of({1, 2}, 0), hashes_of({1, 2}, 1));
}

TEST(PageHashes, OfDifferentPagesDiffer) {
  std::set<std::int64_t> seen;
  for (TokenId first = 0; first < 300; ++first) {
    for (TokenId second = 0; second < 300; ++second) seen.insert(hashes_of({first, second})[0]);
  }
  EXPECT_EQ(seen.size(), 300u * 300u);
}

}  // namespace
}  // namespace stemma
