// Purges: until a store confirms nothing of the namespaces goes to it or comes from it; a store
// that fails is asked again; copies under way come first; what is remembered is bounded.
#include "cache/purges.h"

#include <gtest/gtest.h>

#include "prefix/namespace_examples.h"
#include "tier/held_lanes.h"
#include "tier/memory_page_store.h"

namespace stemma {
namespace {

using Families = std::vector<NamespaceFamily>;

class PurgesTest : public ::testing::Test {
 protected:
  PurgeId add(const Families& namespaces) { return purges.add(namespaces, {3, 2, 0, 0}); }
  // Ends the job that was posted first.
  void end_next(std::int64_t pages, Status status = {}) {
    lanes.posted.front()->purge = PurgeOutcome{.pages = pages, .status = std::move(status)};
    lanes.end_next();
    while (auto ticket = transfers.try_take_landed()) {
      if (ticket->job().kind == TransferKind::kPurge) purges.landed(*ticket);
    }
    purges.advance();
  }
  static Status failed() { return Error{ErrorCode::kIo, "on purpose"}; }

  FakeClock clock;
  TierOptions options{.store_deadline_us = 100};
  MemoryPageStore disk{Tier::kDisk, 1000};
  MemoryPageStore remote{Tier::kRemote, 1000};
  std::vector<PageStore*> stores = {&disk, &remote};
  HeldLanes lanes;
  TransferEngine transfers{{}, lanes};
  Purges purges{{.transfers = transfers, .stores = stores, .clock = clock, .options = options}};
};

TEST_F(PurgesTest, WhereNothingIsPendingAllIsUsable) {
  EXPECT_TRUE(purges.usable(0, digest_of(1)));
  purges.advance();
  EXPECT_TRUE(lanes.posted.empty());
  EXPECT_FALSE(purges.report(PurgeId(0)).has_value());
}

TEST_F(PurgesTest, EachStoreIsUsableAgainWhenItHasConfirmed) {
  const PurgeId id = add({family_of(digest_of(2)), family_of(digest_of(1))});
  purges.advance();
  ASSERT_EQ(lanes.posted.size(), 2u) << "one a store";
  EXPECT_EQ(lanes.posted[0]->namespaces,
            (Families{family_of(digest_of(1)), family_of(digest_of(2))}));
  EXPECT_FALSE(purges.usable(0, digest_of(1)));
  EXPECT_FALSE(purges.usable(1, digest_of(2)));
  EXPECT_TRUE(purges.usable(0, digest_of(3)));
  EXPECT_EQ(purges.report(id)->pending, (std::vector{Tier::kDisk, Tier::kRemote}));
  end_next(7);
  EXPECT_TRUE(purges.usable(0, digest_of(1)));
  EXPECT_FALSE(purges.usable(1, digest_of(1)));
  EXPECT_EQ(purges.pending(), 1);
  end_next(5);
  EXPECT_TRUE(purges.usable(1, digest_of(1)));
  EXPECT_EQ(purges.pending(), 0);
  EXPECT_EQ(purges.report(id)->pages, (std::array<std::int64_t, 4>{3, 2, 7, 5}));
  EXPECT_TRUE(purges.report(id)->pending.empty());
  EXPECT_TRUE(lanes.posted.empty());
}

TEST_F(PurgesTest, OfAllNothingIsUsable) {
  add({});
  EXPECT_FALSE(purges.usable(0, digest_of(9)));
  purges.advance();
  EXPECT_TRUE(lanes.posted.front()->namespaces.empty());
}

TEST_F(PurgesTest, AStoreThatFailsIsAskedAgainLessAndLessOften) {
  const PurgeId id = add({family_of(digest_of(1))});
  purges.advance();
  end_next(0, failed());
  end_next(4);
  EXPECT_EQ(purges.report(id)->pending, std::vector{Tier::kDisk});
  clock.advance_us(99);
  purges.advance();
  EXPECT_TRUE(lanes.posted.empty());
  clock.advance_us(1);
  purges.advance();
  ASSERT_EQ(lanes.posted.size(), 1u);
  EXPECT_EQ(lanes.posted[0]->store, 0);
  end_next(0, failed());
  clock.advance_us(199);
  purges.advance();
  EXPECT_TRUE(lanes.posted.empty()) << "a longer while";
  clock.advance_us(1);
  purges.advance();
  ASSERT_EQ(lanes.posted.size(), 1u);
  end_next(2, failed());
  ASSERT_EQ(lanes.posted.size(), 1u) << "it got somewhere: at once";
  end_next(1);
  EXPECT_EQ(purges.pending(), 0);
  EXPECT_EQ(purges.report(id)->pages[static_cast<std::size_t>(Tier::kDisk)], 3);
}

TEST_F(PurgesTest, AStoreThatGotOnButRemovedNothingIsAskedAgainAtOnce) {
  add({family_of(digest_of(1))});
  purges.advance();
  for (int call = 0; call < 3; ++call) {
    ASSERT_EQ(lanes.posted.front()->store, call == 0 ? 0 : 1);
    if (call == 0) {
      end_next(0);  // the disk
      continue;
    }
    lanes.posted.front()->purge = PurgeOutcome{.status = failed(), .advanced = true};
    lanes.end_next();
    purges.landed(*transfers.try_take_landed());
    purges.advance();
    ASSERT_EQ(lanes.posted.size(), 1u) << call;
  }
}

TEST_F(PurgesTest, OfWhatLiesBehindAPageNothingOfTheNamespaceIsUsableMeanwhile) {
  const Families one = {family_of(digest_of(1))};
  purges.add_behind(one, 7);
  EXPECT_FALSE(purges.usable(0, digest_of(1)));
  EXPECT_TRUE(purges.usable(0, digest_of(2)));
  purges.advance();
  ASSERT_EQ(lanes.posted.size(), 2u) << "one a store";
  EXPECT_EQ(lanes.posted[0]->namespaces, one);
  EXPECT_EQ(lanes.posted[0]->first_page, 7);
  end_next(3);
  EXPECT_TRUE(purges.usable(0, digest_of(1)));
  EXPECT_FALSE(purges.usable(1, digest_of(1)));
}

// One that is under way does not count for pages that it leaves.
TEST_F(PurgesTest, OfWhatLiesFurtherBeforeIsOneOfItsOwn) {
  const Families one = {family_of(digest_of(1))};
  purges.add_behind(one, 7);
  purges.add_behind(one, 9);
  EXPECT_EQ(purges.pending(), 1) << "the first takes these too";
  purges.add_behind(one, 5);
  EXPECT_EQ(purges.pending(), 2);
  add(one);
  EXPECT_EQ(purges.pending(), 3);
}

// One page that all share is wrong, and what each tenant has behind it.
TEST_F(PurgesTest, OfWhatLiesBehindAPageThatAllShareIsOne) {
  const Families before = {family_of(digest_of(1))};
  purges.add_behind(before, 7);
  const PurgeId asked_for = add({family_of(digest_of(2))});
  purges.add_behind({}, 0);
  EXPECT_EQ(purges.pending(), 2) << "those of before go with it, but not what somebody asked for";
  for (std::uint8_t i = 3; i < 100; ++i) {
    const Families tenant = {family_of(digest_of(i))};
    purges.add_behind(tenant, 0);
  }
  EXPECT_EQ(purges.pending(), 2);
  purges.advance();
  for (int call = 0; call < 4; ++call) end_next(1);
  EXPECT_EQ(purges.pending(), 0);
  EXPECT_TRUE(lanes.posted.empty());
  EXPECT_TRUE(purges.report(asked_for)->pending.empty());
  EXPECT_TRUE(purges.usable(0, digest_of(1)));
  EXPECT_TRUE(purges.usable(1, digest_of(99)));
}

// It has been given pages since it forgot all, where another store has not yet.
TEST_F(PurgesTest, AStoreThatHasForgottenAllIsAskedForWhatWasWrongSince) {
  purges.add_behind({}, 0);
  purges.advance();
  end_next(1);  // the disk
  const Families tenant = {family_of(digest_of(3))};
  EXPECT_TRUE(purges.usable(0, digest_of(3)));
  purges.add_behind(tenant, 0);
  EXPECT_FALSE(purges.usable(0, digest_of(3)));
  EXPECT_TRUE(purges.usable(0, digest_of(4)));
}

TEST_F(PurgesTest, OneThatIsUnderWayIsWaitedForWhereAllIsToBeForgotten) {
  const Families tenant = {family_of(digest_of(1))};
  purges.add_behind(tenant, 7);
  purges.advance();
  purges.add_behind({}, 0);
  EXPECT_EQ(purges.pending(), 2);
  for (int call = 0; call < 4; ++call) end_next(1);
  EXPECT_EQ(purges.pending(), 0);
}

TEST_F(PurgesTest, OfWhatWasWrongIsOfEverythingWhereNoMoreCanBeRemembered) {
  for (std::uint8_t i = 0; i < Purges::kPurgesMax; ++i) add({family_of(digest_of(i))});
  const Families one = {family_of(digest_of(200))};
  ASSERT_FALSE(purges.can_add(one));
  EXPECT_TRUE(purges.usable(0, digest_of(201)));
  purges.add_behind(one, 7);
  purges.add_behind({}, 0);
  EXPECT_FALSE(purges.usable(0, digest_of(201)));
  EXPECT_EQ(purges.pending(), static_cast<std::int64_t>(Purges::kPurgesMax) + 1);
}

// The store holds something of one tenant that it cannot get at.
TEST_F(PurgesTest, OneThatFailsKeepsNoOtherWaiting) {
  const PurgeId stuck = add({family_of(digest_of(1))});
  const PurgeId other = add({family_of(digest_of(2))});
  for (int round = 0; round < 5; ++round) {
    purges.advance();
    while (!lanes.posted.empty()) {
      const bool fails = lanes.posted.front()->namespaces[0] == family_of(digest_of(1));
      end_next(0, fails ? failed() : Status());
    }
    clock.advance_us(10'000);
  }
  EXPECT_EQ(purges.report(stuck)->pending, (std::vector{Tier::kDisk, Tier::kRemote}));
  EXPECT_TRUE(purges.report(other)->pending.empty());
}

TEST_F(PurgesTest, OneThatWasNotBegunIsAskedAgain) {
  add({family_of(digest_of(1))});
  purges.advance();
  lanes.end_next();
  purges.landed(*transfers.try_take_landed());
  EXPECT_FALSE(purges.usable(0, digest_of(1)));
  clock.advance_us(100);
  purges.advance();
  EXPECT_EQ(lanes.posted.size(), 2u);
}

TEST_F(PurgesTest, WaitsForACopyThatMayBringPagesToTheStore) {
  auto copy = transfers.try_open(TransferKind::kStore, 1);
  copy->job().digest = digest_of(1);
  transfers.submit(std::move(*copy));
  add({family_of(digest_of(1))});
  add({family_of(digest_of(2))});
  purges.advance();
  ASSERT_EQ(lanes.posted.size(), 3u);
  EXPECT_EQ(lanes.posted[1]->namespaces, Families{family_of(digest_of(1))});
  EXPECT_EQ(lanes.posted[1]->store, 0);
  EXPECT_EQ(lanes.posted[2]->namespaces, Families{family_of(digest_of(2))})
      << "the other one goes first";
  lanes.end_next();
  const auto landed = transfers.try_take_landed();
  end_next(0);
  end_next(0);
  ASSERT_EQ(lanes.posted.size(), 2u);
  EXPECT_EQ(lanes.posted.back()->namespaces, Families{family_of(digest_of(1))});
}

// While a store is down a tenant may ask again and again.
TEST_F(PurgesTest, WhoRepeatsHimselfTakesNoRoomFromOthers) {
  const Families ours = {family_of(digest_of(1))};
  const PurgeId id = add(ours);
  for (std::size_t i = 0; i < 2 * Purges::kPurgesMax; ++i) {
    ASSERT_TRUE(purges.can_add(ours));
    EXPECT_EQ(add(ours), id);
  }
  EXPECT_EQ(purges.pending(), 1);
  EXPECT_TRUE(purges.can_add(Families{family_of(digest_of(2))}));
  EXPECT_EQ(purges.report(id)->pages[0], 3 * (1 + 2 * std::int64_t{Purges::kPurgesMax}));
}

TEST_F(PurgesTest, AStoreThatHadConfirmedIsAskedAnewForWhatItWasGivenSince) {
  const PurgeId id = add({family_of(digest_of(1))});
  purges.advance();
  end_next(7);  // the disk
  EXPECT_TRUE(purges.usable(0, digest_of(1)));
  EXPECT_EQ(add({family_of(digest_of(1))}), id);
  EXPECT_FALSE(purges.usable(0, digest_of(1)));
  purges.advance();
  ASSERT_EQ(lanes.posted.size(), 2u);
  end_next(5);  // the remote store
  end_next(1);
  EXPECT_EQ(purges.pending(), 0);
  EXPECT_EQ(purges.report(id)->pages, (std::array<std::int64_t, 4>{6, 4, 8, 5}));
}

TEST_F(PurgesTest, WhatIsRememberedIsBounded) {
  const auto of = [](std::size_t number) {
    return Families{family_of(digest_of(static_cast<int>(number)))};
  };
  for (std::size_t i = 0; i < Purges::kPurgesMax; ++i) {
    ASSERT_TRUE(purges.can_add(of(i)));
    add(of(i));
  }
  EXPECT_FALSE(purges.can_add(of(100)));
  purges.advance();
  end_next(0);
  end_next(0);
  EXPECT_TRUE(purges.can_add(of(100)));
  add(of(100));
  EXPECT_FALSE(purges.report(PurgeId(0)).has_value()) << "it has gone for a later one";
  EXPECT_TRUE(purges.report(PurgeId(1)).has_value());
  EXPECT_FALSE(purges.can_add(Families(Purges::kNamespacesMax)));
}

TEST_F(PurgesTest, AStoreThatWorkedSinceItFailedWaitsAFirstWhileAgain) {
  for (const int number : {1, 2}) {
    add({family_of(digest_of(number))});
    purges.advance();
    end_next(0, failed());
    end_next(0);
    EXPECT_TRUE(lanes.posted.empty());
    clock.advance_us(100);
    purges.advance();
    ASSERT_EQ(lanes.posted.size(), 1u) << number;
    end_next(0);
    EXPECT_EQ(purges.pending(), 0);
  }
}

TEST_F(PurgesTest, WhatIsConfirmedLeavesItsRoomToOthers) {
  Families most;
  for (std::size_t i = 0; i < Purges::kNamespacesMax; ++i) {
    most.push_back(family_of(digest_of(static_cast<int>(i))));
  }
  add(most);
  NamespaceDigest other;
  other.bytes[2] = 1;
  EXPECT_FALSE(purges.can_add({{family_of(other)}}));
  purges.advance();
  end_next(0);
  EXPECT_FALSE(purges.can_add({{family_of(other)}})) << "one store has not confirmed it";
  end_next(0);
  EXPECT_TRUE(purges.can_add({{family_of(other)}}));
  EXPECT_TRUE(purges.can_add(most));
}

// It keeps what it has: so it is not used for these namespaces any more, and nobody waits.
TEST_F(PurgesTest, AStoreThatCannotBePurgedIsBarredAndNotAskedAgain) {
  const PurgeId id = add({family_of(digest_of(1))});
  purges.advance();
  end_next(0, Error{ErrorCode::kUnsupported, "on purpose"});
  end_next(4);
  EXPECT_EQ(purges.pending(), 0);
  EXPECT_TRUE(purges.report(id)->pending.empty());
  EXPECT_EQ(purges.report(id)->unable, std::vector{Tier::kDisk});
  EXPECT_FALSE(purges.usable(0, digest_of(1)));
  EXPECT_TRUE(purges.usable(0, digest_of(2)));
  EXPECT_TRUE(purges.usable(1, digest_of(1)));
  const PurgeId later = add({family_of(digest_of(2))});
  EXPECT_EQ(purges.report(later)->pending, std::vector{Tier::kRemote});
  EXPECT_EQ(purges.report(later)->unable, std::vector{Tier::kDisk});
  EXPECT_FALSE(purges.usable(0, digest_of(2)));
  clock.advance_us(1'000'000);
  purges.advance();
  ASSERT_EQ(lanes.posted.size(), 1u);
  EXPECT_EQ(lanes.posted[0]->store, 1);
  add({});
  EXPECT_FALSE(purges.usable(0, digest_of(3))) << "all";
}

TEST_F(PurgesTest, AStoreIsBarredFromAllThatItCannotForgetInWhateverOrder) {
  add({family_of(digest_of(5))});
  purges.advance();
  end_next(0, Error{ErrorCode::kUnsupported, "on purpose"});
  end_next(0);
  for (const int number : {1, 3}) add({family_of(digest_of(number))});
  for (const int number : {1, 3, 5}) EXPECT_FALSE(purges.usable(0, digest_of(number))) << number;
  for (const int number : {0, 2, 4, 6}) EXPECT_TRUE(purges.usable(0, digest_of(number))) << number;
}

TEST_F(PurgesTest, AStoreThatCannotBePurgedTakesNoRoomFromLaterPurges) {
  for (std::size_t i = 0; i < 2 * Purges::kPurgesMax; ++i) {
    const Families tenant = {family_of(digest_of(static_cast<int>(i)))};
    ASSERT_TRUE(purges.can_add(tenant)) << i;
    add(tenant);
    purges.advance();
    while (!lanes.posted.empty()) {
      const bool is_disk = lanes.posted.front()->store == 0;
      end_next(0, is_disk ? Status(Error{ErrorCode::kUnsupported, "on purpose"}) : Status());
    }
    EXPECT_FALSE(purges.usable(0, digest_of(static_cast<int>(i))));
  }
  EXPECT_FALSE(purges.usable(0, digest_of(0)));
  EXPECT_TRUE(purges.usable(0, digest_of(200)));
}

TEST(Purges, WithoutStoresNothingIsPending) {
  FakeClock clock;
  const TierOptions options;
  HeldLanes lanes;
  TransferEngine transfers({}, lanes);
  Purges purges({.transfers = transfers, .stores = {}, .clock = clock, .options = options});
  const PurgeId id = purges.add({}, {1, 2, 0, 0});
  EXPECT_EQ(purges.pending(), 0);
  EXPECT_TRUE(purges.report(id)->pending.empty());
}

}  // namespace
}  // namespace stemma
