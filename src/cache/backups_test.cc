// What is copied down: what host memory or a store lacks and nothing on its way brings.
#include <gtest/gtest.h>

#include <vector>

#include "cache/held_copies_fixture.h"

namespace stemma {
namespace {

class BackupsTest : public HeldCopies {
 protected:
  const Transfer& posted(std::size_t job) { return *tiers->lanes().posted.at(job); }
};

//   0 1 2 3 4        under way
//         │
//         5 6        which parts from it in the middle
TEST_F(BackupsTest, ATextThatPartsFromOneUnderWayIsCopiedFromThere) {
  open(256, 0);
  compute({0, 1, 2, 3, 4});
  compute({0, 1, 2, 5, 6});
  ASSERT_EQ(tiers->lanes().posted.size(), 2u);
  EXPECT_EQ(posted(1).first_page, 3);
  EXPECT_EQ(posted(1).tokens, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(end_backups(), 2);
  EXPECT_EQ(backed_up(), 7);
  EXPECT_EQ(unbacked(), 0);
}

//   0 1 2 │ 3 4      two copies under way, the second of the text's end
//           │
//           5 6      goes on behind what both bring of it
TEST_F(BackupsTest, WhatSeveralCopiesBringOfATextIsNotCopiedAgain) {
  open(256, 0);
  compute({0, 1, 2});
  compute({0, 1, 2, 3, 4});
  compute({0, 1, 2, 3, 5, 6});
  ASSERT_EQ(tiers->lanes().posted.size(), 3u);
  EXPECT_EQ(posted(1).first_page, 3);
  EXPECT_EQ(posted(2).first_page, 4);
  EXPECT_EQ(end_backups(), 3);
  EXPECT_EQ(backed_up(), 7);
  EXPECT_EQ(unbacked(), 0);
}

TEST_F(BackupsTest, WhatIsUnderWayWholeIsNotCopiedAgain) {
  open(256, 0);
  compute({0, 1, 2, 3, 4});
  compute({0, 1, 2});
  EXPECT_EQ(tiers->lanes().posted.size(), 1u);
  end_backups();
}

// The store says what it has, and not yet what is written to it.
TEST_F(BackupsTest, WhatIsOnItsWayToAStoreIsNotWrittenAgain) {
  open<MapStore>(256);
  compute({0, 1, 2});
  end_backups();
  compute({0, 1, 2, 3, 4});
  end_backups();
  ASSERT_EQ(tiers->lanes().posted.size(), 2u);
  EXPECT_EQ(posted(0).tokens, (std::vector<TokenId>{0, 1, 2}));
  EXPECT_EQ(posted(1).tokens, (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(end_stores(), 2);
  EXPECT_EQ(stored(), 5);
}

// As where its reads fail, and it is left alone for a while.
TEST_F(BackupsTest, AStoreThatDoesNotSayWhatItHasIsGivenWhatIsNew) {
  open<MapStore>(256);
  compute({0, 1, 2});
  end_backups();
  end_stores();
  static_cast<MapStore*>(tiers->stores()[0])->broken = true;
  compute({0, 1, 2, 3, 4});
  end_backups();
  ASSERT_EQ(tiers->lanes().posted.size(), 1u);
  EXPECT_EQ(posted(0).tokens, (std::vector<TokenId>{3, 4}));
  compute({0, 1, 2, 3, 4, 5});
  end_backups();
  ASSERT_EQ(tiers->lanes().posted.size(), 2u);
  EXPECT_EQ(posted(1).tokens, (std::vector<TokenId>{5})) << "the others are on their way";
  EXPECT_EQ(end_stores(), 2);
  EXPECT_EQ(stored(), 6);
}

//   0 1 2 │ 3 4      of which the store has lost 1 and 2
TEST_F(BackupsTest, WhatARemoteStoreHasLostOfTheBeginningGoesToItAnew) {
  open(256);
  compute({0, 1, 2});
  end_backups();
  EXPECT_TRUE(posted(0).before.empty());
  end_stores();
  compute({0, 1, 2, 3, 4});
  end_backups();
  ASSERT_EQ(tiers->lanes().posted.size(), 1u);
  EXPECT_EQ(posted(0).tokens, (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(posted(0).before.size(), 3u);
  const std::vector<PageKey> before = posted(0).before;
  tiers->lanes().posted[0]->lost_pages = 2;
  tiers->lanes().end_next(PageVerdict::kDone);
  poll();
  ASSERT_EQ(tiers->lanes().posted.size(), 1u);
  EXPECT_EQ(posted(0).first_page, 1);
  EXPECT_EQ(posted(0).keys, (std::vector<PageKey>{before[1], before[2]}));
  EXPECT_EQ(posted(0).before, std::vector<PageKey>{before[0]});
  EXPECT_EQ(end_stores(), 1);
  EXPECT_EQ(stored(), 7);
}

// Whose full pages host memory has, and whose windowed ones it has given to others.
TEST_F(BackupsTest, OfATextThatIsThereWindowsAreCopiedAtTheEndOfALife) {
  open(256, 0, {.windowed_pages = 8});
  publish(1, 4);
  for (TokenId other = 100; other < 110; ++other) publish(other, 1);
  const std::int64_t before = metric("stemma_windowed_backed_up_pages_total");
  tiers->lanes().ends_when_waited_for = true;
  tiers->lanes().clock_or_null = &clock;
  kv->settle(clock.now_us() + 1'000'000);
  EXPECT_GT(metric("stemma_windowed_backed_up_pages_total"), before);
}

}  // namespace
}  // namespace stemma
