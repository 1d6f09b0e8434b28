// What holds under every page policy, whatever it prefers: random requests side by side, some of
// which never end.
#include "prefix/page_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/prng.h"
#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kPages = 48;
constexpr std::int64_t kPageTokens = 2;

class PagePolicies : public testing::TestWithParam<const char*> {};

struct Running {
  Tokens text;
  PrefixLock lock;
};

Tokens random_text(Prng& random) {
  Tokens text(static_cast<std::size_t>(kPageTokens * (1 + random.below(9))));
  for (TokenId& token : text) token = random.below(4) == 0 ? 1 : 0;
  return text;
}

TEST_P(PagePolicies, GiveAsManyPagesAsThereAreAndNoneThatIsHeld) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  Prng random(kSeed);
  PrefixFixture cache({.page_size = kPageTokens, .pages = kPages, .eviction = GetParam()});
  std::vector<Running> running;
  std::int64_t evicted_pages = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::int64_t choice = random.below(8);
    if (choice < 4 && running.size() < 3) {
      Tokens text = random_text(random);
      PrefixLock lock = cache.begin(text);
      running.push_back({std::move(text), std::move(lock)});
    } else if (choice < 6 && !running.empty()) {
      if (choice == 4) cache.cache->complete(running.front().lock, {});
      running.erase(running.begin());
    } else {
      const std::int64_t there = cache.cache->usage().evictable_tokens / kPageTokens;
      const std::int64_t asked = random.below(8);
      ASSERT_EQ(std::ssize(cache.evict(asked)), std::min(asked, there)) << i;
      evicted_pages += std::min(asked, there);
    }
    ASSERT_EQ(cache.cache->audit(), std::nullopt) << i;
    for (const Running& request : running) {
      ASSERT_EQ(cache.probe(request.text), std::ssize(request.text)) << i;
    }
  }
  EXPECT_GT(evicted_pages, 10 * kPages);
}

INSTANTIATE_TEST_SUITE_P(Every, PagePolicies, testing::Values("tlru", "s3fifo", "hazard"),
                         [](const auto& policy) { return std::string(policy.param); });

}  // namespace
}  // namespace stemma
