// Tenants within their quotas keep what they have while anybody else has pages to give.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.h"
#include "prefix/prefix_fixture.h"
#include "prefix/random_life.h"

namespace stemma {
namespace {

NamespaceFamily tenant(int byte) {
  return family_of(digest_of(byte));
}

// Three tenants with a namespace each: `ours`, `theirs`, and the fixture's own, which has no quota.
// The first pages of all texts have tokens of their own.
class RadixQuotas : public testing::TestWithParam<const char*> {
 protected:
  void add(NamespaceId ns, const Tokens& tokens) { f.begin_in(ns, tokens).reset(); }
  void add_other(const Tokens& tokens) { f.add(tokens); }
  std::int64_t probe(NamespaceId ns, const Tokens& tokens) const {
    return f.cache->probe(ns, tokens).matched_tokens;
  }
  std::int64_t pages_of(int byte) const {
    for (const TenantQuota& quota : f.cache->quotas()) {
      if (quota.family == tenant(byte)) return quota.pages;
    }
    return -1;
  }

  // What eviction gives, whichever of a leaf's pages it takes first.
  std::vector<int> evict_some(std::int64_t pages) {
    std::vector<int> ids = f.evict(pages);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  PrefixFixture f{{.eviction = GetParam()}};
  NamespaceId ours = *f.cache->try_open_namespace(digest_of(1));
  NamespaceId theirs = *f.cache->try_open_namespace(digest_of(2));
};

TEST_P(RadixQuotas, WithoutAQuotaTheOrderIsEverybodys) {
  add(ours, {1});
  add_other({2});
  add(theirs, {3});
  EXPECT_EQ(f.evict(3), (std::vector{0, 1, 2}));
  EXPECT_TRUE(f.cache->quotas().empty());
}

TEST_P(RadixQuotas, ATenantWithinItsQuotaIsSparedWhileAnotherHasPages) {
  f.cache->set_quota(tenant(1), 2);
  add(ours, {1, 2});  // @0-1, the coldest
  add_other({3, 4});
  add(theirs, {5});
  EXPECT_EQ(evict_some(3), (std::vector{2, 3, 4}));
  EXPECT_EQ(f.draw(), R"(
namespace 0
namespace 1
  [1|2] @0-1
namespace 2
)");
  EXPECT_EQ(pages_of(1), 2);
}

TEST_P(RadixQuotas, AQuotaIsNoLimitWhileThereIsRoom) {
  f.cache->set_quota(tenant(1), 2);
  add(ours, counted(1, 60));
  EXPECT_EQ(probe(ours, counted(1, 60)), 60);
  EXPECT_EQ(pages_of(1), 60);
}

TEST_P(RadixQuotas, WhoIsAtHisQuotaPaysWhenNobodyElseCan) {
  f.cache->set_quota(tenant(1), 2);
  add(ours, {1, 2});
  add_other({3});
  EXPECT_EQ(f.evict(2), (std::vector{2, 1}));
  EXPECT_EQ(f.evict(5), (std::vector{0}));
}

TEST_P(RadixQuotas, WhatGoesBeyondAQuotaPaysInEverybodysOrder) {
  f.cache->set_quota(tenant(1), 2);
  add_other({9});     // @0
  add(ours, {1, 2});  // @1-2
  add(ours, {3, 4});  // @3-4
  add_other({8});     // @5
  EXPECT_EQ(evict_some(4), (std::vector{0, 1, 2, 5}));
  EXPECT_EQ(probe(ours, {3, 4}), 2) << "it is within its quota now";
}

TEST_P(RadixQuotas, OfALeafOnlyWhatIsBeyondTheQuotaGoes) {
  f.cache->set_quota(tenant(1), 3);
  add(ours, {1, 2, 3, 4, 5});  // @0-4
  add_other({9});              // @5
  EXPECT_EQ(evict_some(3), (std::vector{3, 4, 5}));
  EXPECT_EQ(probe(ours, {1, 2, 3, 4, 5}), 3);
}

// [1] and [2] were spared once. Who then takes more than his quota pays with these first, though
// others' pages are as cold.
TEST_P(RadixQuotas, WhoIsOverHisQuotaLosesFirstWhatWasSpared) {
  f.cache->set_quota(tenant(1), 2);
  add(ours, {1});
  add(ours, {2});
  add_other({8});  // @2
  add_other({9});  // @3
  EXPECT_EQ(f.evict(1), (std::vector{2}));
  add(ours, {3, 4});  // on @2 and a new page: two beyond
  EXPECT_EQ(f.evict(1), (std::vector{0}));
  EXPECT_EQ(f.evict(2), (std::vector{1, 3}));
  EXPECT_EQ(probe(ours, {3, 4}), 2);
}

// Both were spared with two pages, and have four now.
TEST_P(RadixQuotas, OfThoseOverTheirQuotasTheFullestLosesFirst) {
  f.cache->set_quota(tenant(1), 3);
  f.cache->set_quota(tenant(2), 2);
  add(ours, {1, 2});    // @0-1
  add(theirs, {3, 4});  // @2-3
  add_other({9});       // @4
  EXPECT_EQ(f.evict(1), (std::vector{4}));
  add(ours, {5, 6});    // 4 of 3
  add(theirs, {7, 8});  // 4 of 2
  EXPECT_EQ(f.evict(2), (std::vector{2, 3}));
  EXPECT_EQ(f.evict(1), (std::vector{1}));
}

TEST_P(RadixQuotas, AmongTenantsWithinTheirQuotasTheOneSparedLongestPays) {
  f.cache->set_quota(tenant(1), 9);
  f.cache->set_quota(tenant(2), 9);
  add(theirs, {1});
  add(ours, {2});
  add(theirs, {3});
  EXPECT_EQ(f.evict(3), (std::vector{0, 1, 2}));
}

TEST_P(RadixQuotas, LockedPagesCountAndStay) {
  f.cache->set_quota(tenant(1), 2);
  const PrefixLock lock = f.begin_in(ours, {1, 2});
  add(ours, {3});
  add_other({9});
  EXPECT_EQ(f.evict(1), (std::vector{2})) << "the third of two";
  EXPECT_EQ(f.evict(5), (std::vector{3}));
}

// Spared in the order 1, 2; then 1 is used again, which is hot in everybody's order.
TEST(RadixQuotasUnderLru, ASparedLeafThatIsUsedAgainIsAsHotAsAnyOther) {
  PrefixFixture lru;
  const NamespaceId ns = *lru.cache->try_open_namespace(digest_of(1));
  lru.cache->set_quota(tenant(1), 2);
  lru.begin_in(ns, {1}).reset();
  lru.begin_in(ns, {2}).reset();
  lru.add({9});
  EXPECT_EQ(lru.evict(1), (std::vector{2}));
  EXPECT_EQ(lru.cache->match(ns, Tokens{1}).tokens(), 1);
  EXPECT_EQ(lru.evict(2), (std::vector{1, 0}));
}

// Holding is no use: who looks at what goes next, to copy it, must not change what that is.
TEST_P(RadixQuotas, ASparedLeafThatWasHeldAndNotUsedKeepsItsPlace) {
  f.cache->set_quota(tenant(1), 9);
  for (TokenId text = 0; text < 4; ++text) add(ours, {text});
  add_other({9});  // @4
  EXPECT_EQ(f.evict(1), (std::vector{4}));
  {
    const auto first = f.cache->try_lock_coldest();
    const auto second = f.cache->try_lock_coldest();
    EXPECT_EQ(f.ids(first->lock), (std::vector{0}));
    EXPECT_EQ(f.ids(second->lock), (std::vector{1}));
  }
  auto audited = f.cache->try_lock(ours, digest_of(1), Tokens{2});
  audited.reset();
  EXPECT_EQ(f.evict(4), (std::vector{0, 1, 2, 3}));
}

TEST_P(RadixQuotas, WhatGoesNextIsWhatIsLockedAsTheColdest) {
  f.cache->set_quota(tenant(1), 2);
  add(ours, {1});
  add_other({8});
  add(theirs, {9});
  std::vector<PrefixLock> locks;
  std::vector<int> order;
  while (auto cold = f.cache->try_lock_coldest()) {
    order.push_back(f.ids(cold->lock).back());
    locks.push_back(std::move(cold->lock));
  }
  EXPECT_EQ(order, (std::vector{1, 2, 0}));
}

TEST_P(RadixQuotas, WhatIsWantedGoesAfterWhatIsSpared) {
  f.cache->set_quota(tenant(1), 2);
  add(ours, {1});
  add_other({8});
  add_other({9});
  EXPECT_EQ(f.evict(1), (std::vector{1})) << "[1] is spared";
  f.cache->want(f.ns, Tokens{9}, 0);
  EXPECT_EQ(f.evict(1), (std::vector{0}));
  EXPECT_EQ(f.evict(1), (std::vector{2}));
}

TEST_P(RadixQuotas, ASparedLeafMayBeWantedAndForgottenAgain) {
  f.cache->set_quota(tenant(1), 3);
  add(ours, {1});
  add(ours, {2, 3});
  add_other({9});
  EXPECT_EQ(f.evict(1), (std::vector{3}));
  f.cache->want(ours, Tokens{1}, 0);
  f.cache->want(ours, Tokens{2, 7}, 1);
  EXPECT_EQ(f.cache->audit(), std::nullopt);
  f.cache->forget_wants();
  EXPECT_EQ(f.evict(3), (std::vector{0, 1, 2}));
}

TEST_P(RadixQuotas, OfASparedLeafThatIsWantedInPartTheRestGoesFirst) {
  f.cache->set_quota(tenant(1), 3);
  add(ours, {1, 2, 3});
  add_other({9});
  EXPECT_EQ(f.evict(1), (std::vector{3}));
  f.cache->want(ours, Tokens{1, 7}, 0);
  f.cache->want(f.ns, Tokens{9}, 1);
  EXPECT_EQ(f.evict(2), (std::vector{1, 2}));
  EXPECT_EQ(f.evict(1), (std::vector{0}));
}

// Before: [1|2|3] is spared. A request that shares a page of it cuts it.
TEST_P(RadixQuotas, ASparedLeafMayBeCut) {
  f.cache->set_quota(tenant(1), 5);
  add(ours, {1, 2, 3});
  add_other({9});
  EXPECT_EQ(f.evict(1), (std::vector{3}));
  add(ours, {1, 8});  // on @3
  EXPECT_EQ(f.draw(), R"(
namespace 0
namespace 1
  [1] @0
    [2|3] @1-2
    [8] @3
namespace 2
)");
  EXPECT_EQ(pages_of(1), 4);
  EXPECT_EQ(f.evict(9), (std::vector{1, 2, 3, 0}));
}

TEST_P(RadixQuotas, ASparedLeafMayBeDiscarded) {
  f.cache->set_quota(tenant(1), 3);
  add(ours, {1, 2, 3});
  add_other({9});
  f.evict(1);
  EXPECT_TRUE(f.cache->try_discard(ours, Tokens{1, 2, 3}, 1));
  EXPECT_EQ(pages_of(1), 1);
  EXPECT_EQ(f.evict(9), (std::vector{0}));
}

TEST_P(RadixQuotas, WhatIsSparedMayBePurged) {
  f.cache->set_quota(tenant(1), 9);
  f.cache->set_quota(tenant(2), 9);
  add(ours, {1});
  PrefixLock lock = f.begin_in(ours, {2});
  add(theirs, {3});
  add_other({9});
  EXPECT_EQ(f.evict(1), (std::vector{3}));
  const std::vector<NamespaceFamily> purged = {tenant(1)};
  EXPECT_EQ(f.cache->purge(purged), 2);
  EXPECT_EQ(f.cache->audit(), std::nullopt);
  EXPECT_EQ(pages_of(1), 1) << "somebody holds it still";
  lock.reset();
  EXPECT_EQ(pages_of(1), 0);
  EXPECT_EQ(f.evict(9), (std::vector{2}));
}

TEST_P(RadixQuotas, WhatIsSparedMayBePutInQuarantine) {
  f.cache->set_quota(tenant(1), 9);
  add(ours, {1, 2});
  add(ours, {3});
  add_other({9});
  EXPECT_EQ(f.evict(1), (std::vector{3}));
  std::vector<PageKey> keys;
  f.cache->quarantine(ours, Tokens{1, 2}, 1, keys);
  EXPECT_EQ(pages_of(1), 2);
  EXPECT_EQ(evict_some(9), (std::vector{0, 2}));
}

// The namespace of `ours` is closed and empty, and its name goes to another tenant's.
TEST_P(RadixQuotas, ARenamedNamespaceIsItsNewTenants) {
  f.cache->set_quota(tenant(1), 2);
  f.cache->set_quota(tenant(7), 2);
  add(ours, {1, 2});
  f.evict(2);
  EXPECT_EQ(pages_of(1), 0);
  f.cache->close_namespace(ours);
  EXPECT_TRUE(f.cache->try_open_namespace(digest_of(8)).has_value());
  const NamespaceId renamed = *f.cache->try_open_namespace(digest_of(7));
  EXPECT_EQ(renamed, ours);
  add(renamed, {3, 4});
  EXPECT_EQ(pages_of(1), 0);
  EXPECT_EQ(pages_of(7), 2);
  add_other({9});
  EXPECT_EQ(f.evict(1), (std::vector{2}));
}

TEST_P(RadixQuotas, ATenantsNamespacesShareItsQuota) {
  NamespaceDigest salted = digest_of(1);
  salted.bytes[31] = 1;
  const NamespaceId second = *f.cache->try_open_namespace(salted);
  f.cache->set_quota(tenant(1), 3);
  add(ours, {1, 2});
  add(second, {3, 4});
  add_other({9});
  EXPECT_EQ(pages_of(1), 4);
  EXPECT_EQ(f.evict(2), (std::vector{1, 4}));
}

// Each has pages by then, some of them in quarantine, and one had a quota before.
TEST_P(RadixQuotas, ManyMayBeGivenAtOnce) {
  f.cache->set_quota(tenant(1), 1);
  const PrefixLock held = f.begin_in(theirs, {1, 2, 3});
  add(ours, {4, 5});
  add(theirs, {1, 2, 7, 8});
  add_other({9});
  std::vector<PageKey> keys;
  f.cache->quarantine(theirs, Tokens{1, 2, 3}, 2, keys);
  const std::vector<TenantQuota> quotas = {{.family = tenant(2), .quota_pages = 5},
                                           {.family = tenant(1), .quota_pages = 2},
                                           {.family = tenant(0), .quota_pages = 0},
                                           {.family = tenant(6), .quota_pages = 3}};
  f.cache->set_quotas(quotas);
  EXPECT_EQ(f.cache->quotas().size(), 4u);
  EXPECT_EQ(pages_of(1), 2);
  EXPECT_EQ(pages_of(2), 5);
  EXPECT_EQ(pages_of(0), 1);
  EXPECT_EQ(pages_of(6), 0);
  EXPECT_EQ(f.cache->audit(), std::nullopt);
  EXPECT_EQ(f.cache->evict(1).pages(), 1);
  EXPECT_EQ(pages_of(0), 0) << "the others are within their quotas";
}

// What is cached when a quota is first given counts, and leaves that were spared stay so.
TEST_P(RadixQuotas, AQuotaMayBeGivenAndChangedAtAnyTime) {
  add(ours, {1, 2});
  add(theirs, {3, 4});
  add_other({9});
  f.cache->set_quota(tenant(2), 2);
  EXPECT_EQ(pages_of(2), 2);
  f.cache->set_quota(tenant(1), 2);
  EXPECT_EQ(pages_of(1), 2);
  EXPECT_EQ(f.evict(1), (std::vector{4}));
  f.cache->set_quota(tenant(2), 1);
  EXPECT_EQ(f.evict(1), (std::vector{3}));
  f.cache->set_quota(tenant(2), 0);
  EXPECT_EQ(f.evict(1), (std::vector{2})) << "it is sure of nothing";
  EXPECT_EQ(f.evict(9), (std::vector{0, 1}));
}

// Whether there is a leaf that may go of a tenant over its quota, or without one.
bool has_leaf_to_spare(const RadixPrefixCache& cache) {
  const std::vector<TenantQuota> quotas = cache.quotas();
  for (const TreeNode& node : cache.hottest_nodes(cache.nodes()).nodes) {
    if (node.children > 0 || node.lock_count > 0) continue;
    const auto within = [&](const TenantQuota& quota) {
      return quota.family == family_of(node.digest) && quota.pages <= quota.quota_pages;
    };
    if (std::none_of(quotas.begin(), quotas.end(), within)) return true;
  }
  return false;
}

// Everything that can happen, while quotas come and change.
TEST_P(RadixQuotas, HoldThroughARandomLife) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  RandomLife life({.page_size = 2, .pages = 90, .eviction = GetParam()}, kSeed);
  RadixPrefixCache& cache = *life.f.cache;
  Prng prng(kSeed + 1);
  std::int64_t spared = 0;
  std::int64_t lost = 0;
  for (int i = 0; i < 6000; ++i) {
    if (prng.below(200) == 0) {
      cache.set_quota(tenant(static_cast<int>(prng.below(9))), prng.below(40));
    }
    life.step();
    if (prng.below(3) == 0) {
      const std::int64_t evictable = cache.usage().evictable_tokens / 2;
      const std::int64_t wanted = prng.below(6);
      const std::vector<TenantQuota> before = cache.quotas();
      EXPECT_EQ(std::ssize(life.f.evict(wanted)), std::min(wanted, evictable));
      const std::vector<TenantQuota> after = cache.quotas();
      for (std::size_t t = 0; t < before.size(); ++t) {
        const bool within = after[t].pages < std::min(before[t].pages, before[t].quota_pages);
        EXPECT_FALSE(within && has_leaf_to_spare(cache)) << "operation " << i;
        ++(within ? lost : spared);
      }
    }
    ASSERT_EQ(cache.audit(), std::nullopt) << "operation " << i;
  }
  EXPECT_GT(spared, 100);
  EXPECT_GT(lost, 100);
}

INSTANTIATE_TEST_SUITE_P(Orders, RadixQuotas, testing::Values("lru", "hazard"),
                         [](const auto& order) { return std::string(order.param); });

}  // namespace
}  // namespace stemma
