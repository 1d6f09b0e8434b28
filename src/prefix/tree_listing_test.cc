// What people are shown of a tree: the hottest nodes first, each after its parent, and the text of
// one.
#include "prefix/tree_listing.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <set>

#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

TEST(TreeListing, AnEmptyTreeHasNoNodes) {
  const PrefixFixture f;
  const TreeListing listing = f.cache->hottest_nodes(10);
  EXPECT_TRUE(listing.nodes.empty());
  EXPECT_EQ(listing.total_nodes, 0);
  EXPECT_EQ(f.cache->try_text(NodeId(0)), std::nullopt) << "a root has no text";
  EXPECT_EQ(f.cache->try_text(NodeId(99)), std::nullopt);
}

TEST(TreeListing, TheHottestComeFirstAndEachAfterItsParent) {
  PrefixFixture f({.page_size = 2});
  f.add(counted(1, 8));
  f.add({1, 2, 9, 10});
  f.add({50, 51});
  for (int i = 0; i < 3; ++i) f.touch({1, 2, 9, 10});
  const PrefixLock held = f.cache->match(f.ns, counted(1, 8));
  const TreeListing listing = f.cache->hottest_nodes(10);
  ASSERT_EQ(listing.nodes.size(), 4u);
  EXPECT_EQ(listing.total_nodes, 4);
  const TreeNode& top = listing.nodes[0];
  EXPECT_EQ(top.parent, NodeId());
  EXPECT_EQ(top.digest, digest_of(0));
  EXPECT_EQ(top.tokens, 2);
  EXPECT_EQ(top.children, 2);
  EXPECT_EQ(top.lock_count, 1);
  EXPECT_EQ(top.uses_ago, 0);
  const TreeNode& branch = listing.nodes[1];
  EXPECT_EQ(branch.parent, top.id);
  EXPECT_EQ(branch.start_tokens, 2);
  EXPECT_EQ(branch.tokens, 2);
  EXPECT_GE(branch.hits, 3);
  EXPECT_GT(branch.uses_ago, 0);
  EXPECT_EQ(listing.nodes[3].hits, 0) << "{50, 51} was never found again";
  EXPECT_EQ(f.cache->hottest_nodes(2).nodes[1].id, branch.id);
  EXPECT_EQ(f.cache->hottest_nodes(2).total_nodes, 4);
}

// Several namespaces, and nodes of which many are as hot as others.
TEST(TreeListing, FewAreTheFirstOfAll) {
  PrefixFixture f({.page_size = 2, .pages = 400});
  Prng random(20262);
  const NamespaceId spaces[] = {f.ns, *f.cache->try_open_namespace(digest_of(1))};
  for (int i = 0; i < 150; ++i) {
    const Tokens text = Tokens{static_cast<TokenId>(random.below(40)), 7} + drawn_text(random);
    f.begin_in(spaces[random.below(2)], text).reset();
  }
  const TreeListing all = f.cache->hottest_nodes(1'000);
  ASSERT_EQ(std::ssize(all.nodes), all.total_nodes);
  ASSERT_GT(all.total_nodes, 100);
  for (const std::int64_t few : {0, 1, 2, 3, 7, 20, 50, 99}) {
    const TreeListing listing = f.cache->hottest_nodes(few);
    ASSERT_EQ(std::ssize(listing.nodes), few);
    EXPECT_EQ(listing.total_nodes, all.total_nodes);
    for (std::size_t i = 0; i < listing.nodes.size(); ++i) {
      EXPECT_EQ(listing.nodes[i].id, all.nodes[i].id);
    }
  }
}

TEST(TreeListing, ANodesTextBeginsWithItsParents) {
  PrefixFixture f;
  f.add(counted(1, 4));
  f.add({1, 2, 9});
  const TreeListing listing = f.cache->hottest_nodes(10);
  std::set<Tokens> texts;
  for (const TreeNode& node : listing.nodes) {
    const auto text = f.cache->try_text(node.id);
    ASSERT_TRUE(text.has_value());
    EXPECT_EQ(text->start_tokens, node.start_tokens);
    EXPECT_EQ(std::ssize(text->tokens), node.start_tokens + node.tokens);
    const TextEnd end = f.cache->probe_by_digest(text->digest, text->tokens);
    EXPECT_EQ(end.matched_tokens, std::ssize(text->tokens));
    EXPECT_EQ(end.node, node.id);
    EXPECT_EQ(f.cache->probe_by_digest(digest_of(7), text->tokens).node, NodeId());
    texts.insert(text->tokens);
  }
  EXPECT_THAT(texts, testing::ElementsAre(Tokens{1, 2}, Tokens{1, 2, 3, 4}, Tokens{1, 2, 9}));
}

TEST(TreeListing, SaysHowMuchOfANodeAnotherTreeHas) {
  PrefixFixture f;
  PrefixFixture other;
  f.add(counted(1, 6));
  f.add({1, 2, 9});
  other.add({1, 2, 3, 4});
  other.add({1, 2, 3, 4, 70});
  const TreeListing listing = f.cache->hottest_nodes(10, other.cache.get());
  ASSERT_EQ(listing.nodes.size(), 3u);
  const TreeListing there = other.cache->hottest_nodes(10);
  for (const TreeNode& node : listing.nodes) {
    EXPECT_EQ(node.twin, there.nodes[0].id) << "all of them begin with 1 2";
    EXPECT_EQ(node.twin_tokens, node.start_tokens == 0 ? 2 : node.tokens == 4 ? 2 : 0);
  }
}

// Whatever happened to a tree, what is shown of it is closed upwards and adds up.
TEST(TreeListing, AgreesWithTheTreeAfterARandomLife) {
  const std::uint64_t seed = 20261122;
  SCOPED_TRACE(seed);
  Prng prng(seed);
  PrefixFixture f({.page_size = 2, .pages = 40});
  for (int round = 0; round < 300; ++round) {
    f.add(drawn_text(prng));
    const TreeListing all = f.cache->hottest_nodes(1000);
    EXPECT_EQ(std::ssize(all.nodes), all.total_nodes);
    std::int64_t tokens = 0;
    std::set<NodeId> seen = {NodeId()};
    for (const TreeNode& node : all.nodes) {
      EXPECT_TRUE(seen.contains(node.parent));
      seen.insert(node.id);
      tokens += node.tokens;
    }
    EXPECT_EQ(tokens, f.cache->usage().total_tokens());
  }
}

}  // namespace
}  // namespace stemma
