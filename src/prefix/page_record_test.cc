// Ghosts against a plain list, with colliding places and equal fingerprints.
#include "prefix/page_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

PageRecord page_of(std::uint64_t fingerprint, std::int64_t used_us = 0) {
  PageRecord page;
  page.fingerprint = fingerprint;
  page.used_us = used_us;
  return page;
}

TEST(GhostPages, AGhostIsTakenOnce) {
  GhostPages ghosts(4);
  EXPECT_FALSE(ghosts.push(page_of(5, 77)).has_value());
  EXPECT_EQ(ghosts.take(5)->used_us, 77);
  EXPECT_FALSE(ghosts.take(5).has_value());
}

TEST(GhostPages, TheOldestIsForgottenForANewOne) {
  GhostPages ghosts(2);
  ghosts.push(page_of(1));
  ghosts.push(page_of(2));
  EXPECT_EQ(ghosts.push(page_of(3))->fingerprint, 1u);
  ghosts.take(2);
  EXPECT_FALSE(ghosts.push(page_of(4)).has_value());  // in the place of the one that was taken
  EXPECT_TRUE(ghosts.take(3).has_value());
}

TEST(GhostPages, FindsWhatAPlainListFinds) {
  constexpr std::int64_t kGhosts = 50;
  GhostPages ghosts(kGhosts);
  struct Kept {
    std::uint64_t fingerprint;
    std::int64_t pushed;
  };
  std::vector<Kept> list;
  Prng random(3);
  std::int64_t pushes = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto fingerprint = static_cast<std::uint64_t>(random.below(200) * 64);  // few homes
    const auto place = std::find_if(list.begin(), list.end(),
                                    [&](const Kept& k) { return k.fingerprint == fingerprint; });
    if (random.below(2) == 0) {
      ASSERT_EQ(ghosts.take(fingerprint).has_value(), place != list.end());
      if (place != list.end()) list.erase(place);
    } else if (place == list.end()) {
      const auto forgotten = ghosts.push(page_of(fingerprint));
      const bool full = !list.empty() && list.front().pushed == pushes - kGhosts;
      ASSERT_EQ(forgotten.has_value(), full);
      if (full) list.erase(list.begin());
      list.push_back({fingerprint, pushes++});
    }
  }
}

}  // namespace
}  // namespace stemma
