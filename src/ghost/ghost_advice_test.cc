// Ghost advice: what more room or another policy is worth, in words.
#include "ghost/ghost_advice.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

constexpr std::int64_t kPageBytes = std::int64_t{512} << 20;
constexpr std::int64_t kGib = std::int64_t{1} << 30;

// Two requests of four pages, the second all hits with room for four: a step of 1/8 a page.
GhostCurve stairs() {
  GhostCurve curve({.capacity_pages_max = 8, .pages_per_sample = 1});
  for (int request = 0; request < 2; ++request) {
    curve.look_up(std::vector<std::int64_t>{1, 2, 3, 4});
  }
  return curve;
}

RoomChange device(std::int64_t capacity_pages, std::int64_t extra_bytes) {
  return {.tier = "device",
          .capacity_pages = capacity_pages,
          .page_bytes = kPageBytes,
          .extra_bytes = extra_bytes};
}

TEST(GhostAdvice, SaysWhatMoreRoomIsWorth) {
  EXPECT_EQ(describe_room_change(stairs(), device(1, kGib)), "device +1 GiB: +25.0 points");
}

TEST(GhostAdvice, SaysWhatLessRoomCosts) {
  EXPECT_EQ(describe_room_change(stairs(), device(3, -kGib)), "device -1 GiB: -25.0 points");
  EXPECT_EQ(describe_room_change(stairs(), device(1, -4 * kGib)), "device -4 GiB: -12.5 points");
}

TEST(GhostAdvice, SaysWhenRoomIsWorthNothing) {
  EXPECT_EQ(describe_room_change(stairs(), device(4, kGib)), "device +1 GiB: +0.0 points");
}

TEST(GhostAdvice, AsksForHalfTwiceAndFourTimesTheRoom) {
  const RoomChange now = device(3, 0);
  std::vector<std::int64_t> capacities;
  for (const RoomChange& change : advised_room_changes(now)) {
    EXPECT_EQ(change.tier, now.tier);
    EXPECT_EQ(change.capacity_pages, 3);
    capacities.push_back(3 + change.extra_bytes / kPageBytes);
  }
  EXPECT_EQ(capacities, (std::vector<std::int64_t>{1, 6, 12}));
  EXPECT_LE(capacities.back(), kTimesWatched * 3);
}

TEST(GhostAdvice, SaysWhenItDoesNotKnow) {
  EXPECT_EQ(describe_room_change(stairs(), device(4, 64 * kGib)), "device +64 GiB: not watched");
  EXPECT_EQ(try_points_of(stairs(), device(9, -kGib)), std::nullopt);
}

TEST(GhostAdvice, WritesSizesInUnitsForPeople) {
  const std::pair<std::int64_t, std::string> cases[] = {
      {512, "device +512 B: "},
      {kGib / 2, "device +512 MiB: "},
      {kGib + kGib / 2, "device +1.5 GiB: "},
  };
  for (const auto& [bytes, sentence] : cases) {
    EXPECT_EQ(describe_room_change(stairs(), device(1, bytes)).rfind(sentence, 0), 0u) << bytes;
  }
}

TEST(GhostAdvice, SaysWhatAnotherPolicyIsWorth) {
  EXPECT_EQ(describe_policy_change("lru", .412, .378), "policy lru: -3.4 points");
  EXPECT_EQ(describe_policy_change("hazard", .3, .3612), "policy hazard: +6.1 points");
  EXPECT_EQ(describe_policy_change("slru", .3, .29999), "policy slru: +0.0 points");
}

}  // namespace
}  // namespace stemma
