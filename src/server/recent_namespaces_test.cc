// Which other salts and extra keys a tenant is told of, and who is not.
#include "server/recent_namespaces.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stemma {
namespace {

CacheFields fields(std::string salt, std::string extra_key) {
  CacheFields fields;
  fields.salt = std::move(salt);
  fields.extra_key = std::move(extra_key);
  return fields;
}

TEST(RecentNamespaces, AreATenantsOwnOfTheSameSaltLatestFirst) {
  RecentNamespaces recent;
  EXPECT_TRUE(recent.note("ann", fields("", "a"), false).empty());
  EXPECT_EQ(recent.note("ann", fields("", "b"), false).size(), 1u);
  const auto siblings = recent.note("ann", fields("", "c"), false);
  ASSERT_EQ(siblings.size(), 2u);
  EXPECT_EQ(siblings[0].extra_key, "b");
  EXPECT_EQ(siblings[1].extra_key, "a");
  EXPECT_EQ(siblings[0].field, "extra_key");
  EXPECT_TRUE(recent.note("bob", fields("", "a"), false).empty()) << "another tenant's";
  EXPECT_TRUE(recent.note("ann", fields("s", "a"), false).empty()) << "another salt's";
}

TEST(RecentNamespaces, WhoMaySeeAllIsToldOfSaltsToo) {
  RecentNamespaces recent;
  recent.note("ann", fields("s", ""), false);
  recent.note("ann", fields("t", "k"), false);
  const auto siblings = recent.note("ann", fields("", ""), true);
  ASSERT_EQ(siblings.size(), 2u);
  EXPECT_EQ(siblings[0].field, "cache_salt, extra_key");
  EXPECT_EQ(siblings[1].field, "cache_salt");
}

TEST(RecentNamespaces, OneThatIsAskedAgainAndAgainIsRememberedOnce) {
  RecentNamespaces recent;
  recent.note("ann", fields("", "a"), false);
  for (int i = 0; i < 100; ++i) recent.note("ann", fields("", "b"), false);
  const auto siblings = recent.note("ann", fields("", "c"), false);
  ASSERT_EQ(siblings.size(), 2u);
  EXPECT_EQ(siblings[1].extra_key, "a");
}

TEST(RecentNamespaces, AFewAreRemembered) {
  RecentNamespaces recent;
  for (int i = 0; i < 100; ++i) recent.note("ann", fields("", std::to_string(i)), false);
  EXPECT_EQ(recent.note("ann", fields("", ""), false).size(), RecentNamespaces::kKept);
}

}  // namespace
}  // namespace stemma
