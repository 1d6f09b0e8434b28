// A rank's part of transfers by itself: a step waits for what is being promoted, and for nothing
// else; when the lanes stop nobody needs what has not begun. Its lanes are the test's own.
#include "tier/rank_transfers.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "device/thread_ranks_fixture.h"
#include "tier/held_lanes.h"
#include "tier/transfer_message.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::int64_t kJobs = 8;

// Which layers of which jobs were waited for, and how many jobs were needed when the lanes stopped.
struct Seen {
  std::vector<std::pair<std::int64_t, std::int64_t>> waits;  // place and layer
  int stopped = 0;
  int needed = 0;
};

class SeenLanes final : public HeldLanes {
 public:
  explicit SeenLanes(Seen& seen) : seen_(seen) {}
  bool wait_layer(Transfer& job, std::int64_t layer) override {
    seen_.waits.emplace_back(job.place, layer);
    return true;
  }
  void stop() override {
    seen_.stopped += static_cast<int>(posted.size());
    for (const Transfer* const job : posted) seen_.needed += job->cancelled ? 0 : 1;
    HeldLanes::stop();
  }

 private:
  Seen& seen_;
};

class SeenTiers final : public LowerTiers {
 public:
  std::int64_t host_pages() const override { return 1; }
  std::span<PageStore* const> stores() const override { return {}; }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t) override {
    auto opened = std::make_unique<SeenLanes>(seen);
    lanes = opened.get();
    return opened;
  }

  Seen seen;
  SeenLanes* lanes = nullptr;  // that were opened last
};

class RankTransfersTest : public ::testing::Test {
 protected:
  void run(const std::function<void(RankTransfers& transfers)>& work) {
    ThreadRanks(1).run([&](RankGroup& ranks) {
      RankTransfers transfers(tiers, ranks, clock);
      transfers.open(kJobs);
      work(transfers);
    });
  }
  static void begin(RankTransfers& transfers, std::int64_t place, TransferKind kind,
                    LayerGroup group = LayerGroup::kFull) {
    Transfer job;
    job.place = place;
    job.kind = kind;
    job.group = group;
    std::vector<std::int64_t> words;
    write_transfer(job, 0, words);
    EXPECT_TRUE(transfers.told(RankTask::kTransfer, words).ok());
  }

  FakeClock clock;
  SeenTiers tiers;
};

TEST_F(RankTransfersTest, AStepWaitsForLayersOfWhatIsBeingPromotedAlone) {
  run([&](RankTransfers& transfers) {
    EXPECT_TRUE(transfers.wait(2));
    EXPECT_THAT(tiers.seen.waits, IsEmpty());
    begin(transfers, 5, TransferKind::kPromote);
    tiers.lanes->end_next(PageVerdict::kDone);
    transfers.take_ended();
    begin(transfers, 0, TransferKind::kBackup);
    begin(transfers, 1, TransferKind::kPromote);
    begin(transfers, 2, TransferKind::kPromote, LayerGroup::kWindowed);
    begin(transfers, 3, TransferKind::kLoad);
    begin(transfers, 4, TransferKind::kPromote);
    EXPECT_TRUE(transfers.wait(2));
    EXPECT_THAT(tiers.seen.waits, ElementsAre(Pair(1, 2), Pair(4, 2)));
  });
}

TEST_F(RankTransfersTest, WhatHasNotBegunNeedNotBeginWhereLanesStop) {
  run([&](RankTransfers& transfers) {
    begin(transfers, 0, TransferKind::kBackup);
    begin(transfers, 1, TransferKind::kLoad);
    transfers.stop();
    EXPECT_EQ(tiers.seen.stopped, 2);
    EXPECT_EQ(tiers.seen.needed, 0);
    EXPECT_TRUE(transfers.has_ended(0) && transfers.has_ended(1));
    transfers.open(kJobs);
    begin(transfers, 1, TransferKind::kLoad);
    EXPECT_FALSE(transfers.job(1).cancelled) << "it is another's by now";
  });
  EXPECT_EQ(tiers.seen.stopped, 3) << "and with the ranks' end";
}

}  // namespace
}  // namespace stemma
