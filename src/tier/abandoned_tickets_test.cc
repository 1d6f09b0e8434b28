// Tickets whose outcome nobody needs any more: what they hold, and until when. The lane is the
// test's own: a job ends when the test says so.
#include <gtest/gtest.h>

#include <algorithm>

#include "tier/held_lanes.h"
#include "tier/transfer_ticket.h"

namespace stemma {
namespace {

class AbandonedTickets : public ::testing::Test {
 protected:
  static constexpr std::int64_t kPages = 4;

  // A job of `pages` pages that is on its way.
  Transfer& submit(TransferKind kind, std::int64_t cookie, std::int64_t pages) {
    auto ticket = transfers_.try_open(kind);
    Transfer& job = ticket->job();
    ticket->cookie = cookie;
    ticket->target = *pages_.try_allocate(pages);
    transfers_.submit(std::move(*ticket));
    return job;
  }

  void land() {
    lanes_.stop();
    while (transfers_.try_take_landed().has_value()) {
    }
  }

  PageAllocator pages_{kPages};
  HeldLanes lanes_;
  TransferEngine transfers_{TransferLimits(), lanes_};
};

TEST_F(AbandonedTickets, WhatAStoreStillReadsHoldsNoPage) {
  for (const TransferKind kind : {TransferKind::kLoad, TransferKind::kFetch}) {
    Transfer& job = submit(kind, 7, 3);
    EXPECT_EQ(transfers_.promised_pages(7), 3);
    EXPECT_EQ(transfers_.promised_pages(8), 0);
    transfers_.abandon(7);
    EXPECT_EQ(pages_.free_pages(), kPages);
    EXPECT_EQ(transfers_.promised_pages(7), 0);
    EXPECT_TRUE(job.cancelled.load());
    EXPECT_FALSE(job.try_begin_writing()) << "the pages may be others' by now";
  }
  land();
  EXPECT_EQ(transfers_.underway(), 0);
}

TEST_F(AbandonedTickets, NorAPageOfLayersWithAWindow) {
  WindowedPages windowed({.pages = 2, .carriers = 1});
  auto ticket = transfers_.try_open(TransferKind::kLoad);
  ticket->windowed_target = TakenWindowedPages::try_take(windowed, 2);
  ticket->cookie = 7;
  transfers_.submit(std::move(*ticket));
  EXPECT_EQ(windowed.free_pages(), 0);
  transfers_.abandon(7);
  EXPECT_EQ(windowed.free_pages(), 2);
  land();
}

TEST_F(AbandonedTickets, WhatIsBeingWrittenIsHeldUntilTheJobHasEnded) {
  Transfer& job = submit(TransferKind::kLoad, 7, 3);
  ASSERT_TRUE(job.try_begin_writing());
  transfers_.abandon(7);
  EXPECT_EQ(pages_.free_pages(), kPages - 3);
  job.end_writing();
  land();
  EXPECT_EQ(pages_.free_pages(), kPages);
}

TEST_F(AbandonedTickets, ACopyFromHostMemoryHoldsItsPages) {
  submit(TransferKind::kPromote, 7, 3);
  transfers_.abandon(7);
  EXPECT_EQ(pages_.free_pages(), kPages - 3);
  land();
  EXPECT_EQ(pages_.free_pages(), kPages);
}

// The cookie of what nobody asked for is that of the first promotion.
TEST_F(AbandonedTickets, WhatWasMeantForNoRequestIsLeftAlone) {
  Transfer& backup = submit(TransferKind::kBackup, 0, 1);
  Transfer& store = submit(TransferKind::kStore, 0, 1);
  Transfer& removal = submit(TransferKind::kRemove, 0, 0);
  Transfer& purge = submit(TransferKind::kPurge, 0, 0);
  Transfer& load = submit(TransferKind::kLoad, 0, 1);
  transfers_.abandon(0);
  EXPECT_FALSE(backup.cancelled.load());
  EXPECT_FALSE(store.cancelled.load());
  EXPECT_FALSE(removal.cancelled.load()) << "what is wrong has to go";
  EXPECT_FALSE(purge.cancelled.load()) << "and what is to be forgotten";
  EXPECT_TRUE(load.cancelled.load());
  EXPECT_EQ(transfers_.promised_pages(0), 0);
  land();
}

TEST_F(AbandonedTickets, AJobThatIsUsedAgainMayBeWrittenToAgain) {
  submit(TransferKind::kLoad, 7, 1);
  transfers_.abandon(7);
  land();
  auto ticket = transfers_.try_open(TransferKind::kLoad);
  EXPECT_TRUE(ticket->job().try_begin_writing());
  ticket->job().end_writing();
}

}  // namespace
}  // namespace stemma
