// Pages that host memory or a page store cannot be given at once: they go when it can, the oldest
// first, without anybody touching them again, and hold nothing until then. Lanes end jobs when a
// test says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "stemma/kv_cache.h"
#include "stemma/lower_tiers.h"
#include "tier/held_lanes.h"
#include "tier/map_store_fixture.h"
#include "tier/transfer_ticket.h"

namespace stemma {
namespace {

constexpr std::int64_t kTicketsMax = TransferLimits().writes_max;
constexpr std::int64_t kDownMax = TransferLimits().down_max;

// A map that has to be asked over a network.
class FarStore final : public MapStore {
 public:
  bool lookup_is_local() const override { return false; }
};

class HeldLaneTiers final : public LowerTiers {
 public:
  explicit HeldLaneTiers(std::int64_t host_pages, std::size_t stores) : host_pages_(host_pages) {
    for (std::size_t i = 0; i < stores; ++i) {
      stores_.push_back(std::make_unique<FarStore>());
      shown_.push_back(stores_.back().get());
    }
  }
  std::int64_t host_pages() const override { return host_pages_; }
  std::span<PageStore* const> stores() const override { return shown_; }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t) override {
    auto lanes = std::make_unique<HeldLanes>();
    lanes_ = lanes.get();
    return lanes;
  }
  HeldLanes& lanes() { return *lanes_; }

 private:
  std::int64_t host_pages_;
  std::vector<std::unique_ptr<FarStore>> stores_;
  std::vector<PageStore*> shown_;
  HeldLanes* lanes_ = nullptr;
};

struct Values final : MetricVisitor {
  void counter(std::string_view name, std::int64_t value) override {
    of[std::string(name)] = value;
  }
  void gauge(std::string_view name, std::int64_t value) override { of[std::string(name)] = value; }
  std::map<std::string, std::int64_t> of;
};

class OwedPages : public ::testing::Test {
 protected:
  void open(std::int64_t host_pages, std::size_t stores = 1) {
    tiers = std::make_unique<HeldLaneTiers>(host_pages, stores);
    KvCacheOptions options;
    options.page_size = 1;
    options.pages = 256;
    options.requests_max = 2;
    options.context_tokens_max = 64;
    options.tiers.write_policy = WritePolicy::kWriteThrough;
    kv = KvCache::open(options, &clock, tiers.get()).value();
    ns = *kv->try_open_namespace({});
  }
  void TearDown() override { poll(); }

  // Takes what ended; the audit runs after it.
  void poll() {
    kv->poll_transfers();
    EXPECT_EQ(kv->audit(), std::nullopt);
  }

  // `pages` pages of a text, computed and published.
  void compute(TokenId first, std::int64_t pages) {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < pages; ++i) tokens.push_back(1000 * first + i);
    auto sequence = kv->begin(ns, tokens);
    ASSERT_TRUE(kv->reserve(*sequence, pages));
    kv->finish(std::move(*sequence), tokens);
  }
  // And copied to host memory.
  void publish(TokenId first, std::int64_t pages) {
    compute(first, pages);
    end_backups();
  }

  // The copies to host memory that are under way end well.
  std::int64_t end_backups() {
    return end_jobs([](const Transfer& job) { return job.kind == TransferKind::kBackup; });
  }

  // The jobs of a store that are under way end well.
  std::int64_t end_stores(int store = 0) {
    return end_jobs([store](const Transfer& job) {
      return job.kind == TransferKind::kStore && job.store == store;
    });
  }

  template <typename IsMeant>
  std::int64_t end_jobs(const IsMeant& is_meant) {
    auto& posted = tiers->lanes().posted;
    std::deque<Transfer*> left;
    std::int64_t ended = 0;
    for (Transfer* job : posted) {
      if (!is_meant(*job)) {
        left.push_back(job);
        continue;
      }
      job->verdicts.assign(job->keys.size(), PageVerdict::kDone);
      tiers->lanes().done.push_back(job);
      ++ended;
    }
    posted = left;
    poll();
    return ended;
  }

  std::int64_t metric(const std::string& name) const {
    Values values;
    kv->visit_metrics(values);
    return values.of.at(name);
  }
  std::int64_t owed() const { return metric("stemma_owed_pages"); }
  std::int64_t owed_backups() const { return metric("stemma_owed_backup_pages"); }
  std::int64_t backed_up() const { return metric("stemma_backed_up_pages_total"); }
  std::int64_t unbacked() const { return metric("stemma_unbacked_pages_total"); }
  std::int64_t stored() const { return metric("stemma_stored_pages_total"); }
  std::int64_t unstored() const { return metric("stemma_unstored_pages_total"); }

  FakeClock clock;
  std::unique_ptr<HeldLaneTiers> tiers;
  std::unique_ptr<KvCache> kv;
  NamespaceId ns;
};

TEST_F(OwedPages, AreStoredWhenTheStoreHasCaughtUp) {
  open(256);
  for (TokenId text = 0; text < 2 * kTicketsMax + 4; ++text) publish(text, 3);
  EXPECT_EQ(owed(), 3 * (kTicketsMax + 4));
  EXPECT_EQ(end_stores(), kTicketsMax);
  EXPECT_EQ(owed(), 3 * 4);
  EXPECT_EQ(end_stores(), kTicketsMax);
  EXPECT_EQ(end_stores(), 4);
  EXPECT_EQ(stored(), 3 * (2 * kTicketsMax + 4));
  EXPECT_EQ(owed(), 0);
  EXPECT_EQ(unstored(), 0);
  EXPECT_FALSE(kv->transfers_underway());
}

TEST_F(OwedPages, TheOldestGoFirst) {
  open(256);
  for (TokenId text = 0; text < kTicketsMax + 2; ++text) publish(text, 1);
  end_stores();
  ASSERT_EQ(tiers->lanes().posted.size(), 2u);
  EXPECT_EQ(tiers->lanes().posted[0]->tokens, std::vector<TokenId>{1000 * kTicketsMax});
  EXPECT_EQ(tiers->lanes().posted[1]->tokens, std::vector<TokenId>{1000 * (kTicketsMax + 1)});
}

TEST_F(OwedPages, NewOnesDoNotOvertake) {
  open(256);
  for (TokenId text = 0; text <= 2 * kTicketsMax; ++text) publish(text, 1);
  auto& posted = tiers->lanes().posted;
  posted.front()->verdicts = {PageVerdict::kDone};
  tiers->lanes().end_next();
  publish(99, 1);
  EXPECT_EQ(posted.back()->tokens, std::vector<TokenId>{1000 * kTicketsMax});
}

TEST_F(OwedPages, ATextThatGrowsGoesAsOne) {
  open(256);
  for (TokenId text = 1; text <= kTicketsMax; ++text) publish(text, 1);
  for (std::int64_t pages = 1; pages <= 9; ++pages) publish(50, pages);
  EXPECT_EQ(owed(), 9);
  end_stores();
  ASSERT_EQ(tiers->lanes().posted.size(), 1u);
  EXPECT_EQ(tiers->lanes().posted[0]->pages(), 9);
}

TEST_F(OwedPages, HoldNoHostMemoryAndAreCountedWhereTheyAreEvicted) {
  open(2 * kTicketsMax);
  for (TokenId text = 0; text < 2 * kTicketsMax; ++text) publish(text, 1);
  EXPECT_EQ(metric("stemma_host_locked_pages"), kTicketsMax) << "those under way";
  for (TokenId text = 100; text < 100 + kTicketsMax; ++text) publish(text, 1);
  EXPECT_EQ(unbacked(), 0);
  EXPECT_EQ(unstored(), kTicketsMax);
  EXPECT_EQ(owed(), kTicketsMax);
  end_stores();
  EXPECT_EQ(end_stores(), kTicketsMax);
  EXPECT_EQ(stored(), 2 * kTicketsMax);
  EXPECT_EQ(owed(), 0);
}

TEST_F(OwedPages, AStoreThatHangsLeavesOthersTheirPart) {
  open(256, 2);
  for (TokenId text = 0; text < 30; ++text) publish(text, 1);
  EXPECT_EQ(owed(), 2 * (30 - kTicketsMax / 2));
  std::int64_t jobs = 0;
  while (const std::int64_t ended = end_stores(1)) jobs += ended;
  EXPECT_EQ(jobs, 30);
  EXPECT_EQ(stored(), 30);
  EXPECT_EQ(owed(), 30 - kTicketsMax / 2) << "to the other one";
  while (end_stores(0) > 0) {
  }
  EXPECT_EQ(stored(), 60);
}

TEST_F(OwedPages, WhatIsPurgedIsOwedNoMore) {
  open(256);
  for (TokenId text = 0; text < kTicketsMax + 5; ++text) publish(text, 2);
  EXPECT_EQ(owed(), 10);
  ASSERT_TRUE(kv->purge({}).ok());
  EXPECT_EQ(owed(), 0);
  EXPECT_EQ(unstored(), 10);
  end_stores();
  EXPECT_EQ(end_stores(), 0);
}

TEST_F(OwedPages, AResetOfTheDeviceWaitsForNoStore) {
  open(256);
  for (TokenId text = 0; text < kTicketsMax + 5; ++text) publish(text, 1);
  kv->reset();
  EXPECT_EQ(owed(), 5);
  end_stores();
  EXPECT_EQ(end_stores(), 5);
}

// As many requests as a batch has may end in one step.
TEST_F(OwedPages, OfTheDeviceGoDownInTheirTurn) {
  open(256, 0);
  for (TokenId text = 0; text < 2 * kDownMax + 3; ++text) compute(text, 2);
  EXPECT_EQ(owed_backups(), 2 * (kDownMax + 3));
  EXPECT_EQ(kv->usage().locked_tokens, 2 * kDownMax) << "what is owed can be evicted";
  EXPECT_EQ(end_backups(), kDownMax);
  EXPECT_EQ(tiers->lanes().posted.front()->tokens.front(), 1000 * kDownMax) << "the oldest";
  EXPECT_EQ(end_backups(), kDownMax);
  EXPECT_EQ(end_backups(), 3);
  EXPECT_EQ(backed_up(), 2 * (2 * kDownMax + 3));
  EXPECT_EQ(owed_backups(), 0);
  EXPECT_EQ(unbacked(), 0);
  EXPECT_FALSE(kv->transfers_underway());
}

TEST_F(OwedPages, OfTheDeviceGoWithATextThatGoesOnFromThem) {
  open(256, 0);
  for (TokenId text = 0; text < kDownMax; ++text) compute(text, 1);
  for (std::int64_t pages = 1; pages <= 5; ++pages) compute(50, pages);
  EXPECT_EQ(owed_backups(), 5);
  EXPECT_EQ(end_backups(), kDownMax);
  ASSERT_EQ(tiers->lanes().posted.size(), 1u);
  EXPECT_EQ(tiers->lanes().posted[0]->pages(), 5);
  EXPECT_EQ(end_backups(), 1);
  EXPECT_EQ(backed_up(), kDownMax + 5);
}

TEST_F(OwedPages, OfTheDeviceAreCountedWhereTheyAreEvicted) {
  open(256, 0);
  for (TokenId text = 0; text < kDownMax + 4; ++text) compute(text, 3);
  EXPECT_EQ(kv->evict(256), 3 * 4);
  EXPECT_EQ(owed_backups(), 0);
  EXPECT_EQ(unbacked(), 3 * 4);
  EXPECT_EQ(end_backups(), kDownMax);
  EXPECT_EQ(end_backups(), 0);
}

TEST_F(OwedPages, OfTheDeviceAreGivenUpWithItsPages) {
  open(256, 0);
  for (TokenId text = 0; text < kDownMax + 4; ++text) compute(text, 1);
  tiers->lanes().ends_when_waited_for = true;
  kv->reset();
  EXPECT_EQ(backed_up(), kDownMax);
  EXPECT_EQ(unbacked(), 4);
  EXPECT_EQ(owed_backups(), 0);
}

}  // namespace
}  // namespace stemma
