// Tickets: what a copy reads and writes is held until it has ended, whatever becomes of who asked;
// as many are in use as limits say. And lanes with threads: every job ends, once.
#include "tier/transfer_ticket.h"

#include <gtest/gtest.h>

#include <system_error>
#include <vector>

#include "base/forked_child.h"
#include "base/scarce_threads.h"
#include "prefix/prefix_fixture.h"
#include "tier/held_lanes.h"
#include "tier/transfer_lanes.h"

namespace stemma {
namespace {

class TicketTest : public ::testing::Test {
 protected:
  TransferTicket opened(TransferKind kind) { return std::move(*transfers.try_open(kind)); }

  PrefixFixture device;
  HeldLanes lanes;
  TransferEngine transfers{{.down_max = 2, .up_max = 1, .reads_max = 1, .writes_max = 1}, lanes};
};

TEST_F(TicketTest, HoldsSourceAndTargetUntilTheCopyHasEnded) {
  TransferTicket ticket = opened(TransferKind::kBackup);
  ticket.source = device.begin(counted(0, 3));
  ticket.target = device.allocate(2);
  transfers.submit(std::move(ticket));
  EXPECT_TRUE(device.evict(3).empty());
  EXPECT_EQ(device.allocator.owned_pages(), 2);
  EXPECT_EQ(transfers.target_pages(TransferKind::kBackup), 2);
  EXPECT_FALSE(transfers.try_take_landed().has_value());
  lanes.end_next();
  transfers.try_take_landed().reset();
  EXPECT_EQ(device.allocator.owned_pages(), 0);
  EXPECT_EQ(device.evict(3).size(), 3u);
}

TEST_F(TicketTest, EverythingThatItHoldsGoesWithItAndIsGivenBackByReset) {
  WindowedPages windowed({.pages = 2, .carriers = 1});
  const PageId carrier(0);
  ASSERT_TRUE(windowed.try_hang({&carrier, 1}));
  TransferTicket ticket = opened(TransferKind::kBackup);
  ticket.source = device.begin(counted(0, 3));
  ticket.anchor = device.begin(counted(100, 2));
  ticket.target = device.allocate(1);
  ticket.windowed_source = HeldWindowedPages(windowed, {carrier});
  ticket.windowed_target = TakenWindowedPages::try_take(windowed, 1);
  ticket.cookie = 5;
  windowed.let_go(carrier, WindowedPages::Return::kLikely);
  transfers.submit(std::move(ticket));
  lanes.end_next();
  auto landed = transfers.try_take_landed();
  ASSERT_TRUE(landed.has_value());
  EXPECT_EQ(landed->cookie, 5);
  EXPECT_TRUE(device.evict(5).empty());
  EXPECT_EQ(device.allocator.owned_pages(), 1);
  EXPECT_EQ(windowed.available_pages(), 0);
  landed->reset();
  EXPECT_FALSE(landed->valid());
  EXPECT_EQ(device.allocator.owned_pages(), 0);
  EXPECT_EQ(device.evict(5).size(), 5u);
  EXPECT_EQ(windowed.available_pages(), 2);
}

TEST_F(TicketTest, AreAsManyAsTheirQueueAllows) {
  const TransferTicket first = opened(TransferKind::kBackup);
  {
    const TransferTicket second = opened(TransferKind::kBackup);
    EXPECT_FALSE(transfers.try_open(TransferKind::kBackup).has_value());
    EXPECT_TRUE(transfers.try_open(TransferKind::kPromote).has_value()) << "queues are separate";
  }
  EXPECT_TRUE(transfers.try_open(TransferKind::kBackup).has_value())
      << "dropped, it is there again";
}

TEST_F(TicketTest, AbandoningSaysSoAndHoldsOn) {
  TransferTicket ticket = opened(TransferKind::kPromote);
  ticket.target = device.allocate(1);
  ticket.cookie = 7;
  transfers.submit(std::move(ticket));
  transfers.abandon(8);
  EXPECT_FALSE(lanes.posted.front()->cancelled);
  transfers.abandon(7);
  EXPECT_TRUE(lanes.posted.front()->cancelled);
  EXPECT_EQ(device.allocator.owned_pages(), 1) << "the copy may be writing there";
  lanes.end_next();
  const auto landed = transfers.try_take_landed();
  ASSERT_TRUE(landed.has_value());
  EXPECT_EQ(landed->state(), TicketState::kLanded);
}

// What a request waits for, where that is one job.
TEST_F(TicketTest, TheOnlyJobIsOneThatIsStillNeeded) {
  TransferEngine two({.up_max = 2}, lanes);
  const auto only = [&](std::int64_t cookie) {
    return two.only_job_or_null(TransferKind::kPromote, cookie);
  };
  const auto submit = [&](std::int64_t cookie) -> Transfer& {
    auto ticket = two.try_open(TransferKind::kPromote);
    ticket->cookie = cookie;
    Transfer& job = ticket->job();
    two.submit(std::move(*ticket));
    return job;
  };
  EXPECT_EQ(only(7), nullptr);
  const Transfer& first = submit(7);
  EXPECT_EQ(only(7), &first);
  EXPECT_EQ(only(8), nullptr);
  EXPECT_EQ(two.only_job_or_null(TransferKind::kLoad, 7), nullptr);
  submit(7);
  EXPECT_EQ(only(7), nullptr) << "there are two";
  lanes.end_next();
  two.try_take_landed().reset();
  EXPECT_NE(only(7), nullptr);
  two.abandon(7);
  EXPECT_EQ(only(7), nullptr) << "nobody needs it";
}

TEST_F(TicketTest, AJobThatIsUsedAgainIsBlank) {
  TransferTicket ticket = opened(TransferKind::kPromote);
  Transfer& job = ticket.job();
  job.group = LayerGroup::kWindowed;
  job.tokens.resize(3);
  job.keys.resize(3);
  job.before.resize(3);
  job.from.resize(3);
  job.to.resize(3);
  job.verdicts.resize(3);
  job.namespaces.resize(3);
  job.found_pages = job.lost_pages = job.moved_bytes = 3;
  job.purge.emplace();
  job.cancelled = true;
  job.arrive(3);
  ticket.reset();
  const TransferTicket again = opened(TransferKind::kPromote);
  ASSERT_EQ(&again.job(), &job);
  EXPECT_EQ(job.group, LayerGroup::kFull);
  EXPECT_TRUE(job.tokens.empty() && job.keys.empty() && job.before.empty());
  EXPECT_TRUE(job.from.empty() && job.to.empty() && job.verdicts.empty());
  EXPECT_TRUE(job.namespaces.empty()) << "a purge that names none is one of all";
  EXPECT_EQ(job.found_pages + job.lost_pages + job.moved_bytes, 0);
  EXPECT_FALSE(job.purge.has_value());
  EXPECT_FALSE(job.cancelled);
  EXPECT_FALSE(job.has_arrived(0)) << "what comes next may not be read yet";
}

// Lanes that are stopped, and know what was said of their jobs by then.
class StoppedLanes final : public HeldLanes {
 public:
  void stop() override {
    for (const Transfer* const job : posted) needed += job->cancelled ? 0 : 1;
    HeldLanes::stop();
  }
  int needed = 0;
};

TEST_F(TicketTest, TheEndOfTheEngineEndsEveryCopyFirst) {
  StoppedLanes own;
  {
    TransferEngine engine({}, own);
    for (int i = 0; i < 3; ++i) {
      auto ticket = engine.try_open(TransferKind::kBackup);
      ticket->target = device.allocate(1);
      engine.submit(std::move(*ticket));
    }
    own.end_next();
  }
  EXPECT_EQ(device.allocator.owned_pages(), 0);
  EXPECT_EQ(own.needed, 0) << "what has not begun need not begin";
}

using TicketDeathTest = TicketTest;

TEST_F(TicketDeathTest, TakesOnlyTheWaysOfItsTable) {
  constexpr TicketState kAll[] = {TicketState::kBlank, TicketState::kUnderway,
                                  TicketState::kAbandoned, TicketState::kLanded};
  int ways = 0;
  for (const TicketState from : kAll) {
    for (const TicketState to : kAll) ways += may_become(from, to) ? 1 : 0;
  }
  EXPECT_EQ(ways, 5);
  EXPECT_FALSE(may_become(TicketState::kBlank, TicketState::kLanded));
  EXPECT_FALSE(may_become(TicketState::kLanded, TicketState::kUnderway));
}

// Counts what it is given; the time of a job is what its thread takes.
class CountingWork final : public TransferWork {
 public:
  void run(Transfer& job) override {
    job.verdicts.assign(job.keys.size(), job.cancelled ? PageVerdict::kFailed : PageVerdict::kDone);
  }
};

TEST(ThreadLanes, EndEveryJobOnce) {
  constexpr int kJobs = 64;
  CountingWork work;
  ThreadLanes lanes(work, 2, kJobs);
  std::deque<Transfer> jobs(kJobs);
  const TransferKind kinds[] = {
      TransferKind::kBackup, TransferKind::kPromote, TransferKind::kStore,  TransferKind::kLoad,
      TransferKind::kFetch,  TransferKind::kLookup,  TransferKind::kRemove, TransferKind::kPurge};
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].kind = kinds[i % std::size(kinds)];
    jobs[i].store = static_cast<int>(i % 2);
    jobs[i].keys.resize(i % 5);
    lanes.post(jobs[i]);
  }
  std::vector<int> ended(kJobs, 0);
  for (int left = kJobs; left > 0;) {
    lanes.wait_done(std::chrono::seconds(10));
    while (Transfer* job = lanes.try_take_done_or_null()) {
      const auto place = static_cast<std::size_t>(
          std::find_if(jobs.begin(), jobs.end(),
                       [&](const Transfer& other) { return &other == job; }) -
          jobs.begin());
      EXPECT_EQ(job->done_pages(), static_cast<std::int64_t>(place % 5));
      ++ended[place];
      --left;
    }
  }
  EXPECT_EQ(ended, std::vector<int>(kJobs, 1));
}

TEST(ThreadLanes, StopEndsWhatWasPosted) {
  CountingWork work;
  ThreadLanes lanes(work, 1, 8);
  std::deque<Transfer> jobs(8);
  for (Transfer& job : jobs) lanes.post(job);
  lanes.stop();
  int ended = 0;
  while (lanes.try_take_done_or_null() != nullptr) ++ended;
  EXPECT_EQ(ended, 8);
}

TEST(ThreadLanes, WithoutAThreadForEachThereAreNone) {
  const int said = in_forked_child([] {
    if (!limit_threads(2)) return 1;
    CountingWork work;
    try {
      const ThreadLanes lanes(work, 2, 8);
    } catch (const std::system_error& refused) {
      return refused.code() == std::errc::resource_unavailable_try_again ? 0 : 2;
    }
    return 3;
  });
  EXPECT_EQ(said, 0) << "-1: those that were started are waited for";
}

TEST(ThreadLanes, NoStoreHoldsUpAnother) {
  EXPECT_EQ(transfer_lanes(0), 2u);
  EXPECT_EQ(transfer_lanes(2), 6u);
  Transfer read;
  read.kind = TransferKind::kLoad;
  read.store = 1;
  Transfer write;
  write.kind = TransferKind::kStore;
  write.store = 1;
  Transfer other;
  other.kind = TransferKind::kLoad;
  EXPECT_NE(transfer_lane(read), transfer_lane(write));
  EXPECT_NE(transfer_lane(read), transfer_lane(other));
  Transfer removal;
  removal.kind = TransferKind::kRemove;
  removal.store = 1;
  EXPECT_EQ(transfer_lane(removal), transfer_lane(read))
      << "a store is read and removed from in turn";
  Transfer purge;
  purge.kind = TransferKind::kPurge;
  purge.store = 1;
  EXPECT_EQ(transfer_lane(purge), transfer_lane(write)) << "and written and purged in turn";
}

}  // namespace
}  // namespace stemma
