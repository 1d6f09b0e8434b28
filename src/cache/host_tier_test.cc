// Names of host memory's namespaces follow the device's, and outlive their closing as pages do.
#include "cache/host_tier.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/clock.h"
#include "prefix/namespace_examples.h"

namespace stemma {
namespace {

class HostTierTest : public ::testing::Test {
 protected:
  HostTierTest() {
    KvCacheOptions options;
    options.page_size = 1;
    options.namespaces_max = 1024;
    host = HostTier::open(options, {.pages = 8}, clock).value();
  }

  void publish(NamespaceId ns, std::vector<TokenId> tokens) {
    auto pages = host->space().try_take(static_cast<std::int64_t>(tokens.size()));
    host->tree().insert(tokens, host->tree().match(ns, {}), std::move(*pages), {}).reset();
  }

  FakeClock clock;
  std::unique_ptr<HostTier> host;
};

TEST_F(HostTierTest, ANameOutlivesItsClosing) {
  host->open_namespace(NamespaceId(3), digest_of(1));
  const NamespaceId name = host->namespace_of(NamespaceId(3));
  publish(name, {1, 2});
  host->close_namespace(NamespaceId(3));
  EXPECT_EQ(host->namespace_of(NamespaceId(3)), name);
  EXPECT_EQ(host->tree().probe(name, std::vector<TokenId>{1, 2}).matched_tokens, 2);
}

TEST_F(HostTierTest, ANameThatWasGivenToAnotherIsNotBelieved) {
  host->open_namespace(NamespaceId(0), digest_of(1));
  host->close_namespace(NamespaceId(0));
  for (int i = 0; i < 1024; ++i) {
    EXPECT_TRUE(host->tree().try_open_namespace(digest_of(100 + i)).has_value());
  }
  EXPECT_FALSE(host->namespace_of(NamespaceId(0)).valid());
  EXPECT_FALSE(host->name_namespace(NamespaceId(0)).valid()) << "all are open";
}

TEST_F(HostTierTest, WhoLostItsNameGetsAnother) {
  host->open_namespace(NamespaceId(0), digest_of(1));
  host->close_namespace(NamespaceId(0));
  for (int i = 0; i < 1024; ++i) {
    host->tree().close_namespace(*host->tree().try_open_namespace(digest_of(100 + i)));
  }
  const NamespaceId name = host->name_namespace(NamespaceId(0));
  ASSERT_TRUE(name.valid());
  EXPECT_EQ(host->tree().digest(name), digest_of(1));
}

TEST_F(HostTierTest, PagesThatGoForANameAreCounted) {
  for (int i = 0; i < 1024; ++i) {
    const NamespaceId name = *host->tree().try_open_namespace(digest_of(100 + i));
    if (i < 8) {
      publish(name, {1});
      host->tree().close_namespace(name);
    }
  }
  host->open_namespace(NamespaceId(0), digest_of(1));
  EXPECT_TRUE(host->namespace_of(NamespaceId(0)).valid());
  EXPECT_GT(host->space().evicted_pages(), 0);
  EXPECT_EQ(host->space().evicted_pages() + host->tree().usage().total_tokens(), 8);
}

TEST_F(HostTierTest, TheDevicesNamesMayChangeTheirMeaning) {
  host->open_namespace(NamespaceId(0), digest_of(1));
  host->close_namespace(NamespaceId(0));
  host->open_namespace(NamespaceId(0), digest_of(2));
  EXPECT_EQ(host->tree().digest(host->namespace_of(NamespaceId(0))), digest_of(2));
}

// Of seven pages the five that others go on from are used with what one of them has.
TEST_F(HostTierTest, WhatANamespaceGoesOnFromIsUsedWithIt) {
  const std::vector<TokenId> shared = {1, 2, 3, 4, 5};
  host->open_namespace(NamespaceId(0), digest_of(0));
  host->open_namespace(NamespaceId(1), digest_of(1));
  publish(host->namespace_of(NamespaceId(0)), shared);
  publish(host->namespace_of(NamespaceId(1)), {6, 7});
  host->set_shared(NamespaceId(1), digest_of(0), shared);
  host->use_shared(NamespaceId(1));
  host->tree().evict(2).reset();
  EXPECT_EQ(host->tree().probe(host->namespace_of(NamespaceId(0)), shared).matched_tokens, 5);
}

TEST_F(HostTierTest, WhoGetsANameGoesOnFromNothing) {
  const std::vector<TokenId> shared = {1, 2, 3, 4, 5};
  host->open_namespace(NamespaceId(0), digest_of(0));
  host->open_namespace(NamespaceId(1), digest_of(1));
  publish(host->namespace_of(NamespaceId(0)), shared);
  host->set_shared(NamespaceId(1), digest_of(0), shared);
  host->close_namespace(NamespaceId(1));
  host->open_namespace(NamespaceId(1), digest_of(2));
  publish(host->namespace_of(NamespaceId(1)), {6, 7});
  host->use_shared(NamespaceId(1));
  host->tree().evict(2).reset();
  EXPECT_EQ(host->tree().probe(host->namespace_of(NamespaceId(0)), shared).matched_tokens, 3);
}

}  // namespace
}  // namespace stemma
