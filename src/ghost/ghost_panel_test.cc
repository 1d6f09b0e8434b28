// GhostPanel: lru from the curve, other policies from ghosts beside an lru ghost; and GhostCache,
// its part.
#include "ghost/ghost_panel.h"

#include <gtest/gtest.h>

#include "ghost/ghost_workload.h"

namespace stemma {
namespace {

using Hashes = std::vector<std::int64_t>;

std::unique_ptr<GhostPanel> panel_of(std::int64_t pages_per_sample) {
  return *GhostPanel::open(
      {.curve = {.capacity_pages_max = 1'000, .pages_per_sample = pages_per_sample, .seed = 9},
       .policies = {"lru", "slru"},
       .capacities = {100, 400}});
}

TEST(GhostPanel, IsExactIfNothingIsLeftOut) {
  const auto panel = panel_of(1);
  const auto slru = *GhostCache::open(
      {.policy = "slru", .capacity_pages = 100, .pages_per_sample = 1, .seed = 0});
  GhostWorkload workload(1);
  for (int request = 0; request < 1'000; ++request) {
    const Hashes& pages = workload.next();
    panel->look_up(pages);
    slru->look_up(pages);
  }
  EXPECT_DOUBLE_EQ(*panel->try_hit_rate("slru", 100), slru->hit_rate());
  EXPECT_NE(*panel->try_hit_rate("slru", 100), *panel->try_hit_rate("lru", 100));
}

TEST(GhostPanel, KnowsLruAtEveryCapacityAndOthersWhereTheyAreWatched) {
  const auto panel = panel_of(20);
  EXPECT_TRUE(panel->try_hit_rate("lru", 77).has_value());
  EXPECT_TRUE(panel->try_hit_rate("slru", 100).has_value());
  EXPECT_FALSE(panel->try_hit_rate("slru", 77).has_value());
  EXPECT_FALSE(panel->try_hit_rate("lfu", 100).has_value());
}

TEST(GhostPanel, NamesAnUnknownPolicyAndTheKnownOnes) {
  const auto panel = GhostPanel::open(
      {.curve = {.capacity_pages_max = 10}, .policies = {"oracle"}, .capacities = {5}});
  ASSERT_FALSE(panel.ok());
  EXPECT_EQ(panel.error().code, ErrorCode::kNotFound);
  EXPECT_NE(panel.error().detail.find("slru"), std::string::npos) << panel.error().detail;
}

TEST(GhostPanel, RefusesACapacityOfNothing) {
  EXPECT_FALSE(GhostPanel::open({.curve = {.capacity_pages_max = 0}}).ok());
  EXPECT_FALSE(GhostPanel::open(
                   {.curve = {.capacity_pages_max = 10}, .policies = {"slru"}, .capacities = {0}})
                   .ok());
}

TEST(GhostPanel, FadesAllItsGhosts) {
  const auto panel = panel_of(1);
  panel->look_up(Hashes{1, 2, 3, 4});
  panel->fade(0.25);
  panel->look_up(Hashes{1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(*panel->try_hit_rate("lru", 100), 4. / 5);
  EXPECT_DOUBLE_EQ(*panel->try_hit_rate("slru", 100), 4. / 5);
}

TEST(GhostPanel, TakesOutputsForResidentAndNotForHits) {
  const auto panel = panel_of(1);
  panel->look_up(Hashes{1, 2});
  panel->insert(Hashes{1, 2, 3});
  EXPECT_DOUBLE_EQ(*panel->try_hit_rate("slru", 100), 0);
  panel->look_up(Hashes{1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(*panel->try_hit_rate("slru", 100), 3. / 6);
}

TEST(GhostPanel, TakesAWholeRequestForOneUse) {
  const auto apart = panel_of(1);
  const auto whole = panel_of(1);
  for (int request = 0; request < 2; ++request) {
    apart->look_up(Hashes{1, 2});
    apart->insert(Hashes{1, 2, 3});
    const Hashes looked_up = {1, 2};
    const Hashes output = {3};
    whole->feed({.page_hashes = looked_up, .output_page_hashes = output, .end = {}});
  }
  for (const std::string policy : {"lru", "slru"}) {
    EXPECT_DOUBLE_EQ(*whole->try_hit_rate(policy, 100), 2. / 4) << policy;
    EXPECT_DOUBLE_EQ(*apart->try_hit_rate(policy, 100), 2. / 4) << policy;
  }
}

TEST(GhostCacheDeathTest, ToldOfNoEndsWhereTheyCount) {
  for (const std::string policy : {"hazard", "tlru", "s3fifo"}) {
    const auto ghost = *GhostCache::open({.policy = policy, .capacity_pages = 10});
    EXPECT_DEATH(ghost->look_up(Hashes{1}), "whole requests") << policy;
  }
}

TEST(GhostCache, SamplesTheSamePagesOfAllRequests) {
  const auto ghost = *GhostCache::open({.capacity_pages = 100'000, .pages_per_sample = 20});
  Hashes pages;
  for (std::int64_t page = 0; page < 2'000; ++page) pages.push_back(page);
  ghost->look_up(pages);
  EXPECT_EQ(ghost->hit_rate(), 0);
  ghost->look_up(pages);
  EXPECT_EQ(ghost->hit_rate(), 0.5);
}

TEST(GhostCache, KeepsThePrefixOfARequestThatIsTooLong) {
  const auto ghost = *GhostCache::open({.capacity_pages = 3, .pages_per_sample = 1});
  ghost->look_up(Hashes{1, 2, 3, 4, 5, 6});
  ghost->look_up(Hashes{1, 2, 3, 4, 5, 6});
  EXPECT_DOUBLE_EQ(ghost->hit_rate(), 3. / 12);
}

}  // namespace
}  // namespace stemma
