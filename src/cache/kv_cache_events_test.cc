// The events of a whole cache: what sequences publish and what reserving evicts, quarantine, reset;
// random requests, after which a mirror built from events alone has what the cache finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "cache/audit_hold.h"
#include "prefix/event_mirror.h"
#include "stemma/kv_cache.h"

namespace stemma {
namespace {

std::unique_ptr<KvCache> open_cache(std::int64_t events_pages_max, const char* cache = "radix",
                                    std::int64_t page_size = 2) {
  KvCacheOptions options;
  options.page_size = page_size;
  options.pages = 24;
  options.requests_max = 3;
  options.context_tokens_max = 64;
  options.cache = cache;
  options.events_pages_max = events_pages_max;
  return KvCache::open(options).value();
}

// A whole life: everything is computed and published.
void publish(KvCache& kv, NamespaceId ns, const Tokens& tokens) {
  Sequence sequence = *kv.begin(ns, tokens);
  ASSERT_TRUE(kv.reserve(sequence, std::ssize(tokens)));
  kv.finish(std::move(sequence), tokens);
}

std::map<PageKey, EventMirror::Page> found_by(KvCache& kv) {
  EventMirror mirror;
  kv.resend_events();
  kv.drain_events(mirror);
  return std::move(mirror.pages);
}

// Two tenants' texts behind what they share: pages of two tokens, of which `kShared` are three.
class SharedPrefixEvents : public testing::Test {
 protected:
  static constexpr std::int64_t kShared = 6;

  NamespaceId open_tenant(int tenant) {
    const SharedPrefix shared = {.digest = {{9}}, .tokens = kShared};
    return *kv_->try_open_namespace({{static_cast<std::uint8_t>(tenant)}}, &shared);
  }
  static Tokens text(TokenId own) { return counted(1, kShared) + counted(own, 5); }
  // What a router finds that goes from page to page by parent and tokens.
  std::int64_t router_finds(const Tokens& tokens) const {
    std::optional<PageKey> parent;
    for (std::size_t found = 0;; found += 2) {
      const auto next = std::ranges::find_if(mirror_.pages, [&](const auto& entry) {
        return found + 2 <= tokens.size() && entry.second.parent == parent &&
               std::ranges::equal(entry.second.tokens, std::span(tokens).subspan(found, 2));
      });
      if (next == mirror_.pages.end()) return static_cast<std::int64_t>(found);
      parent = next->first;
    }
  }
  void expect_told() {
    kv_->drain_events(mirror_);
    EXPECT_EQ(mirror_.pages, found_by(*kv_));
  }

  std::unique_ptr<KvCache> kv_ = open_cache(256);
  EventMirror mirror_;
};

TEST_F(SharedPrefixEvents, ATenantsTextContinuesWhatIsShared) {
  for (const int tenant : {1, 2}) publish(*kv_, open_tenant(tenant), text(50 * tenant));
  expect_told();
  EXPECT_EQ(mirror_.cleared_events, 0);
  EXPECT_EQ(mirror_.pages.size(), 7u);
  EXPECT_EQ(router_finds(text(50)), 10);
  EXPECT_EQ(router_finds(text(100)), 10);
  EXPECT_EQ(router_finds(counted(50, 5)), 0) << "no text begins so";
}

// The own part is published with a later commit than the last of what is shared.
TEST_F(SharedPrefixEvents, AChunkThatEndsWithWhatIsSharedHidesNothingBehindIt) {
  const Tokens tokens = text(50);
  Sequence sequence = *kv_->begin(open_tenant(1), tokens);
  for (const std::int64_t computed : {kShared, std::ssize(tokens)}) {
    ASSERT_TRUE(kv_->reserve(sequence, computed));
    kv_->commit(sequence, std::span(tokens).first(static_cast<std::size_t>(computed)));
  }
  kv_->drain_events(mirror_);
  EXPECT_EQ(router_finds(tokens), 10);
}

TEST_F(SharedPrefixEvents, WhatIsBehindASharedPartThatGoesIsFoundNoMore) {
  const NamespaceId ns = open_tenant(1);
  publish(*kv_, ns, text(50));
  expect_told();
  const NamespaceFamily shared = family_of(NamespaceDigest{{9}});
  ASSERT_TRUE(kv_->purge({&shared, 1}).ok());
  expect_told();
  EXPECT_EQ(router_finds(text(50)), 0);
  EXPECT_TRUE(mirror_.pages.empty());
  publish(*kv_, ns, text(50));
  expect_told();
  EXPECT_EQ(router_finds(text(50)), 10);
  EXPECT_EQ(mirror_.cleared_events, 0) << "what did not change is not told of";
  kv_->reset();
  expect_told();
  publish(*kv_, ns, text(70));
  expect_told();
  EXPECT_EQ(router_finds(text(70)), 10);
}

TEST_F(SharedPrefixEvents, OfManyTextsAreWhatTheCacheFinds) {
  Prng random(77);
  const NamespaceId spaces[] = {open_tenant(1), open_tenant(2), *kv_->try_open_namespace({{3}})};
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t turn = random.below(3);
    const auto own = static_cast<TokenId>(50 + 10 * random.below(4));
    const Tokens whole =
        random.below(8) == 0 ? counted(300, 41) : text(own) + counted(200, random.below(20));
    publish(*kv_, whole[0] == 300 ? spaces[2] : spaces[turn], whole);
    if (random.below(3) > 0) continue;
    kv_->drain_events(mirror_);
    ASSERT_EQ(mirror_.pages, found_by(*kv_)) << "after text " << i;
  }
}

// Of twelve tenants' texts behind six prefixes three fit. A prefix that was not used for a while
// goes before what is behind it, and comes back.
TEST_F(SharedPrefixEvents, WhereMoreIsSharedThanStaysOnlyWhatIsBehindItIsToldOfAnew) {
  Prng random(5);
  std::vector<NamespaceId> spaces;
  for (std::uint8_t tenant = 0; tenant < 12; ++tenant) {
    const SharedPrefix shared = {.digest = {{100, static_cast<std::uint8_t>(tenant % 6)}},
                                 .tokens = kShared};
    spaces.push_back(*kv_->try_open_namespace({{50, tenant}}, &shared));
  }
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t tenant = random.below(12);
    const Tokens whole = counted(static_cast<TokenId>(1000 * (tenant % 6)), kShared) +
                         counted(static_cast<TokenId>(50 + 10 * random.below(2)), 5);
    publish(*kv_, spaces[static_cast<std::size_t>(tenant)], whole);
    kv_->drain_events(mirror_);
    if (i % 10 == 0) {
      ASSERT_EQ(mirror_.pages, found_by(*kv_)) << "after text " << i;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(mirror_.removed_events, 500);
  EXPECT_EQ(mirror_.cleared_events, 0);
}

TEST(KvCacheEvents, PagesThatArePublishedAndEvictedAreToldOf) {
  const auto kv = open_cache(256);
  const NamespaceId ns = *kv->try_open_namespace({});
  EventMirror mirror;
  publish(*kv, ns, counted(1, 41));  // 20 full pages of 24
  kv->drain_events(mirror);
  EXPECT_EQ(mirror.pages.size(), 20u);
  publish(*kv, ns, counted(100, 30));  // evicts 11 of them
  kv->drain_events(mirror);
  EXPECT_EQ(mirror.pages.size(), 24u);
  EXPECT_EQ(mirror.removed_events, 1);
  EXPECT_EQ(mirror.pages, found_by(*kv));
  kv->reset();
  kv->drain_events(mirror);
  EXPECT_EQ(mirror.pages.size(), 0u);
  EXPECT_EQ(mirror.cleared_events, 1);
}

TEST(KvCacheEvents, PagesInQuarantineAreGone) {
  const auto kv = open_cache(256);
  const NamespaceId ns = *kv->try_open_namespace({});
  EventMirror mirror;
  publish(*kv, ns, counted(1, 8));
  CachedText text;
  text.ns = ns;
  text.tokens = counted(1, 8);
  kv->quarantine(text, 4);
  kv->drain_events(mirror);
  EXPECT_EQ(mirror.pages.size(), 1u);
  EXPECT_EQ(mirror.pages, found_by(*kv));
}

TEST(KvCacheEvents, ACacheThatKeepsNoneOrSharesNothingTellsNothing) {
  for (const auto& kv : {open_cache(0), open_cache(256, "none")}) {
    const NamespaceId ns = *kv->try_open_namespace({});
    EventMirror mirror;
    publish(*kv, ns, counted(1, 8));
    kv->drain_events(mirror);
    kv->resend_events();
    kv->drain_events(mirror);
    EXPECT_EQ(mirror.stored_events + mirror.removed_events + mirror.cleared_events, 0);
  }
}

TEST(KvCacheEvents, WrongSizesAreNamed) {
  KvCacheOptions options;
  options.pages = 4;
  options.events_pages_max = -1;
  EXPECT_EQ(KvCache::open(options).error().detail, "events_pages_max must be at least 0 (got -1)");
}

TEST(KvCacheEvents, RandomRequestsLeaveTheMirrorEqual) {
  constexpr std::uint64_t kSeed = 3;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const std::int64_t page_size : {1, 4}) {
    Prng prng(kSeed);
    const auto kv = open_cache(64, "radix", page_size);
    const NamespaceId ns = *kv->try_open_namespace({});
    EventMirror mirror;
    for (int i = 0; i < 5000; ++i) {
      Tokens text;
      for (std::int64_t token = prng.below(20); token >= 0; --token) {
        text.push_back(static_cast<TokenId>(prng.below(2)));
      }
      publish(*kv, ns, text);
      kv->drain_events(mirror);
      ASSERT_EQ(std::ssize(mirror.pages) * page_size, kv->usage().total_tokens());
      if (i % 100 == 0) {
        ASSERT_EQ(mirror.pages, found_by(*kv));
      }
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(kv->audit(), std::nullopt);
  }
}

}  // namespace
}  // namespace stemma
