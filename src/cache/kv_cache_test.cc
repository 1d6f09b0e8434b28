// Covers KvCache verb by verb: what each holds, publishes, evicts and gives back, and that each
// either happens or changes nothing. The audit runs after every step of every test.
#include "stemma/kv_cache.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/resident_bytes.h"
#include "cache/audit_hold.h"
#include "prefix/prefix_fixture.h"
#include "stemma/lower_tiers.h"
#include "tier/transfer_lanes.h"

namespace stemma {
namespace {

using testing::HasSubstr;

class KvCacheTest : public ::testing::Test {
 protected:
  void open(std::int64_t page_size, std::int64_t pages, const char* cache = "radix",
            const char* eviction = "lru") {
    KvCacheOptions options;
    options.eviction = eviction;
    options.page_size = page_size;
    options.pages = pages;
    options.requests_max = 3;
    options.context_tokens_max = 64;
    options.cache = cache;
    options.namespaces_max = 1024;
    auto opened = KvCache::open(options);
    ASSERT_TRUE(opened.ok()) << to_string(opened.error());
    kv_ = std::move(opened).value();
    ns_ = *kv_->try_open_namespace({});
  }

  void TearDown() override { audit(); }

  void audit() {
    const auto contradiction = kv_->audit();
    ASSERT_FALSE(contradiction.has_value()) << *contradiction;
  }

  Sequence begin(const std::vector<TokenId>& tokens) {
    auto sequence = kv_->begin(ns_, tokens);
    EXPECT_TRUE(sequence.has_value());
    return std::move(*sequence);
  }

  // A whole life: everything is computed and published.
  void publish(const std::vector<TokenId>& tokens) {
    Sequence sequence = begin(tokens);
    ASSERT_TRUE(kv_->reserve(sequence, static_cast<std::int64_t>(tokens.size())));
    kv_->finish(std::move(sequence), tokens);
    audit();
  }

  std::unique_ptr<KvCache> kv_;
  NamespaceId ns_;
};

TEST(KvCacheOptions, WrongValuesAreNamed) {
  const auto detail = [](auto change) {
    KvCacheOptions options;
    options.pages = 4;
    change(options);
    const auto opened = KvCache::open(options);
    return opened.ok() ? std::string("opened") : opened.error().detail;
  };
  EXPECT_EQ(detail([](KvCacheOptions& o) { o.page_size = 0; }),
            "page_size must be at least 1 (got 0)");
  EXPECT_EQ(detail([](KvCacheOptions& o) { o.pages = 0; }), "pages must be at least 1 (got 0)");
  EXPECT_EQ(detail([](KvCacheOptions& o) { o.pages = 1 << 30; }),
            "pages must be at most 1073741823 (got 1073741824)");
  EXPECT_EQ(detail([](KvCacheOptions& o) { o.requests_max = 0; }),
            "requests_max must be at least 1 (got 0)");
  EXPECT_NE(detail([](KvCacheOptions& o) { o.cache = "x"; }).find("radix"), std::string::npos);
  EXPECT_NE(detail([](KvCacheOptions& o) { o.eviction = "x"; }).find("lru"), std::string::npos);
}

TEST_F(KvCacheTest, AtMostAllTokensButOneAreFound) {
  open(4, 16);
  publish(counted(0, 12));
  EXPECT_EQ(kv_->probe(ns_, counted(0, 12)), 8);
  EXPECT_EQ(kv_->probe(ns_, counted(0, 13)), 12);
  Sequence sequence = begin(counted(0, 12));
  EXPECT_EQ(sequence.cached_tokens(), 8);
  EXPECT_EQ(sequence.capacity_tokens(), 8);
  audit();
}

TEST_F(KvCacheTest, OnlyComputedFullPagesArePublished) {
  open(4, 16);
  Sequence sequence = begin(counted(0, 20));
  ASSERT_TRUE(kv_->reserve(sequence, 20));
  kv_->commit(sequence, counted(0, 7));
  EXPECT_EQ(sequence.published_tokens(), 4);
  EXPECT_EQ(kv_->probe(ns_, counted(0, 20)), 4);
  sequence.reset();
  EXPECT_EQ(kv_->usage().total_tokens(), 4) << "the tail is freed, what is published stays";
}

TEST_F(KvCacheTest, ReserveTakesFreePagesThenEvictsExactlyWhatIsMissing) {
  open(4, 8);
  publish(counted(0, 24));  // 6 pages
  Sequence sequence = begin(counted(500, 16));
  ASSERT_TRUE(kv_->reserve(sequence, 8));
  EXPECT_EQ(kv_->evicted_pages(), 0);
  ASSERT_TRUE(kv_->reserve(sequence, 16));
  EXPECT_EQ(kv_->evicted_pages(), 2);
  EXPECT_EQ(kv_->probe(ns_, counted(0, 25)), 16) << "pages leave from the end of a leaf";
  ASSERT_TRUE(kv_->reserve(sequence, 13)) << "what is held already costs nothing";
  EXPECT_EQ(kv_->evicted_pages(), 2);
  audit();
}

TEST_F(KvCacheTest, WhatARequestWillHoldIsNotAvailableToIt) {
  open(4, 16);
  publish(counted(0, 16));
  publish(counted(500, 20));
  EXPECT_EQ(kv_->available_pages(), 16);
  EXPECT_EQ(kv_->available_pages_beside(ns_, counted(0, 16)), 13) << "the last token is computed";
  EXPECT_EQ(kv_->available_pages_beside(ns_, counted(0, 17)), 12);
  EXPECT_EQ(kv_->available_pages_beside(ns_, counted(900, 17)), 16);
  const Sequence holder = begin(counted(0, 17));
  EXPECT_EQ(kv_->available_pages_beside(ns_, counted(0, 17)), 12) << "somebody holds it already";
  EXPECT_EQ(kv_->available_pages(), 12);
}

TEST_F(KvCacheTest, ReserveIsAllOrNothing) {
  open(4, 8);
  publish(counted(0, 16));
  Sequence holder = begin(counted(0, 17));  // locks 4 pages
  Sequence sequence = begin(counted(500, 30));
  EXPECT_EQ(kv_->reservable_tokens(sequence), 16);
  EXPECT_FALSE(kv_->reserve(sequence, 17));
  EXPECT_EQ(sequence.capacity_tokens(), 0);
  EXPECT_EQ(kv_->evicted_pages(), 0);
  EXPECT_TRUE(kv_->reserve(sequence, 16));
  audit();
}

TEST_F(KvCacheTest, EqualPromptsComputedTogetherEndWithOneCopyAndBothRowsOnIt) {
  open(4, 16);
  const auto prompt = counted(0, 14);
  Sequence first = begin(prompt);
  Sequence second = begin(prompt);
  ASSERT_TRUE(kv_->reserve(first, 14));
  ASSERT_TRUE(kv_->reserve(second, 14));
  const std::vector<PageId> own(second.pages().begin(), second.pages().end());
  kv_->commit(first, prompt);
  audit();
  kv_->commit(second, prompt);
  audit();
  for (std::size_t page = 0; page < 3; ++page) {
    EXPECT_EQ(second.pages()[page], first.pages()[page]) << "I2";
    EXPECT_NE(second.pages()[page], own[page]);
  }
  EXPECT_EQ(second.pages()[3], own[3]) << "the partial page stays its own";
  EXPECT_EQ(kv_->usage().total_tokens(), 12);
}

TEST_F(KvCacheTest, ChunksContinueWhereTheLastCommitEnded) {
  open(4, 16);
  const auto prompt = counted(0, 30);
  Sequence sequence = begin(prompt);
  for (std::int64_t computed = 5; computed <= 30; computed += 5) {
    ASSERT_TRUE(kv_->reserve(sequence, computed));
    kv_->commit(sequence, std::span(prompt).first(static_cast<std::size_t>(computed)));
    EXPECT_EQ(sequence.published_tokens(), computed / 4 * 4);
    audit();
  }
  kv_->finish(std::move(sequence), prompt);
  EXPECT_EQ(kv_->usage().evictable_tokens, 28);
}

TEST_F(KvCacheTest, RowsAreBoundedAndComeBack) {
  open(4, 16);
  std::vector<Sequence> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(begin(counted(i * 100, 5)));
  }
  EXPECT_FALSE(kv_->begin(ns_, counted(0, 5)).has_value());
  audit();
  held.pop_back();
  EXPECT_TRUE(kv_->begin(ns_, counted(0, 5)).has_value());
}

// The five lives of a locked prefix of 3 tokens, page size 1.
TEST_F(KvCacheTest, LocksFollowTheSequence) {
  open(1, 16);
  publish(counted(1, 3));
  {
    Sequence sequence = begin(counted(1, 5));
    EXPECT_EQ(kv_->usage().locked_tokens, 3);
    ASSERT_TRUE(kv_->reserve(sequence, 5));
    kv_->commit(sequence, counted(1, 5));
    EXPECT_EQ(kv_->usage().locked_tokens, 5);
    kv_->finish(std::move(sequence), counted(1, 5));
    EXPECT_EQ(kv_->usage().locked_tokens, 0);
    EXPECT_EQ(kv_->usage().evictable_tokens, 5);
  }
  {  // nothing cached: the lock holds nothing
    Sequence sequence = begin(counted(70, 4));
    EXPECT_EQ(kv_->usage().locked_tokens, 0);
    ASSERT_TRUE(kv_->reserve(sequence, 4));
    kv_->finish(std::move(sequence), counted(70, 3));
    EXPECT_EQ(kv_->usage().evictable_tokens, 8);
  }
  {  // aborted: nothing is published, nothing stays locked
    Sequence sequence = begin(counted(1, 9));
    ASSERT_TRUE(kv_->reserve(sequence, 9));
    EXPECT_EQ(kv_->usage().locked_tokens, 5);
    sequence.reset();
    EXPECT_EQ(kv_->usage().locked_tokens, 0);
    EXPECT_EQ(kv_->usage().evictable_tokens, 8);
  }
  for (TokenId i = 0; i < 5; ++i) {
    publish({1, 2, 3, 40 + i});
    EXPECT_EQ(kv_->usage().locked_tokens, 0);
  }
}

TEST_F(KvCacheTest, ACacheThatSharesNothingKeepsPagesInTheTailAndFreesThemAll) {
  open(4, 8, "none");
  EXPECT_FALSE(kv_->shares());
  Sequence sequence = begin(counted(0, 10));
  ASSERT_TRUE(kv_->reserve(sequence, 10));
  const std::vector<PageId> row(sequence.pages().begin(), sequence.pages().end());
  kv_->commit(sequence, counted(0, 10));
  EXPECT_EQ(sequence.published_tokens(), 0);
  EXPECT_TRUE(std::equal(row.begin(), row.end(), sequence.pages().begin()));
  audit();
  kv_->finish(std::move(sequence), counted(0, 10));
  EXPECT_EQ(kv_->available_pages(), 8);
  EXPECT_EQ(kv_->probe(ns_, counted(0, 10)), 0);
}

TEST_F(KvCacheTest, WhatAStepMayReadIsNotHandedOutBeforeItRetires) {
  open(4, 4);
  Sequence sequence = begin(counted(0, 12));
  ASSERT_TRUE(kv_->reserve(sequence, 12));
  const std::int64_t step = kv_->begin_step();
  sequence.reset();
  audit();
  Sequence next = begin(counted(50, 12));
  EXPECT_EQ(kv_->reservable_tokens(next), 4);
  EXPECT_FALSE(kv_->reserve(next, 8));
  kv_->retire_step(step);
  EXPECT_TRUE(kv_->reserve(next, 8));
  audit();
}

TEST_F(KvCacheTest, NamespacesShareNothing) {
  open(4, 16);
  NamespaceDigest other;
  other.bytes[0] = 1;
  const NamespaceId ns = *kv_->try_open_namespace(other);
  publish(counted(0, 12));
  EXPECT_EQ(kv_->probe(ns, counted(0, 13)), 0);
  EXPECT_EQ(kv_->probe(ns_, counted(0, 13)), 12);
}

TEST_F(KvCacheTest, PagesThatGoForTheNameOfANamespaceAreCounted) {
  constexpr std::int64_t kNamespaces = 1100;  // more than it has names
  open(1, 2 * kNamespaces);
  for (std::int64_t i = 0; i < kNamespaces; ++i) {
    NamespaceDigest digest;
    digest.bytes[1] = static_cast<std::uint8_t>(i);
    digest.bytes[2] = static_cast<std::uint8_t>(i >> 8 | 0x80);
    const NamespaceId tenant = *kv_->try_open_namespace(digest);
    auto sequence = kv_->begin(tenant, counted(0, 1));
    ASSERT_TRUE(kv_->reserve(*sequence, 1));
    kv_->finish(std::move(*sequence), counted(0, 1));
    kv_->close_namespace(tenant);
  }
  EXPECT_GT(kv_->evicted_pages(), 0);
  EXPECT_EQ(kv_->usage().total_tokens() + kv_->evicted_pages(), kNamespaces);
  EXPECT_LE(kv_->evicted_pages(), 1100 - 1023 + 16) << "those whose names were needed, about";
}

// Nine texts of another pass through what is left of the pool.
TEST_F(KvCacheTest, WhoFloodsTheCacheTakesNothingOfATenantWithinItsQuota) {
  for (const std::int64_t quota_pages : {3, 2, 0}) {
    open(4, 8);
    NamespaceDigest digest;
    digest.bytes[0] = 1;
    const NamespaceId flooded = std::exchange(ns_, *kv_->try_open_namespace(digest));
    kv_->set_quota(family_of(digest), quota_pages);
    publish(counted(0, 12));  // 3 pages
    const NamespaceId quiet = std::exchange(ns_, flooded);
    for (TokenId other = 1; other < 10; ++other) publish(counted(other * 100, 16));
    EXPECT_EQ(kv_->probe(quiet, counted(0, 13)), 4 * quota_pages);
    const std::vector<TenantQuota> quotas = kv_->quotas(Tier::kDevice);
    ASSERT_EQ(quotas.size(), 1u);
    EXPECT_EQ(quotas[0].pages, quota_pages);
  }
}

// Each of nine has eight pages of a hundred for sure, whatever the policy thinks of them.
TEST_F(KvCacheTest, NineTenantsKeepTheirShareWhileATenthFloods) {
  for (const char* const eviction : {"lru", "mru", "hazard", "s3fifo"}) {
    open(4, 100, "radix", eviction);
    const NamespaceId flood = ns_;
    std::vector<NamespaceId> tenants;
    for (std::uint8_t tenant = 1; tenant < 10; ++tenant) {
      NamespaceDigest digest;
      digest.bytes[0] = tenant;
      kv_->set_quota(family_of(digest), 8);
      tenants.push_back(*kv_->try_open_namespace(digest));
      ns_ = tenants.back();
      publish(counted(0, 32));
    }
    ns_ = flood;
    for (TokenId other = 1; other < 60; ++other) publish(counted(other * 100, 60));
    for (const NamespaceId tenant : tenants) EXPECT_EQ(kv_->probe(tenant, counted(0, 33)), 32);
    EXPECT_EQ(kv_->audit(), std::nullopt);
  }
}

// A request that needs every page gets them: nobody else has any.
TEST_F(KvCacheTest, AQuotaHoldsNothingBack) {
  open(4, 8);
  kv_->set_quota(family_of(NamespaceDigest()), 8);
  publish(counted(0, 32));
  EXPECT_EQ(kv_->available_pages(), 8);
  Sequence sequence = begin(counted(500, 32));
  EXPECT_TRUE(kv_->reserve(sequence, 32));
}

// Lower tiers through which nothing moves.
class IdleTiers final : public LowerTiers {
 public:
  std::int64_t host_pages() const override { return 50; }
  std::span<PageStore* const> stores() const override { return {}; }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t) override {
    return std::make_unique<ThreadLanes>(work_, 0, 1);
  }

 private:
  class NoWork final : public TransferWork {
    void run(Transfer&) override { ADD_FAILURE() << "nothing moves"; }
  };
  NoWork work_;
};

TEST(KvCacheQuotas, HostMemoryKeepsTheSameShareRoundedUp) {
  KvCacheOptions options;
  options.pages = 8;
  options.tiers.write_policy = WritePolicy::kWriteBack;
  IdleTiers tiers;
  const auto kv = KvCache::open(options, nullptr, &tiers).value();
  kv->set_quota(family_of(NamespaceDigest()), 3);
  ASSERT_EQ(kv->quotas(Tier::kHost).size(), 1u);
  EXPECT_EQ(kv->quotas(Tier::kDevice)[0].quota_pages, 3);
  EXPECT_EQ(kv->quotas(Tier::kHost)[0].quota_pages, 19) << "3 of 8 of 50";
}

TEST_F(KvCacheTest, WhereNothingIsSharedThereAreNoQuotas) {
  open(4, 8, "none");
  kv_->set_quota(family_of(NamespaceDigest()), 8);
  EXPECT_TRUE(kv_->quotas(Tier::kDevice).empty());
  EXPECT_TRUE(kv_->quotas(Tier::kHost).empty());
}

TEST_F(KvCacheTest, ResetForgetsEverything) {
  open(4, 8);
  publish(counted(0, 12));
  kv_->reset();
  EXPECT_EQ(kv_->probe(ns_, counted(0, 13)), 0);
  EXPECT_EQ(kv_->usage().total_tokens(), 0);
  EXPECT_EQ(kv_->available_pages(), 8);
}

TEST(PagesForBytes, IsAsManyAsFit) {
  const KvShape shape = {
      .layers = 2, .pages = 0, .page_size = 16, .heads = 2, .head_dim = 8, .dtype = DType::kBF16};
  EXPECT_EQ(*pages_for_bytes(10 * shape.page_bytes() + 1, shape), 10);
  EXPECT_FALSE(pages_for_bytes(shape.page_bytes() - 1, shape).ok());
}

TEST(PagesForBytes, OfPagesWithoutBytesOrWithMoreThanCanBeCountedAreRefused) {
  KvShape shape = {.layers = 2, .page_size = std::int64_t{1} << 56, .heads = 2, .head_dim = 8};
  EXPECT_THAT(pages_for_bytes(1 << 30, shape).error().detail, HasSubstr("do not fit 63 bits"));
  shape.page_size = 0;
  EXPECT_THAT(pages_for_bytes(1 << 30, shape).error().detail, HasSubstr("page_size must be at"));
  shape.page_size = 16;
  shape.layers = 0;
  EXPECT_EQ(pages_for_bytes(1 << 30, shape).error().detail, "layers must be at least 1 (got 0)");
}

TEST(WindowedPagesMax, CountsNoMoreTokensThanARequestHas) {
  EXPECT_EQ(windowed_pages_max(9, 4, 1), 4);
  constexpr std::int64_t kTokens = std::int64_t{1} << 31;
  EXPECT_EQ(windowed_pages_max(INT64_MAX, 1, INT64_MAX), 2 * kTokens);
  EXPECT_EQ(windowed_pages_max(kTokens, INT64_MAX, 1), 2);
}

TEST(KvCacheOptions, APageHasNoMoreTokensThanARequest) {
  KvCacheOptions options;
  options.page_size = std::int64_t{1} << 31;
  EXPECT_EQ(KvCache::open(options).error().detail,
            "page_size must be at most 2147483647 (got 2147483648)");
}

// The younger of two goes first where its client said that it will not come back.
TEST_F(KvCacheTest, WhatAClosedSessionUsedGoesFirstWhereThePolicyWeighsHints) {
  open(4, 8, "radix", "hazard");
  publish(counted(0, 16));
  Sequence closed = begin(counted(100, 16));
  ASSERT_TRUE(kv_->reserve(closed, 16));
  closed.close_session();
  kv_->finish(std::move(closed), counted(100, 16));
  publish(counted(200, 12));
  EXPECT_EQ(kv_->probe(ns_, counted(0, 17)), 16);
  EXPECT_EQ(kv_->probe(ns_, counted(100, 17)), 4);
}

TEST_F(KvCacheTest, RetentionIsWeighedAndLocksNothing) {
  open(4, 8, "radix", "hazard");
  Sequence kept = begin(counted(0, 16));
  ASSERT_TRUE(kv_->reserve(kept, 16));
  kept.set_retention(Retention::kLong);
  kv_->finish(std::move(kept), counted(0, 16));
  publish(counted(100, 16));
  publish(counted(200, 16));
  EXPECT_EQ(kv_->probe(ns_, counted(0, 17)), 16);
  publish(counted(300, 32));
  EXPECT_EQ(kv_->probe(ns_, counted(0, 17)), 0);
}

TEST_F(KvCacheTest, EvictFreesTheColdestThatNobodyHoldsAndNoMoreThanThereAre) {
  open(1, 8);
  publish(counted(1, 4));
  publish(counted(100, 4));
  Sequence held = begin(counted(100, 5));
  EXPECT_EQ(kv_->evict(1), 1);
  EXPECT_EQ(kv_->probe(ns_, counted(1, 5)), 3);
  EXPECT_EQ(kv_->evict(100), 3);
  EXPECT_EQ(kv_->probe(ns_, counted(100, 5)), 4);
  EXPECT_EQ(kv_->evicted_pages(), 4);
  EXPECT_EQ(kv_->free_pages(), 4);
}

TEST_F(KvCacheTest, AHoldUsesNothingAndEvictsNothing) {
  open(4, 6);
  publish(counted(0, 8));
  publish(counted(100, 8));
  Sequence found = begin(counted(0, 9));
  CachedText hit;
  AuditRow row;
  kv_->copy_text(found, hit);
  EXPECT_EQ(hit.tokens, counted(0, 8));
  found.reset();
  publish(counted(100, 9));
  {
    const auto hold = kv_->try_hold(hit, row);
    ASSERT_TRUE(hold.has_value());
    EXPECT_EQ(row.full.size(), 2u);
    EXPECT_EQ(hold->scratch.pages(), 1);
  }
  audit();
  Sequence other = begin(counted(200, 9));
  ASSERT_TRUE(kv_->reserve(other, 9));
  EXPECT_EQ(kv_->probe(ns_, counted(100, 9)), 8);
  EXPECT_EQ(kv_->probe(ns_, counted(0, 9)), 4) << "it was the colder one, and still is";
  EXPECT_FALSE(kv_->try_hold(hit, row).has_value()) << "not all of it is there";
  kv_->copy_text(begin(counted(100, 9)), hit);
  EXPECT_EQ(kv_->free_pages(), 0);
  EXPECT_FALSE(kv_->try_hold(hit, row).has_value()) << "no page is free";
}

TEST_F(KvCacheTest, WhatIsInQuarantineIsFoundByNobodyAndGoesWithItsHolder) {
  open(4, 16);
  publish(counted(0, 16));
  Sequence above = begin(counted(0, 6));
  Sequence inside = begin(counted(0, 17));
  CachedText hit;
  std::vector<PageId> pages;
  kv_->copy_text(inside, hit);
  kv_->quarantine(hit, 8);
  audit();
  EXPECT_EQ(kv_->probe(ns_, counted(0, 17)), 4);
  EXPECT_FALSE(kv_->is_quarantined(above));
  EXPECT_TRUE(kv_->is_quarantined(inside));
  EXPECT_EQ(kv_->usage().total_tokens(), 16);
  inside.reset();
  audit();
  EXPECT_EQ(kv_->usage().total_tokens(), 4);
  publish(counted(0, 16));
  EXPECT_EQ(kv_->probe(ns_, counted(0, 17)), 16);
}

// Who holds what is purged reads on and publishes nothing, whether he had published before or not;
// a fork of it would share, and is none.
TEST_F(KvCacheTest, APurgeIsForWhatComesAfterIt) {
  open(4, 16);
  const NamespaceDigest none;
  publish(counted(0, 12));
  Sequence holder = begin(counted(0, 13));
  Sequence beginner = begin(counted(50, 9));
  ASSERT_TRUE(kv_->reserve(holder, 20));
  ASSERT_TRUE(kv_->reserve(beginner, 9));
  const std::vector<PageId> pages(holder.pages().begin(), holder.pages().end());
  const std::vector families = {family_of(none)};
  const PurgeReport report = kv_->purge_report(*kv_->purge(families)).value();
  EXPECT_EQ(report.pages[static_cast<std::size_t>(Tier::kDevice)], 3);
  EXPECT_TRUE(report.pending.empty());
  EXPECT_FALSE(holder.publishes());
  EXPECT_EQ(kv_->probe(ns_, counted(0, 13)), 0);
  kv_->commit(holder, counted(0, 20));
  kv_->commit(beginner, counted(50, 9));
  EXPECT_EQ(holder.published_tokens(), 12);
  EXPECT_EQ(beginner.published_tokens(), 0);
  EXPECT_TRUE(std::equal(pages.begin(), pages.end(), holder.pages().begin()));
  EXPECT_FALSE(kv_->try_fork(holder, 20).has_value());
  EXPECT_EQ(kv_->adopt(beginner, counted(50, 9), 8), 8);
  audit();
  publish(counted(0, 12));
  EXPECT_EQ(kv_->probe(ns_, counted(0, 13)), 12) << "it is used afresh";
  EXPECT_EQ(kv_->adopt(holder, counted(0, 20), 17), 17) << "what others publish is not its own";
  kv_->finish(std::move(holder), counted(0, 20));
  kv_->finish(std::move(beginner), counted(50, 9));
  EXPECT_EQ(kv_->probe(ns_, counted(0, 20)), 12);
  EXPECT_EQ(kv_->probe(ns_, counted(50, 9)), 0);
  EXPECT_EQ(kv_->free_pages(), 16 - 3);
}

// 64 MiB of page ids a request otherwise, of a context that no pool holds.
TEST(KvCacheRows, HaveRoomForThePagesThatThereAre) {
  KvCacheOptions options;
  options.pages = 100;
  options.requests_max = 8;
  options.context_tokens_max = 1 << 28;
  const std::int64_t before = resident_bytes().value();
  const auto opened = KvCache::open(options);
  ASSERT_TRUE(opened.ok()) << to_string(opened.error());
  EXPECT_LT(resident_bytes().value() - before, std::int64_t{16} << 20);
}

TEST_F(KvCacheTest, APurgeOfOthersLeavesASequenceAsItIs) {
  open(4, 16);
  Sequence sequence = begin(counted(0, 9));
  NamespaceDigest other;
  other.bytes[0] = 1;
  ASSERT_TRUE(kv_->purge(std::vector{family_of(other)}).ok());
  EXPECT_TRUE(sequence.publishes());
  ASSERT_TRUE(kv_->purge({}).ok());
  EXPECT_FALSE(sequence.publishes());
  EXPECT_FALSE(kv_->purge_report(PurgeId(0)).has_value()) << "another one came";
}

TEST_F(KvCacheTest, ACacheThatSharesNothingHasNothingToPurge) {
  open(4, 16, "none");
  Sequence sequence = begin(counted(0, 9));
  EXPECT_EQ(kv_->purge_report(*kv_->purge({}))->pages, (std::array<std::int64_t, 4>{}));
  sequence.reset();
}

}  // namespace
}  // namespace stemma
