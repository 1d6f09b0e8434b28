// What is learned of classes: from uses and from what is not used, and what the index makes of it.
#include "prefix/hazard_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <queue>

#include "base/prng.h"

namespace stemma {
namespace {

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kForgottenAfter = 4'000 * kSecond;

// Pages of two classes, one arrival of each a second; when each is used again, if ever, is drawn.
class Workload {
 public:
  using Wait = std::function<std::optional<std::int64_t>(int page_class, Prng& random)>;

  static constexpr int kFirst = PageClass::kChat;
  static constexpr int kSecondClass = PageClass::kChat + 1;

  void run(HazardTable& table, std::int64_t seconds, const Wait& wait) {
    for (const std::int64_t end = now_us_ + seconds * kSecond; now_us_ < end; now_us_ += kSecond) {
      for (; !leaving_.empty() && leaving_.top().left_us <= now_us_; leaving_.pop()) {
        table.depart(leaving_.top());
      }
      for (const int page_class : {kFirst, kSecondClass}) {
        table.arrive(page_class, HazardTable::kWeightOne, 1, now_us_);
        const auto waits = wait(page_class, random_);
        const std::int64_t left_us = now_us_ + waits.value_or(kForgottenAfter);
        leaving_.push(
            {page_class, HazardTable::kWeightOne, now_us_, left_us, waits.has_value(), 1});
      }
      table.count_request(now_us_);
    }
  }

 private:
  struct Later {
    bool operator()(const HazardTable::Departure& a, const HazardTable::Departure& b) const {
      return a.left_us > b.left_us;
    }
  };
  std::int64_t now_us_ = 0;
  Prng random_{1};
  std::priority_queue<HazardTable::Departure, std::vector<HazardTable::Departure>, Later> leaving_;
};

std::optional<std::int64_t> with_chance(Prng& random, std::int64_t percent, std::int64_t wait_us) {
  if (random.below(100) >= percent) return std::nullopt;
  return wait_us;
}

TEST(HazardTable, BeforeAnythingIsSeenClassesAreAlikeAndTheYoungAreWorthMore) {
  const HazardTable table;
  EXPECT_DOUBLE_EQ(table.index(PageClass::kLast, kSecond), table.index(PageClass::kChat, kSecond));
  EXPECT_GT(table.index(PageClass::kLast, kSecond), table.index(PageClass::kLast, 60 * kSecond));
}

TEST(HazardTable, AClassThatIsUsedAgainMoreOftenIsWorthMore) {
  HazardTable table;
  Workload().run(table, 5'000, [](int page_class, Prng& random) {
    return with_chance(random, page_class == Workload::kFirst ? 80 : 20,
                       (20 + random.below(80)) * kSecond);
  });
  for (const std::int64_t age_s : {1, 10, 30, 60}) {
    EXPECT_GT(table.index(Workload::kFirst, age_s * kSecond),
              2 * table.index(Workload::kSecondClass, age_s * kSecond));
  }
}

// A page nobody asks for within 30 s, and most people then, is worth more the nearer that time is.
TEST(HazardTable, WorthRisesAsTheExpectedUseComesNearAndFallsBehindIt) {
  HazardTable table;
  Workload().run(table, 5'000, [](int, Prng& random) {
    return with_chance(random, 50, (30 + random.below(10)) * kSecond);
  });
  const auto worth = [&](std::int64_t age_s) {
    return table.index(Workload::kFirst, age_s * kSecond);
  };
  EXPECT_GT(worth(15), 1.2 * worth(1));
  EXPECT_GT(worth(28), 1.5 * worth(15));
  EXPECT_LT(worth(60), worth(1) / 4);
}

// Half the pages are used after exactly 50 s: at first a page is worth 0.5 uses for the at most
// 50 s that it is worth waiting for, as exactly as the buckets tell one age from another.
TEST(HazardTable, TheIndexIsUsesASecondOverTheBestStretch) {
  HazardTable table;
  Workload().run(table, 20'000,
                 [](int, Prng& random) { return with_chance(random, 50, 50 * kSecond); });
  const int bucket = AgeBuckets::of(50 * kSecond);
  EXPECT_GT(table.index(Workload::kFirst, 0), 0.45 / AgeBuckets::begin_s(bucket + 1));
  EXPECT_LT(table.index(Workload::kFirst, 0), 0.55 / AgeBuckets::begin_s(bucket));
}

// Pages that are still waiting count as not used yet: nobody need forget them first.
TEST(HazardTable, WhatIsNotUsedIsLearnedWhileItWaits) {
  HazardTable table;
  HazardTable unseen;
  Workload().run(table, 1'000, [](int page_class, Prng&) -> std::optional<std::int64_t> {
    if (page_class == Workload::kSecondClass) return 5 * kSecond;
    return std::nullopt;
  });
  EXPECT_LT(table.index(Workload::kFirst, 30 * kSecond),
            unseen.index(Workload::kFirst, 30 * kSecond) / 4);
}

TEST(HazardTable, WhatWasLearnedFades) {
  HazardTable table;
  Workload workload;
  const auto chances = [](std::int64_t of_first, std::int64_t of_second) {
    return [=](int page_class, Prng& random) {
      return with_chance(random, page_class == Workload::kFirst ? of_first : of_second,
                         20 * kSecond);
    };
  };
  workload.run(table, 10'000, chances(80, 20));
  EXPECT_GT(table.index(Workload::kFirst, 0), table.index(Workload::kSecondClass, 0));
  workload.run(table, 40'000, chances(20, 80));
  EXPECT_LT(table.index(Workload::kFirst, 0), table.index(Workload::kSecondClass, 0));
}

// A class with little of its own to show is taken for what its relatives are.
TEST(HazardTable, ARareClassIsTakenForTheClassAboveIt) {
  HazardTable table;
  Workload().run(table, 5'000,
                 [](int, Prng& random) { return with_chance(random, 60, 20 * kSecond); });
  const int rare = PageClass::kChat + 2;
  EXPECT_NEAR(table.index(rare, 0) / table.index(Workload::kFirst, 0), 1, 0.3);
}

}  // namespace
}  // namespace stemma
