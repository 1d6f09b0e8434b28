// Debts of nodes: who is owed what, in which order, and what becomes of it where nodes are cut.
#include "prefix/page_debts.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma {
namespace {

class PageDebtsTest : public ::testing::Test {
 protected:
  ~PageDebtsTest() override { EXPECT_EQ(debts.audit(), std::nullopt); }

  // What a creditor takes until nothing is left, by node.
  std::vector<int> take_all(std::int64_t creditor) {
    std::vector<int> nodes;
    for (NodeSlot at = debts.oldest_or_none(creditor); at.valid();
         at = debts.oldest_or_none(creditor)) {
      nodes.push_back(at.value());
      debts.take(at, creditor);
    }
    return nodes;
  }

  PageDebts debts{100, 2};
  NodeSlot a{1};
  NodeSlot b{2};
  NodeSlot c{3};
};

TEST_F(PageDebtsTest, NothingIsOwedAtFirst) {
  EXPECT_FALSE(debts.any());
  EXPECT_FALSE(debts.oldest_or_none(0).valid());
  EXPECT_TRUE(debts.of(a, 1).empty());
}

TEST_F(PageDebtsTest, EachCreditorTakesTheOldestFirst) {
  debts.owe(c, 0, {0, 1});
  debts.owe(a, 0, {2, 4});
  debts.owe(b, 0, {0, 1});
  debts.owe(b, 1, {0, 3});
  EXPECT_EQ(debts.owed_pages(0), 4);
  EXPECT_EQ(debts.owed_pages(1), 3);
  EXPECT_EQ(debts.owed_pages(), 7);
  EXPECT_EQ(debts.of(a, 0), (PageStretch{2, 4}));
  EXPECT_EQ(take_all(0), (std::vector{3, 1, 2}));
  EXPECT_EQ(take_all(1), (std::vector{2}));
  EXPECT_FALSE(debts.any());
  EXPECT_EQ(debts.written_off_pages(), 0);
}

TEST_F(PageDebtsTest, MoreOfANodeKeepsItsPlace) {
  debts.owe(a, 0, {4, 5});
  debts.owe(b, 0, {0, 1});
  debts.owe(a, 0, {1, 2});
  EXPECT_EQ(debts.of(a, 0), (PageStretch{1, 5})) << "what is between too";
  EXPECT_EQ(debts.owed_pages(), 5);
  EXPECT_EQ(take_all(0), (std::vector{1, 2}));
}

TEST_F(PageDebtsTest, OneInTheMiddleOfAQueueMayBeTaken) {
  for (const NodeSlot node : {a, b, c}) debts.owe(node, 0, {0, 1});
  debts.take(b, 0);
  EXPECT_EQ(debts.audit(), std::nullopt);
  debts.owe(b, 0, {0, 1});
  EXPECT_EQ(take_all(0), (std::vector{1, 3, 2}));
}

TEST_F(PageDebtsTest, ASplitDividesWhatIsOwed) {
  debts.owe(a, 0, {1, 5});
  debts.owe(a, 1, {3, 5});
  debts.split(a, b, 3);
  EXPECT_EQ(debts.of(b, 0), (PageStretch{1, 3}));
  EXPECT_EQ(debts.of(a, 0), (PageStretch{0, 2}));
  EXPECT_TRUE(debts.of(b, 1).empty());
  EXPECT_EQ(debts.of(a, 1), (PageStretch{0, 2}));
  EXPECT_EQ(debts.owed_pages(), 6);
  debts.take(a, 0);
  debts.split(b, c, 3);
  EXPECT_TRUE(debts.of(b, 0).empty()) << "all of it lay before";
  EXPECT_EQ(debts.of(c, 0), (PageStretch{1, 3}));
}

TEST_F(PageDebtsTest, WhatIsCutIsWrittenOff) {
  debts.owe(a, 0, {1, 5});
  debts.owe(a, 1, {4, 5});
  debts.cut(a, 3);
  EXPECT_EQ(debts.of(a, 0), (PageStretch{1, 3}));
  EXPECT_TRUE(debts.of(a, 1).empty());
  EXPECT_EQ(debts.written_off_pages(), 3);
  EXPECT_EQ(debts.owed_pages(), 2);
  debts.cut(a, 0);
  EXPECT_FALSE(debts.any());
  EXPECT_EQ(debts.written_off_pages(), 5);
}

}  // namespace
}  // namespace stemma
