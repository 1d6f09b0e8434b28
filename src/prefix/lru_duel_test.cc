// When lru's order takes over, and for how long.
#include "prefix/lru_duel.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

void play(LruDuel& duel, int rounds, int found, int by_lru) {
  for (int round = 0; round < rounds; ++round) {
    duel.ask(1'000);
    for (int i = 0; i < 1'000; ++i) duel.count(i < found, i < by_lru);
    duel.end_round();
  }
}

// Rounds that lru leads for after it won one.
int rounds_of_lru(LruDuel& duel) {
  while (!duel.lru_leads()) play(duel, 1, 300, 700);
  int rounds = 0;
  for (; duel.lru_leads(); ++rounds) duel.end_round();
  return rounds;
}

TEST(LruDuel, LruTakesOverWhereItFindsClearlyMore) {
  LruDuel duel;
  play(duel, 8, 500, 700);
  EXPECT_TRUE(duel.lru_leads());
}

TEST(LruDuel, ASmallLeadIsChance) {
  LruDuel duel;
  play(duel, 100, 500, 505);
  EXPECT_FALSE(duel.lru_leads());
}

TEST(LruDuel, LruTakesOverWhereHardlyAnythingIsFoundAnyMore) {
  LruDuel duel;
  play(duel, 20, 600, 600);
  play(duel, 1, 150, 150);
  EXPECT_FALSE(duel.lru_leads());
  play(duel, 1, 50, 50);
  EXPECT_TRUE(duel.lru_leads());
}

TEST(LruDuel, TheOtherHasANewChanceLaterEachTimeItLoses) {
  LruDuel duel;
  const int first = rounds_of_lru(duel);
  EXPECT_GT(first, 0);
  EXPECT_EQ(rounds_of_lru(duel), 2 * first);
  EXPECT_EQ(rounds_of_lru(duel), 4 * first);
}

TEST(LruDuel, DoingWellEarnsBackWhatWasLost) {
  LruDuel duel;
  const int first = rounds_of_lru(duel);
  rounds_of_lru(duel);
  play(duel, 100, 700, 700);
  EXPECT_EQ(rounds_of_lru(duel), first);
}

}  // namespace
}  // namespace stemma
