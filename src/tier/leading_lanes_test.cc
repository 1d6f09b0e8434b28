// Transfers over ranks: a job moves every rank's own bytes, has ended when it has on all, and what
// goes wrong on one of them is the job's, in each direction; what rank 0 lets go no rank still
// writes; what was begun ends when the lanes do. Faults: rows 3, 4 and 13 (docs/FAULTS.md).
#include "tier/leading_lanes.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "device/thread_ranks_fixture.h"
#include "pool/pool_fixture.h"
#include "prefix/namespace_digest.h"
#include "prefix/page_key.h"
#include "tier/leading_tiers.h"
#include "tier/map_store_fixture.h"
#include "tier/page_work.h"
#include "tier/transfer_message.h"

namespace stemma {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int kRanks = 3;
constexpr std::int64_t kPages = 6;
constexpr std::int64_t kJobsMax = 32;
constexpr std::int64_t kDeadlineUs = 60'000'000;
constexpr PageVerdict kDone = PageVerdict::kDone;
constexpr PageVerdict kFailed = PageVerdict::kFailed;

KvShape shape() {
  return {.layers = 2,
          .pages = kPages,
          .page_size = 2,
          .heads = 1,
          .head_dim = 20,
          .dtype = DType::kBF16};
}

// Calls wait while the test says so.
class GatedStore final : public MapStore {
 public:
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override {
    closed.wait(true);
    MapStore::read(reads, deadline_us);
  }
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override {
    closed.wait(true);
    MapStore::write(writes, deadline_us);
  }
  void open() {
    closed = false;
    closed.notify_all();
  }

  std::atomic<bool> closed = false;
};

// What one rank has: pages of its own bytes, host memory, a store.
class RankTiers final : public LowerTiers {
 public:
  explicit RankTiers(int rank) : prng_(static_cast<std::uint64_t>(rank) + 1) {
    device = make_test_pool(shape(), KvLayout::kLayerFirst);
    fill_randomly(*device, prng_);
    ThreadPool threads(1);
    HostPoolOptions options;
    options.pages = kPages;
    options.layers = shape().layers;
    options.layer_bytes = device->layer_bytes();
    host = HostPool::create(options, threads).value();
    work = PageWork::open({*device, *host, {&store}, clock}).value();
  }
  std::int64_t host_pages() const override { return kPages; }
  std::span<PageStore* const> stores() const override { return store_list_; }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t jobs_max) override {
    return std::make_unique<ThreadLanes>(*work, 1, jobs_max);
  }
  std::vector<std::byte> image(std::int32_t page) const {
    return expected_image(*device, PageId(page));
  }

  MonotonicClock clock;
  std::unique_ptr<MhaPool> device;
  std::unique_ptr<HostPool> host;
  GatedStore store;
  std::unique_ptr<PageWork> work;

 private:
  Prng prng_;
  std::vector<PageStore*> store_list_ = {&store};
};

// Ranks of which the test says that they cannot be reached any more.
class LosableRanks final : public RankGroup {
 public:
  explicit LosableRanks(RankGroup& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    return lost ? gone() : inner_.all_gather(own, all);
  }
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    return lost ? gone() : inner_.gather(own, all);
  }
  Status broadcast(std::span<std::byte> bytes) override {
    return lost ? gone() : inner_.broadcast(bytes);
  }
  bool lost = false;

 private:
  static Status gone() { return Error{ErrorCode::kInternal, "ranks: gone"}; }
  RankGroup& inner_;
};

class LeadingLanesTest : public testing::Test {
 protected:
  LeadingLanesTest() {
    PageKeyChain chain(digest_);
    for (TokenId page = 0; page < kPages; ++page) {
      tokens_.insert(tokens_.end(), {page, page + 100});
      keys_.push_back(chain.append(std::span(tokens_).last(2)));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      tiers_[static_cast<std::size_t>(rank)] = std::make_unique<RankTiers>(rank);
    }
  }

  // Rank 0 does `lead` on lanes of all; the others do what it tells.
  void run(const std::function<void()>& lead) {
    ThreadRanks(kRanks).run([&](RankGroup& ranks) {
      LosableRanks own(ranks);
      if (ranks.rank() > 0) return follow(own);
      group_ = &own;
      LeadingTiers leading(tiers(0), own, tiers(0).clock);
      lanes_ = leading.open_lanes(kJobsMax);
      store_ = leading.stores()[0];
      lead();
      lanes_->stop();
      EXPECT_EQ(take(), nullptr);
      lanes_.reset();
      own.lost = false;
      ASSERT_TRUE(tell(own, {RankTask::kEnd}, {}).ok());
    });
  }
  void follow(RankGroup& ranks) {
    RankTiers& own = tiers(ranks.rank());
    RankTransfers transfers(own, ranks, own.clock);
    std::vector<std::int64_t> words;
    for (;;) {
      const auto message = hear(ranks, words);
      ASSERT_TRUE(message.ok());
      if (message->task == RankTask::kEnd) return;
      ASSERT_TRUE(transfers.told(message->task, words).ok());
    }
  }

  using Places = std::vector<std::int32_t>;
  // Of the text's first pages, as many as there are places.
  Transfer& job(TransferKind kind, const Places& from, const Places& to) {
    Transfer& job = *jobs_.emplace_back(std::make_unique<Transfer>());
    job.kind = kind;
    job.place = std::ssize(jobs_) - 1;
    job.digest = digest_;
    job.parent = PageKeyHasher::root(digest_);
    const std::size_t pages = std::max(from.size(), to.size());
    job.keys.assign(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(pages));
    job.tokens.assign(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(2 * pages));
    for (const std::int32_t page : from) job.from.push_back(PageId(page));
    for (const std::int32_t page : to) job.to.push_back(PageId(page));
    job.deadline_us = tiers(0).clock.now_us() + kDeadlineUs;
    return job;
  }
  Transfer* take() { return lanes_->try_take_done_or_null(); }
  void finish(Transfer& job) {
    Transfer* done = take();
    for (; done == nullptr; done = take()) lanes_->wait_done(std::chrono::milliseconds(5));
    EXPECT_EQ(done, &job);
  }
  const std::vector<PageVerdict>& run_job(TransferKind kind, const Places& from, const Places& to) {
    Transfer& posted = job(kind, from, to);
    lanes_->post(posted);
    finish(posted);
    return posted.verdicts;
  }
  // The text's first pages, which lie in the first pages of the device, through to the stores.
  void store_pages(const Places& places) {
    ASSERT_THAT(run_job(TransferKind::kBackup, places, places), Each(kDone));
    ASSERT_THAT(run_job(TransferKind::kStore, places, {}), Each(kDone));
  }
  void flip(int rank, std::int32_t host_page) {
    tiers(rank).host->layer_image(PageId(host_page), 1)[3] ^= std::byte{4};
  }

  RankTiers& tiers(int rank) { return *tiers_[static_cast<std::size_t>(rank)]; }

  NamespaceDigest digest_ = {{7}};
  std::vector<TokenId> tokens_;
  std::vector<PageKey> keys_;
  std::array<std::unique_ptr<RankTiers>, kRanks> tiers_;
  LosableRanks* group_ = nullptr;  // rank 0's
  std::unique_ptr<TransferLanes> lanes_;
  PageStore* store_ = nullptr;  // every rank's
  std::vector<std::unique_ptr<Transfer>> jobs_;
};

TEST_F(LeadingLanesTest, EveryRankMovesItsOwnBytesDownAndUp) {
  run([&] {
    std::vector<std::vector<std::byte>> images;
    for (int rank = 0; rank < kRanks; ++rank) images.push_back(tiers(rank).image(1));
    ASSERT_NE(images[0], images[1]);
    EXPECT_THAT(run_job(TransferKind::kBackup, {1, 3}, {5, 0}), ElementsAre(kDone, kDone));
    EXPECT_THAT(run_job(TransferKind::kPromote, {5, 0}, {4, 2}), ElementsAre(kDone, kDone));
    EXPECT_THAT(run_job(TransferKind::kStore, {5, 0}, {}), ElementsAre(kDone, kDone));
    EXPECT_THAT(run_job(TransferKind::kLoad, {}, {3, 1}), ElementsAre(kDone, kDone));
    EXPECT_THAT(run_job(TransferKind::kFetch, {}, {2, 3}), ElementsAre(kDone, kDone));
    EXPECT_THAT(run_job(TransferKind::kPromote, {2, 3}, {5, 0}), ElementsAre(kDone, kDone));
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto& image = images[static_cast<std::size_t>(rank)];
      for (const std::int32_t page : {4, 3, 5}) EXPECT_EQ(tiers(rank).image(page), image) << rank;
    }
  });
}

TEST_F(LeadingLanesTest, APageThatIsWrongInOneRanksHostMemoryIsWrong) {
  run([&] {
    for (int rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE(rank);
      ASSERT_THAT(run_job(TransferKind::kBackup, {0, 1, 2}, {0, 1, 2}), Each(kDone));
      flip(rank, 1);
      EXPECT_THAT(run_job(TransferKind::kPromote, {0, 1, 2}, {3, 4, 5}),
                  ElementsAre(kDone, PageVerdict::kCorrupt, kDone));
      EXPECT_THAT(run_job(TransferKind::kStore, {0, 1}, {}),
                  ElementsAre(kDone, PageVerdict::kCorrupt));
    }
  });
}

TEST_F(LeadingLanesTest, APageThatOneRanksHostMemoryHasNotIsMissing) {
  run([&] {
    ASSERT_THAT(run_job(TransferKind::kBackup, {0, 1}, {0, 1}), Each(kDone));
    tiers(2).host->forget(PageId(0));
    EXPECT_THAT(run_job(TransferKind::kPromote, {0, 1}, {3, 4}),
                ElementsAre(PageVerdict::kMissing, kDone));
  });
}

TEST_F(LeadingLanesTest, APageIsStoredWhereEveryRankStoredItsFrame) {
  run([&] {
    tiers(1).store.refused = keys_[1];
    ASSERT_THAT(run_job(TransferKind::kBackup, {0, 1, 2}, {0, 1, 2}), Each(kDone));
    EXPECT_THAT(run_job(TransferKind::kStore, {0, 1, 2}, {}),
                ElementsAre(kDone, PageVerdict::kRefused, kDone));
    Transfer& lookup = job(TransferKind::kLookup, {}, {0, 1, 2});
    lanes_->post(lookup);
    finish(lookup);
    EXPECT_EQ(lookup.found_pages, 1);
    EXPECT_THAT(run_job(TransferKind::kLoad, {}, {3, 4, 5}),
                ElementsAre(kDone, PageVerdict::kMissing, kDone));
  });
}

TEST_F(LeadingLanesTest, AStoreThatAnswersFromMemoryHasWhatEveryRanksHas) {
  run([&] {
    store_pages({0, 1, 2});
    EXPECT_EQ(store_->lookup(keys_, 0).value(), 3);
    tiers(2).store.frames.erase(keys_[1]);
    EXPECT_EQ(store_->lookup(keys_, 0).value(), 1);
    EXPECT_EQ(store_->lookup({}, 0).value(), 0);
    tiers(1).store.broken = true;
    EXPECT_EQ(store_->lookup(keys_, 0).error().detail, "rank 1: its store does not answer");
    group_->lost = true;
    EXPECT_FALSE(store_->lookup(keys_, 0).ok());
  });
}

TEST_F(LeadingLanesTest, AFrameThatIsWrongOnOneRankIsWrongAndGoesThere) {
  run([&] {
    store_pages({0, 1});
    tiers(2).store.frames.at(keys_[0])[200] ^= std::byte{1};
    EXPECT_THAT(run_job(TransferKind::kLoad, {}, {3, 4}),
                ElementsAre(PageVerdict::kCorrupt, kDone));
    EXPECT_FALSE(tiers(2).store.frames.contains(keys_[0]));
    EXPECT_TRUE(tiers(0).store.frames.contains(keys_[0]));
  });
}

TEST_F(LeadingLanesTest, AnotherRanksFrameIsNeverTaken) {
  run([&] {
    store_pages({0, 1});
    tiers(1).store.frames = tiers(0).store.frames;
    EXPECT_THAT(run_job(TransferKind::kLoad, {}, {3, 4}), Each(PageVerdict::kCorrupt));
  });
}

// A page that some rank may still be writing is nobody's to reuse (I6).
TEST_F(LeadingLanesTest, AJobEndsWhenItHasEndedOnAllRanksAndKeepsItsPagesUntilThen) {
  run([&] {
    store_pages({0, 1});
    tiers(1).store.closed = true;
    Transfer& load = job(TransferKind::kLoad, {}, {3, 4});
    lanes_->post(load);
    for (int i = 0; i < 5; ++i) {
      lanes_->wait_done(std::chrono::milliseconds(2));
      EXPECT_EQ(take(), nullptr);
      EXPECT_FALSE(load.try_withdraw());
    }
    tiers(1).store.open();
    finish(load);
    EXPECT_THAT(load.verdicts, Each(kDone));
  });
}

TEST_F(LeadingLanesTest, OtherJobsEndMeanwhile) {
  run([&] {
    store_pages({0, 1});
    tiers(2).store.closed = true;
    Transfer& load = job(TransferKind::kLoad, {}, {3, 4});
    lanes_->post(load);
    EXPECT_THAT(run_job(TransferKind::kBackup, {2}, {2}), Each(kDone));
    tiers(2).store.open();
    finish(load);
  });
}

// Rank 0's lane is at a call; the others' have not begun the job.
TEST_F(LeadingLanesTest, WhatIsCancelledIsSoOnEveryRank) {
  run([&] {
    store_pages({0, 1});
    for (int rank = 0; rank < kRanks; ++rank) tiers(rank).store.closed = true;
    Transfer& first = job(TransferKind::kLoad, {}, {3, 4});
    Transfer& second = job(TransferKind::kLoad, {}, {1, 0});
    lanes_->post(first);
    lanes_->post(second);
    second.cancelled = true;
    EXPECT_EQ(take(), nullptr);
    const auto untouched = tiers(2).image(1);
    for (int rank = 0; rank < kRanks; ++rank) tiers(rank).store.open();
    finish(first);
    finish(second);
    EXPECT_THAT(second.verdicts, Each(kFailed));
    EXPECT_EQ(tiers(2).image(1), untouched);
  });
}

TEST_F(LeadingLanesTest, StoppingEndsWhatIsUnderWayOnAllRanks) {
  run([&] {
    store_pages({0, 1});
    Transfer& load = job(TransferKind::kLoad, {}, {3, 4});
    Transfer& backup = job(TransferKind::kBackup, {0, 1}, {2, 3});
    lanes_->post(load);
    lanes_->post(backup);
    lanes_->stop();
    EXPECT_NE(take(), nullptr);
    EXPECT_NE(take(), nullptr);
  });
}

// What goes on from a page is published after it: jobs whose ends are seen at once come as they
// were posted, whatever places they have.
TEST_F(LeadingLanesTest, JobsOfALaneEndInTheOrderInWhichTheyWerePosted) {
  run([&] {
    std::vector<Transfer*> posted;
    for (std::int32_t page = 0; page < kPages; ++page) {
      posted.push_back(&job(TransferKind::kBackup, {page}, {page}));
    }
    std::reverse(posted.begin(), posted.end());
    for (Transfer* const backup : posted) lanes_->post(*backup);
    lanes_->stop();
    for (const Transfer* const backup : posted) EXPECT_EQ(take(), backup);
  });
}

// A step over ranks that names pages which are still arriving asks when it has retired.
TEST_F(LeadingLanesTest, LayersCameRightWhereTheyDidOnAllRanks) {
  run([&] {
    ASSERT_THAT(run_job(TransferKind::kBackup, {0, 1}, {0, 1}), Each(kDone));
    for (const bool wrong : {false, true}) {
      if (wrong) flip(2, 1);
      Transfer& promote = job(TransferKind::kPromote, {0, 1}, {3, 4});
      lanes_->post(promote);
      EXPECT_TRUE(lanes_->wait_layer(promote, 1)) << "this rank's own part is right";
      EXPECT_EQ(lanes_->came_right(promote, 1), !wrong);
      finish(promote);
    }
  });
}

TEST_F(LeadingLanesTest, PurgesAreDoneWhereEveryRankHasPurged) {
  run([&] {
    store_pages({0, 1});
    const NamespaceFamily family = family_of(digest_);
    EXPECT_EQ(family_of(of_rank(digest_, 1)), family) << "a family's pages are so on every rank";
    tiers(1).store.broken = true;
    const auto purge = [&]() -> Transfer& {
      Transfer& posted = job(TransferKind::kPurge, {}, {});
      posted.namespaces = {family};
      lanes_->post(posted);
      finish(posted);
      return posted;
    };
    const Transfer& first = purge();
    ASSERT_TRUE(first.purge.has_value());
    EXPECT_EQ(first.purge->pages, 2);
    EXPECT_EQ(first.purge->status.error().detail, "rank 1: pages may be left");
    EXPECT_FALSE(first.purge->advanced);
    tiers(1).store.purge_advances = true;
    EXPECT_TRUE(purge().purge->advanced);
    tiers(1).store.broken = false;
    const Transfer& second = purge();
    EXPECT_TRUE(second.purge->status.ok());
    EXPECT_EQ(second.purge->pages, 2) << "those of rank 1";
    EXPECT_THAT(tiers(2).store.purged, ElementsAre(family));
  });
}

TEST_F(LeadingLanesTest, WhereRanksAreLostEverythingFails) {
  run([&] {
    Transfer& before = job(TransferKind::kBackup, {0, 1}, {0, 1});
    lanes_->post(before);
    group_->lost = true;
    finish(before);
    EXPECT_THAT(before.verdicts, Each(kFailed));
    EXPECT_THAT(run_job(TransferKind::kBackup, {0, 1}, {4, 5}), Each(kFailed));
    EXPECT_FALSE(tiers(0).host->holds(PageId(4), keys_[0])) << "nothing more is begun, here either";
    Transfer& promote = job(TransferKind::kPromote, {0, 1}, {2, 3});
    lanes_->post(promote);
    EXPECT_FALSE(lanes_->came_right(promote, 0));
    finish(promote);
    EXPECT_THAT(promote.verdicts, Each(kFailed));
    Transfer& lookup = job(TransferKind::kLookup, {}, {0, 1, 2});
    lanes_->post(lookup);
    finish(lookup);
    EXPECT_EQ(lookup.found_pages, 0);
  });
}

// What the own rank still writes is held, whoever is lost (I6).
TEST_F(LeadingLanesTest, WhereRanksAreLostAJobEndsWhenItHasEndedHere) {
  run([&] {
    store_pages({0, 1});
    tiers(0).store.closed = true;
    Transfer& load = job(TransferKind::kLoad, {}, {3, 4});
    lanes_->post(load);
    group_->lost = true;
    lanes_->post(job(TransferKind::kBackup, {0}, {2}));  // finds it out
    bool early = false;
    for (int i = 0; i < 5; ++i) {
      lanes_->wait_done(std::chrono::milliseconds(2));
      early = early || take() == &load;
    }
    tiers(0).store.open();
    ASSERT_FALSE(early);
    finish(load);
    EXPECT_THAT(load.verdicts, Each(kFailed));
  });
}

TEST(TransferMessages, EverythingThatAJobAsksForComesBack) {
  Transfer sent;
  sent.kind = TransferKind::kStore;
  sent.group = LayerGroup::kWindowed;
  sent.store = 2;
  sent.place = 5;
  sent.first_page = 9;
  sent.digest = {{1, 2, 3}};
  sent.parent = {{4, 5}};
  sent.tokens = {7, 8, 9};
  sent.keys = {{{6}}, {{7}}};
  sent.before = {{{3}}, {{4}}, {{5}}};
  sent.from = {PageId(3), PageId(4), PageId(1)};
  sent.to = {PageId(2)};
  sent.namespaces = {{{8}}};
  sent.deadline_us = 1'500;
  std::vector<std::int64_t> words;
  write_transfer(sent, 1'000, words);
  EXPECT_EQ(transfer_place(words), 5);
  Transfer got;
  read_transfer(words, 70'000, got);
  EXPECT_EQ(got.deadline_us, 70'500) << "on the other's clock";
  const auto fields = [](const Transfer& job) {
    return std::tie(job.kind, job.group, job.store, job.place, job.first_page, job.digest,
                    job.parent, job.tokens, job.keys, job.before, job.from, job.to, job.namespaces);
  };
  EXPECT_EQ(fields(got), fields(sent));
}

}  // namespace
}  // namespace stemma
