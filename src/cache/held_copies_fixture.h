// A cache above host memory and stores whose lanes end jobs when a test says.
//
// Thread:     one.
// Memory:     a cache of 256 pages; no bytes are moved.
// Cost:       none.
// Not here:   bytes of pages (tier/page_work), lanes that run (tier/transfer_lanes).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "stemma/kv_cache.h"
#include "stemma/lower_tiers.h"
#include "tier/held_lanes.h"
#include "tier/map_store_fixture.h"
#include "tier/transfer.h"

namespace stemma {

// A map that has to be asked over a network.
class FarStore final : public MapStore {
 public:
  bool lookup_is_local() const override { return false; }
};

// What host memory may have besides.
struct HeldLaneHost {
  const HostImage* image_or_null = nullptr;
  HostImageRanks* ranks_or_null = nullptr;
  std::int64_t windowed_pages = 0;  // where there are some, there are windows
  std::int64_t window_tokens = 2;   // of which one is the token's own
  PurgeFile* purge_file_or_null = nullptr;
};

class HeldLaneTiers final : public LowerTiers {
 public:
  HeldLaneTiers(std::int64_t host_pages, std::vector<std::unique_ptr<MapStore>> stores,
                const HeldLaneHost& host)
      : host_pages_(host_pages), stores_(std::move(stores)), host_(host) {
    for (const auto& store : stores_) shown_.push_back(store.get());
  }
  std::int64_t host_pages() const override { return host_pages_; }
  std::int64_t host_windowed_pages() const override { return host_.windowed_pages; }
  std::span<PageStore* const> stores() const override { return shown_; }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t) override {
    auto lanes = std::make_unique<HeldLanes>();
    lanes_ = lanes.get();
    return lanes;
  }
  const HostImage* host_image_or_null() const override { return host_.image_or_null; }
  HostImageRanks* host_image_ranks_or_null() override { return host_.ranks_or_null; }
  PurgeFile* purge_file_or_null() override { return host_.purge_file_or_null; }
  HeldLanes& lanes() { return *lanes_; }

 private:
  std::int64_t host_pages_;
  std::vector<std::unique_ptr<MapStore>> stores_;
  HeldLaneHost host_;
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

// A cache of 256 pages of one token, two requests at once, everything copied down at once.
class HeldCopies : public ::testing::Test {
 protected:
  static constexpr std::int64_t kDeadlineUs = 2'000'000;

  template <typename Store = FarStore>
  void open(std::int64_t host_pages, std::size_t stores = 1, const HeldLaneHost& host = {}) {
    std::vector<std::unique_ptr<MapStore>> maps;
    for (std::size_t i = 0; i < stores; ++i) maps.push_back(std::make_unique<Store>());
    open_over(host_pages, std::move(maps), host);
  }
  void open_over(std::int64_t host_pages, std::vector<std::unique_ptr<MapStore>> maps,
                 const HeldLaneHost& host = {}) {
    tiers = std::make_unique<HeldLaneTiers>(host_pages, std::move(maps), host);
    KvCacheOptions options;
    options.page_size = 1;
    options.pages = 256;
    options.requests_max = 2;
    options.context_tokens_max = 64;
    options.window_tokens = host.windowed_pages > 0 ? host.window_tokens : 0;
    options.windowed_pages = host.windowed_pages > 0 ? 64 : 0;
    options.eviction = eviction;
    options.namespaces_max = namespaces_max;
    options.tiers.write_policy = WritePolicy::kWriteThrough;
    options.tiers.store_deadline_us = kDeadlineUs;
    options.tiers.load_pages_max = load_pages_max;
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
    compute(tokens);
  }
  void compute(const std::vector<TokenId>& tokens) {
    auto sequence = kv->begin(ns, tokens);
    ASSERT_TRUE(kv->reserve(*sequence, std::ssize(tokens)));
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

  std::string eviction = "lru";
  std::int64_t namespaces_max = KvCacheOptions().namespaces_max;
  std::int64_t load_pages_max = TierOptions().load_pages_max;
  FakeClock clock;
  std::unique_ptr<HeldLaneTiers> tiers;
  std::unique_ptr<KvCache> kv;
  NamespaceId ns;
};

}  // namespace stemma
