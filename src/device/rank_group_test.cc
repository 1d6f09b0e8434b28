// RankGroup: how ranks agree on a status; that threads as ranks, which other tests use, tell each
// other what ranks should.
#include "device/rank_group.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "device/thread_ranks_fixture.h"

namespace stemma {
namespace {

TEST(ThreadRanks, GatherAndBroadcastInTheOrderOfRanks) {
  ThreadRanks(3).run([](RankGroup& ranks) {
    const auto rank = static_cast<float>(ranks.rank());
    const std::array own = {rank, 10 * rank};
    std::array<float, 6> all = {};
    ASSERT_TRUE(
        ranks.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)))
            .ok());
    EXPECT_EQ(all, (std::array<float, 6>{0, 0, 1, 10, 2, 20}));
    std::array<float, 6> first = {};
    ASSERT_TRUE(
        ranks.gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(first))).ok());
    EXPECT_EQ(first, ranks.rank() == 0 ? all : (std::array<float, 6>{}));
    std::array told = {rank + 5};
    ASSERT_TRUE(ranks.broadcast(std::as_writable_bytes(std::span(told))).ok());
    EXPECT_EQ(told[0], 5.0F);
  });
}

TEST(Agree, AllAreWellIfEachIs) {
  ThreadRanks(2).run([](RankGroup& ranks) { EXPECT_TRUE(agree(ranks, Status()).ok()); });
}

TEST(Agree, TheFirstErrorIsEverybodysAndNamesItsRank) {
  ThreadRanks(4).run([](RankGroup& ranks) {
    const Error own = {ErrorCode::kTooLarge, "pool of rank " + std::to_string(ranks.rank()), 12};
    const Status agreed = agree(ranks, ranks.rank() >= 2 ? Status(own) : Status());
    ASSERT_FALSE(agreed.ok());
    EXPECT_EQ(agreed.error().code, ErrorCode::kTooLarge);
    EXPECT_EQ(agreed.error().detail, "rank 2: pool of rank 2");
    EXPECT_EQ(agreed.error().sys_errno, 12);
  });
}

TEST(Agree, AnErrorOfTheFirstRankNamesNone) {
  ThreadRanks(2).run([](RankGroup& ranks) {
    const Status agreed = agree(ranks, Error{ErrorCode::kIo, "no room"});
    ASSERT_FALSE(agreed.ok());
    EXPECT_EQ(agreed.error().detail, "no room");
  });
}

TEST(Agree, LongDetailsAreCut) {
  ThreadRanks(2).run([](RankGroup& ranks) {
    const Status agreed = agree(ranks, Error{ErrorCode::kIo, std::string(10'000, 'x')});
    ASSERT_FALSE(agreed.ok());
    EXPECT_GT(agreed.error().detail.size(), 400U);
    EXPECT_LT(agreed.error().detail.size(), 500U);
  });
}

}  // namespace
}  // namespace stemma
