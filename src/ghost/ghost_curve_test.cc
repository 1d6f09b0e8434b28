// GhostCurve: with every use watched, the hit rate of real caches exactly; with one in twenty, on
// average the same.
#include "ghost/ghost_curve.h"

#include <gtest/gtest.h>

#include "ghost/ghost_cache.h"
#include "ghost/ghost_workload.h"

namespace stemma {
namespace {

using Hashes = std::vector<std::int64_t>;
constexpr std::int64_t kCapacities[] = {1, 5, 20, 100, 400, 1'000};

GhostCurve curve_of(std::int64_t pages_per_sample, std::uint64_t seed = 1) {
  return GhostCurve(
      {.capacity_pages_max = 1'000, .pages_per_sample = pages_per_sample, .seed = seed});
}

TEST(GhostCurve, IsThatOfCachesOfEveryCapacityIfEveryUseIsWatched) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    GhostCurve curve = curve_of(1);
    std::vector<std::unique_ptr<GhostCache>> caches;  // nothing is left out: real ones
    for (const std::int64_t capacity_pages : kCapacities) {
      caches.push_back(
          *GhostCache::open({.capacity_pages = capacity_pages, .pages_per_sample = 1}));
    }
    GhostWorkload workload(seed);
    for (int request = 0; request < 2'000; ++request) {
      const Hashes& pages = workload.next();
      curve.look_up(pages);
      for (const auto& cache : caches) cache->look_up(pages);
    }
    for (std::size_t i = 0; i < caches.size(); ++i) {
      EXPECT_DOUBLE_EQ(curve.hit_rate(kCapacities[i]), caches[i]->hit_rate()) << kCapacities[i];
    }
  }
}

// 64 curves of one in 20: their mean is off by less than an eighth of what one of them may be.
TEST(GhostCurve, OfSamplesIsRightOnAverage) {
  constexpr int kSeeds = 64;
  constexpr int kRequests = 2'000;
  GhostCurve exact = curve_of(1);
  GhostWorkload workload(7);
  for (int request = 0; request < kRequests; ++request) exact.look_up(workload.next());
  std::vector<double> sums(std::size(kCapacities));
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    GhostCurve curve = curve_of(20, seed);
    GhostWorkload same(7);
    for (int request = 0; request < kRequests; ++request) curve.look_up(same.next());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += curve.hit_rate(kCapacities[i]);
  }
  for (std::size_t i = 2; i < sums.size(); ++i) {  // a sample stands for 20 pages
    EXPECT_NEAR(sums[i] / kSeeds, exact.hit_rate(kCapacities[i]), .005) << kCapacities[i];
  }
}

TEST(GhostCurve, GrowsWithTheCapacity) {
  GhostCurve curve = curve_of(20);
  GhostWorkload workload(3);
  for (int request = 0; request < 500; ++request) curve.look_up(workload.next());
  for (std::int64_t pages = 0; pages < 1'100; ++pages) {
    EXPECT_LE(curve.hit_rate(pages), curve.hit_rate(pages + 1));
  }
  EXPECT_EQ(curve.hit_rate(0), 0);
  EXPECT_EQ(curve.hit_rate(5'000), curve.hit_rate(1'000));
  EXPECT_LE(curve.hit_rate(1'000), 1);
}

TEST(GhostCurve, TakesARequestsAncestorsForYoungerThanItsLastPage) {
  GhostCurve curve = curve_of(1);
  curve.look_up(Hashes{1, 2, 3});
  curve.look_up(Hashes{1, 2, 3});
  EXPECT_DOUBLE_EQ(curve.hit_rate(1), 1. / 6);  // room for the first page of the three
  EXPECT_DOUBLE_EQ(curve.hit_rate(2), 2. / 6);
  EXPECT_DOUBLE_EQ(curve.hit_rate(3), 3. / 6);
}

// As no cache's requests do, but traces may.
TEST(GhostCurve, WatchesAPageOnceThatARequestNamesTwice) {
  GhostCurve curve = curve_of(1);
  curve.look_up(Hashes{1, 2, 1});
  curve.look_up(Hashes{1, 2});
  EXPECT_DOUBLE_EQ(curve.hit_rate(1), 1. / 5);  // room for the first page
  EXPECT_DOUBLE_EQ(curve.hit_rate(2), 2. / 5);
  curve.insert(Hashes{3, 4, 3});
  curve.look_up(Hashes{3, 4});
  EXPECT_DOUBLE_EQ(curve.hit_rate(10), 4. / 7);
}

TEST(GhostCurve, CountsNoHitsOfPagesThatWereNotLookedUp) {
  GhostCurve curve = curve_of(1);
  curve.look_up(Hashes{1, 2});
  curve.insert(Hashes{1, 2, 3});  // its output
  EXPECT_EQ(curve.hit_rate(10), 0);
  curve.look_up(Hashes{1, 2, 3, 4});  // the next turn
  EXPECT_DOUBLE_EQ(curve.hit_rate(10), 3. / 6);
}

TEST(GhostCurve, ThatFadesTellsOfRecentTimes) {
  GhostCurve curve = curve_of(1);
  curve.look_up(Hashes{1, 2, 3, 4});  // all missed
  curve.fade(0.25);
  curve.look_up(Hashes{1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(curve.hit_rate(10), 4. / 5);
}

TEST(GhostCurve, OfNothingIsZero) {
  EXPECT_EQ(curve_of(20).hit_rate(100), 0);
}

TEST(GhostCurve, OfTheSameSeedIsTheSame) {
  GhostCurve left = curve_of(20, 4);
  GhostCurve right = curve_of(20, 4);
  GhostCurve other = curve_of(20, 5);
  GhostWorkload workload(3);
  for (int request = 0; request < 500; ++request) {
    const Hashes& pages = workload.next();
    for (GhostCurve* curve : {&left, &right, &other}) curve->look_up(pages);
  }
  EXPECT_EQ(left.hit_rate(400), right.hit_rate(400));
  EXPECT_NE(left.hit_rate(400), other.hit_rate(400));
}

TEST(GhostCurve, NeedsAThousandthOfWhatItWatches) {
  constexpr std::int64_t kPages = 1'000'000;
  constexpr double kPageBytes = 16 * 1024;  // of a model of 3 million weights: small ones
  const GhostCurve curve({.capacity_pages_max = kPages});
  EXPECT_LT(static_cast<double>(curve.memory_bytes()), kPages * kPageBytes / 1000);
}

TEST(GhostCurve, RefusesOptionsOutOfTheirRange) {
  EXPECT_TRUE(GhostCurve::check({.capacity_pages_max = 1}).ok());
  const Status empty = GhostCurve::check({.capacity_pages_max = 0});
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().detail, "capacity_pages_max must be from 1 to 536870911 (got 0)");
  const Status none = GhostCurve::check({.capacity_pages_max = 1, .pages_per_sample = 0});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().detail, "pages_per_sample must be from 1 to 1048576 (got 0)");
}

}  // namespace
}  // namespace stemma
