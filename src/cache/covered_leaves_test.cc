#include "cache/covered_leaves.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

TEST(CoveredLeaves, KnowWhatWasSeenUntilSomethingIsLost) {
  CoveredLeaves leaves;
  EXPECT_FALSE(leaves.knows(NodeId(7), 64, 0));
  leaves.note(NodeId(7), 64, 0);
  EXPECT_TRUE(leaves.knows(NodeId(7), 64, 0));
  EXPECT_FALSE(leaves.knows(NodeId(7), 80, 0)) << "it has grown";
  EXPECT_FALSE(leaves.knows(NodeId(7), 64, 1)) << "host memory has lost pages since";
  EXPECT_FALSE(leaves.knows(NodeId(8), 64, 0));
}

TEST(CoveredLeaves, OneThatTakesAnothersPlaceIsKnownInstead) {
  CoveredLeaves leaves;
  const NodeId other(7 + static_cast<std::int64_t>(CoveredLeaves::kPlaces));
  leaves.note(NodeId(7), 64, 0);
  leaves.note(other, 16, 0);
  EXPECT_TRUE(leaves.knows(other, 16, 0));
  EXPECT_FALSE(leaves.knows(NodeId(7), 64, 0));
}

}  // namespace
}  // namespace stemma
