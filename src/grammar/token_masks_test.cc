#include "grammar/token_masks.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

TEST(TokenMasks, HasOneListAState) {
  TokenMasks masks;
  EXPECT_EQ(masks.find_or_null(3), nullptr);
  TokenMask& mask = masks.add(3, {5});
  EXPECT_EQ(masks.find_or_null(3), &mask);
  EXPECT_EQ(masks.find_or_null(4), nullptr);
}

TEST(TokenMasks, LetsGoOfListsThatNobodyHolds) {
  TokenMasks masks;
  TokenMask& held = masks.add(0, {7});
  TokenMasks::hold(held);
  for (ByteAutomaton::State state = 1; state < 2'000; ++state) masks.add(state, {1});
  EXPECT_LE(masks.size(), TokenMasks::kKnownMax + 1);
  EXPECT_EQ(masks.find_or_null(0), &held);
}

TEST(TokenMasks, KeepsWhatIsHeldThoughStatesAreForgotten) {
  TokenMasks masks;
  TokenMask& held = masks.add(1, {7});
  masks.add(2, {8});
  TokenMasks::hold(held);
  TokenMasks::hold(held);
  masks.forget_states();
  EXPECT_EQ(masks.find_or_null(1), nullptr);
  EXPECT_EQ(held.words.front(), 7U);
  EXPECT_EQ(masks.size(), 1U);
  masks.let_go(held);
  EXPECT_EQ(masks.size(), 1U);
  masks.let_go(held);
  EXPECT_EQ(masks.size(), 0U);
}

}  // namespace
}  // namespace stemma
