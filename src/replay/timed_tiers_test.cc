// What lower tiers of a replay hold, and how long their pages are on the way.
#include "replay/timed_tiers.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <array>

#include "replay/timed_replay_fixture.h"
#include "tier/memory_page_store.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kMs = 1000;

PageKey key(int number) {
  PageKey key;
  key.bytes[0] = static_cast<std::uint8_t>(number);
  return key;
}

std::int64_t write(PageStore& disk, int number) {
  const std::array<std::byte, 1> frame = {};
  PageWrite page = {.key = key(number), .frame = frame};
  disk.write({&page, 1}, 0);
  return disk.usage().pages;
}

std::int64_t found(PageStore& disk, std::initializer_list<int> numbers) {
  std::vector<PageKey> keys;
  for (const int number : numbers) keys.push_back(key(number));
  return *disk.lookup(keys, 0);
}

TEST(TimedTiers, ADiskForgetsWhatWasUsedLongestAgo) {
  const FakeClock clock;
  const TimedTiers tiers({.host_pages = 1, .disk_pages = 2, .page_bytes = 1e6}, clock);
  PageStore& disk = *tiers.stores().front();
  EXPECT_EQ(write(disk, 1), 1);
  EXPECT_EQ(write(disk, 2), 2);
  EXPECT_EQ(found(disk, {1}), 1) << "a use";
  EXPECT_EQ(write(disk, 3), 2);
  EXPECT_EQ(found(disk, {1, 3}), 2);
  EXPECT_EQ(found(disk, {2}), 0);
  EXPECT_EQ(found(disk, {1, 2, 3}), 1) << "from the first on";
  EXPECT_EQ(write(disk, 1), 2) << "it is there";
}

// A page takes 2 ms over the link, 10 ms from or to the disk.
TimedTierOptions slow_tiers() {
  return {.host_pages = 8, .disk_pages = 8, .page_bytes = 2e6, .link_gb_s = 1, .disk_gb_s = 0.2};
}

class Lanes : public testing::Test {
 protected:
  // Of so many pages, from now on.
  Transfer& post(TransferKind kind, int pages) {
    auto& job = *jobs_.emplace_back(std::make_unique<Transfer>());
    job.kind = kind;
    for (int i = 0; i < pages; ++i) job.keys.push_back(key(i));
    job.deadline_us = deadline_us_;
    lanes_.post(job);
    return job;
  }
  // Whether the next that is done by then is this one.
  bool done(std::int64_t at_us, const Transfer& job) {
    clock_.advance_us(at_us - clock_.now_us());
    return lanes_.try_take_done_or_null() == &job;
  }

  FakeClock clock_;
  MemoryPageStore disk_{Tier::kDisk, 8};
  TimedLanes lanes_{slow_tiers(), &disk_, clock_};
  std::vector<std::unique_ptr<Transfer>> jobs_;
  std::int64_t deadline_us_ = 1'000 * kMs;
};

TEST_F(Lanes, PagesTakeAsLongAsTheirBytes) {
  const Transfer& job = post(TransferKind::kBackup, 3);
  EXPECT_EQ(lanes_.next_end_us(), 6 * kMs);
  EXPECT_FALSE(done(6 * kMs - 1, job));
  EXPECT_TRUE(done(6 * kMs, job));
  EXPECT_EQ(job.done_pages(), 3);
  EXPECT_EQ(job.ended_us - job.started_us, 6 * kMs);
  EXPECT_EQ(job.moved_bytes, 6'000'000);
}

TEST_F(Lanes, OneJobFollowsAnotherAndDirectionsDoNotWaitForEachOther) {
  const Transfer& first = post(TransferKind::kBackup, 2);
  const Transfer& second = post(TransferKind::kBackup, 1);
  const Transfer& up = post(TransferKind::kPromote, 1);
  EXPECT_TRUE(done(2 * kMs, up));
  EXPECT_TRUE(done(4 * kMs, first));
  EXPECT_FALSE(done(5 * kMs, second));
  EXPECT_TRUE(done(6 * kMs, second));
  EXPECT_EQ(lanes_.next_end_us(), std::numeric_limits<std::int64_t>::max());
}

TEST_F(Lanes, WhatIsCancelledBeforeItsTurnMovesNothing) {
  const Transfer& first = post(TransferKind::kBackup, 2);
  Transfer& second = post(TransferKind::kBackup, 2);
  second.cancelled = true;
  EXPECT_TRUE(done(4 * kMs, first));
  EXPECT_TRUE(done(4 * kMs, second));
  EXPECT_EQ(second.done_pages(), 0);
}

TEST_F(Lanes, AJobOfTheDiskEndsAtItsDeadlineWithWhatItHasMoved) {
  deadline_us_ = 25 * kMs;
  const Transfer& job = post(TransferKind::kStore, 3);
  EXPECT_TRUE(done(25 * kMs, job));
  EXPECT_THAT(job.verdicts,
              ElementsAre(PageVerdict::kDone, PageVerdict::kDone, PageVerdict::kFailed));
  EXPECT_EQ(disk_.usage().pages, 2);
}

TEST_F(Lanes, WhatTheDiskHasForgottenIsMissing) {
  post(TransferKind::kStore, 1);
  clock_.advance_us(10 * kMs);
  ASSERT_NE(lanes_.try_take_done_or_null(), nullptr);
  const Transfer& job = post(TransferKind::kLoad, 2);
  EXPECT_TRUE(done(30 * kMs, job));
  EXPECT_THAT(job.verdicts, ElementsAre(PageVerdict::kDone, PageVerdict::kMissing));
}

TEST_F(Lanes, APageThatWasTakenBackMeanwhileIsNotWritten) {
  post(TransferKind::kStore, 1);
  clock_.advance_us(10 * kMs);
  ASSERT_NE(lanes_.try_take_done_or_null(), nullptr);
  Transfer& job = post(TransferKind::kFetch, 1);
  ASSERT_TRUE(job.try_withdraw());
  EXPECT_TRUE(done(20 * kMs, job));
  EXPECT_EQ(job.done_pages(), 0);
}

TEST_F(Lanes, EndWithEverythingThatWasPosted) {
  const Transfer& first = post(TransferKind::kBackup, 2);
  const Transfer& second = post(TransferKind::kBackup, 2);
  lanes_.stop();
  EXPECT_TRUE(done(0, first));
  EXPECT_TRUE(done(0, second));
  EXPECT_EQ(first.done_pages() + second.done_pages(), 0);
}

// A whole replay: steps take 10 ms, and a token of a prompt 1 ms.
TimedReplayOptions tiered_options(std::int64_t pages) {
  TimedReplayOptions options = timed_options(pages);
  options.tiers = slow_tiers();
  options.engine.kv.tiers.write_policy = WritePolicy::kWriteThrough;
  return options;
}

TEST(TieredReplay, WhatWasEvictedComesBackFromHostMemory) {
  const std::vector<TraceRequest> trace = {trace_request(0, 9, 1, {1, 2}),
                                           trace_request(1000, 16, 1, {3, 4, 5, 6}),
                                           trace_request(2000, 9, 1, {1, 2})};
  EXPECT_EQ(TimedRun(timed_options(4), trace)[2].hit_tokens.total(), 0);
  const TimedRun run(tiered_options(4), trace);
  EXPECT_EQ(run[2].hit_tokens.host, 8);
  EXPECT_EQ(run[2].computed_tokens, 1);
  EXPECT_EQ(run[2].ttft_us(), 4 * kMs + 11 * kMs) << "two pages over the link, then the step";
  EXPECT_EQ(run.total().hit_tokens.host, 8);
  EXPECT_EQ(run.total().hit_tokens.total(), 8);
}

TEST(TieredReplay, WhatHostMemoryHasNoRoomForComesBackFromTheDisk) {
  TimedReplayOptions options = tiered_options(4);
  options.tiers.host_pages = 2;
  const TimedRun run(options,
                     {trace_request(0, 9, 1, {1, 2}), trace_request(1000, 9, 1, {3, 4}),
                      trace_request(2000, 9, 1, {5, 6}), trace_request(3000, 9, 1, {1, 2})});
  EXPECT_EQ(run[3].hit_tokens.disk, 8);
  EXPECT_EQ(run[3].hit_tokens.total() + run[3].computed_tokens, 9);
}

TEST(TieredReplay, LoadingIsNotWaitedForLongerThanIsAllowed) {
  TimedReplayOptions options = tiered_options(6);  // two of them are being copied to meanwhile
  options.tiers.link_gb_s = 1e-3;                  // two seconds a page
  options.engine.kv.tiers.load_wait_us = 40 * kMs;
  const TimedRun run(
      options, {trace_request(0, 9, 1, {1, 2}), trace_request(30'000, 24, 1, {3, 4, 5, 6, 7, 8}),
                trace_request(60'000, 9, 1, {1, 2})});
  EXPECT_EQ(run[2].computed_tokens, 9);
  EXPECT_LE(run[2].ttft_us(), 40 * kMs + 19 * kMs + kMs);
}

TEST(TieredReplay, TiersWithoutSizesOrRatesAreRefused) {
  TimedReplayOptions options = tiered_options(4);
  options.tiers.page_bytes = 0;
  EXPECT_EQ(TimedReplay::open(options).error().code, ErrorCode::kInvalidArgument);
  options = tiered_options(4);
  options.tiers.host_pages = 0;
  EXPECT_EQ(TimedReplay::open(options).error().code, ErrorCode::kInvalidArgument) << "a disk alone";
}

TEST(TieredReplay, TwoRunsGiveTheSame) {
  std::vector<TraceRequest> trace;
  for (std::int64_t i = 0; i < 200; ++i) {
    const std::int64_t first = 10 * (i * i % 7);
    trace.push_back(trace_request(static_cast<double>(20 * i), 13, 2, {first, first + 1, i % 3}));
  }
  const TimedRun once(tiered_options(12), trace);
  const TimedRun again(tiered_options(12), trace);
  EXPECT_GT(once.total().hit_tokens.host, 0);
  EXPECT_EQ(once.end_us(), again.end_us());
  EXPECT_EQ(once.total().hit_tokens.host, again.total().hit_tokens.host);
}

}  // namespace
}  // namespace stemma
