// Names of namespaces when all are given: who gives his, what he loses, and that nobody else does.
#include <gtest/gtest.h>

#include <vector>

#include "base/clock.h"
#include "prefix/event_mirror.h"
#include "prefix/prefix_fixture.h"

namespace stemma {
namespace {

// Four names: the fixture's own, which stays open, and three that are closed again.
class RadixNames : public testing::TestWithParam<const char*> {
 protected:
  // A request of that namespace comes and ends.
  NamespaceId use(int byte, const Tokens& tokens) {
    const NamespaceId ns = *f.cache->try_open_namespace(digest_of(byte));
    f.begin_in(ns, tokens).reset();
    f.cache->close_namespace(ns);
    return ns;
  }
  std::int64_t found(int byte, const Tokens& tokens) const {
    return f.cache->probe_by_digest(digest_of(byte), tokens).matched_tokens;
  }
  void set_quota(int byte, std::int64_t pages) {
    f.cache->set_quota(family_of(digest_of(byte)), pages);
  }
  // Opens a new one; the pages that go for its name.
  std::int64_t open_new(int byte) {
    OwnedPages evicted;
    EXPECT_TRUE(f.cache->try_open_namespace(digest_of(byte), &evicted).has_value());
    return evicted.pages();
  }

  FakeClock clock;
  PrefixFixture f{{.eviction = GetParam(), .clock = &clock, .events_pages_max = 64}};
};

TEST_P(RadixNames, TheNamespaceUsedLeastLatelyLosesWhatItHasAndNobodyElseAnything) {
  f.add({1, 2, 3, 4});
  for (const int byte : {1, 2, 3}) use(byte, {1, 2});
  use(1, {1, 2, 3});
  EXPECT_EQ(open_new(4), 2);
  EXPECT_EQ(found(2, {1, 2}), 0);
  EXPECT_EQ(found(1, {1, 2, 3}), 3);
  EXPECT_EQ(found(3, {1, 2}), 2);
  EXPECT_EQ(f.probe({1, 2, 3, 4}), 4) << "older, and open";
}

TEST_P(RadixNames, OneThatHasNothingGivesItsNameFirst) {
  use(1, {1, 2});
  use(2, {1, 2});
  use(3, {});
  EXPECT_EQ(open_new(4), 0);
  EXPECT_EQ(found(1, {1, 2}), 2);
  EXPECT_EQ(found(2, {1, 2}), 2);
}

TEST_P(RadixNames, OneOfWhichEverythingWasEvictedHasNothing) {
  use(1, {1, 2});
  use(2, {3});
  use(3, {4});
  EXPECT_TRUE(f.cache->try_discard(*f.cache->find_namespace(digest_of(3)), Tokens{4}, 0));
  EXPECT_EQ(open_new(4), 0);
  EXPECT_EQ(found(1, {1, 2}), 2);
}

TEST_P(RadixNames, OneThatIsFilledWhileItIsClosedCountsAsUsed) {
  const NamespaceId ns = *f.cache->try_open_namespace(digest_of(1));
  PrefixLock held = f.cache->match(ns, Tokens{1, 2});
  f.cache->close_namespace(ns);
  use(2, {1, 2});
  use(3, {1, 2});
  f.publish(std::move(held), {1, 2}).reset();  // a copy that lands late
  EXPECT_EQ(open_new(4), 2);
  EXPECT_EQ(found(1, {1, 2}), 2);
  EXPECT_EQ(found(2, {1, 2}), 0);
}

TEST_P(RadixNames, WhatSomebodyHoldsStays) {
  const PrefixLock held = f.begin_in(use(1, {}), {1, 2});
  use(2, {1});
  use(3, {1});
  EXPECT_EQ(open_new(4), 1);
  EXPECT_EQ(found(1, {1, 2}), 2);
  EXPECT_EQ(found(2, {1}), 0);
}

TEST_P(RadixNames, WhatGoesIsToldToWhoFollowsTheCache) {
  EventMirror mirror;
  for (const int byte : {1, 2, 3}) use(byte, {1, 2, byte});
  use(1, {1, 7});
  f.cache->drain_events(mirror);
  EXPECT_EQ(mirror.pages.size(), 10u);
  EXPECT_EQ(open_new(4), 3);
  f.cache->drain_events(mirror);
  EXPECT_EQ(mirror.pages.size(), 7u);
  EXPECT_EQ(mirror.cleared_events, 0);
}

TEST_P(RadixNames, LookingForANamespaceOpensNone) {
  use(1, {1, 2});
  use(2, {1});
  EXPECT_EQ(f.cache->find_namespace(digest_of(9)), std::nullopt);
  EXPECT_TRUE(f.cache->find_namespace(digest_of(1)).has_value());
  EXPECT_EQ(open_new(3), 0) << "the fourth name";
  EXPECT_EQ(open_new(4), 2) << "no use of the first one";
}

TEST_P(RadixNames, ATenantWithinItsQuotaLosesNothingForANameWhileOthersCan) {
  use(1, {1, 2});
  set_quota(1, 2);
  use(2, {1});
  use(3, {1});
  EXPECT_EQ(open_new(4), 1);
  EXPECT_EQ(open_new(5), 1);
  EXPECT_EQ(found(1, {1, 2}), 2);
}

TEST_P(RadixNames, WhereOnlyTenantsWithinTheirQuotasHaveAnyTheOneUsedLeastLatelyLosesIt) {
  for (const int byte : {1, 2, 3}) {
    use(byte, {1, 2});
    set_quota(byte, 2);
  }
  EXPECT_EQ(open_new(4), 2);
  EXPECT_EQ(found(1, {1, 2}), 0);
  EXPECT_EQ(found(2, {1, 2}), 2);
  EXPECT_EQ(found(3, {1, 2}), 2);
}

TEST_P(RadixNames, OfATenantBeyondItsQuotaOneGoesWithoutWhichItStillHasIt) {
  set_quota(1, 2);
  use(1, {1, 2, 3, 4});
  set_quota(2, 1);
  use(2, {1, 2});
  use(3, {1});
  EXPECT_EQ(open_new(4), 1);
  EXPECT_EQ(found(1, {1, 2, 3, 4}), 4) << "all of it is in one";
  EXPECT_EQ(found(2, {1, 2}), 2);
}

TEST_P(RadixNames, ATenantBeyondItsQuotaLosesWhatItHasBeforeOneWithinDoes) {
  set_quota(1, 2);
  use(1, {1, 2});
  set_quota(2, 2);
  use(2, {1, 2, 3});
  set_quota(3, 1);
  use(3, {1});
  EXPECT_EQ(open_new(4), 3);
  EXPECT_EQ(found(1, {1, 2}), 2);
  EXPECT_EQ(found(3, {1}), 1);
}

INSTANTIATE_TEST_SUITE_P(Orders, RadixNames, testing::Values("lru", "mru", "hazard", "s3fifo"),
                         [](const auto& order) { return std::string(order.param); });

// Of the names of a large tree one in 64 goes at once, for finding their nodes is a look at all.
TEST(RadixNamesOfManyTenants, GoManyAtOnce) {
  PrefixFixture f({.pages = 256, .namespaces_max = 192});
  const auto use = [&](int byte) {
    const NamespaceId ns = *f.cache->try_open_namespace(digest_of(byte));
    f.begin_in(ns, {1}).reset();
    f.cache->close_namespace(ns);
  };
  for (int byte = 1; byte < 193; ++byte) use(byte);
  const auto found = [&](int byte) {
    return f.cache->probe_by_digest(digest_of(byte), Tokens{1}).matched_tokens;
  };
  for (const int byte : {1, 2, 3}) EXPECT_EQ(found(byte), 0);
  EXPECT_EQ(found(4), 1);
  use(193);
  use(194);
  EXPECT_EQ(found(4), 1) << "two names were left";
  use(195);
  EXPECT_EQ(found(4), 0);
  EXPECT_EQ(f.cache->usage().total_tokens(), 189 + 3 - 3);
}

// All of a tenant: where its namespaces are used least lately of 192, three would go at once.
TEST(RadixNamesOfManyTenants, OfOneTenantNoMoreGoThanItHasBeyondItsQuota) {
  PrefixFixture f({.pages = 256, .namespaces_max = 192});
  const auto name = [](int byte, int salt) {
    NamespaceDigest digest = digest_of(byte);
    digest.bytes.back() = static_cast<std::uint8_t>(salt);
    return digest;
  };
  const auto use = [&](const NamespaceDigest& digest) {
    const NamespaceId ns = *f.cache->try_open_namespace(digest);
    f.begin_in(ns, {1}).reset();
    f.cache->close_namespace(ns);
  };
  const auto found = [&](const NamespaceDigest& digest) {
    return f.cache->probe_by_digest(digest, Tokens{1}).matched_tokens;
  };
  f.cache->set_quota(family_of(digest_of(1)), 2);
  for (const int salt : {1, 2, 3, 4}) use(name(1, salt));
  for (int salt = 1; salt < 189; ++salt) use(name(2, salt));
  EXPECT_EQ(found(name(1, 1)) + found(name(1, 2)), 0);
  EXPECT_EQ(found(name(1, 3)) + found(name(1, 4)), 2) << "its quota";
  EXPECT_EQ(found(name(2, 1)), 0) << "the next one";
  EXPECT_EQ(found(name(2, 2)), 1);
  for (int salt = 1; salt < 250; ++salt) use(name(3, salt));
  EXPECT_EQ(found(name(1, 3)) + found(name(1, 4)), 2);
}

// What was noted of the namespace that had a name before is not told of the one that has it now.
TEST(RadixNamesOfManyTenants, TellNothingOfEachOther) {
  FakeClock clock;
  PrefixFixture f({.clock = &clock, .evicted_marks = 16});
  for (const int byte : {1, 2, 3}) {
    const NamespaceId ns = *f.cache->try_open_namespace(digest_of(byte));
    f.begin_in(ns, {byte, 2}).reset();
    f.cache->close_namespace(ns);
  }
  f.evict(6);
  const NamespaceId before = *f.cache->find_namespace(digest_of(1));
  EXPECT_EQ(f.cache->why_ends(before, Tokens{1, 2, 3}).end, PrefixEnd::kEvicted);
  for (const int byte : {4, 5, 6}) {
    const NamespaceId ns = *f.cache->try_open_namespace(digest_of(byte));
    for (const int first : {1, 2, 3}) {
      EXPECT_EQ(f.cache->why_ends(ns, Tokens{first, 2, 3}).end, PrefixEnd::kCold);
    }
  }
}

}  // namespace
}  // namespace stemma
