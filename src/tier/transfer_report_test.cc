// What ranks made of their parts of a job, made one: a page is as bad as on the worst of them, and
// a purge is done where it is on all.
#include "tier/transfer_report.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

namespace stemma {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr PageVerdict kDone = PageVerdict::kDone;
constexpr PageVerdict kMissing = PageVerdict::kMissing;
constexpr PageVerdict kRefused = PageVerdict::kRefused;
constexpr PageVerdict kCorrupt = PageVerdict::kCorrupt;
constexpr PageVerdict kFailed = PageVerdict::kFailed;

class TransferReport : public ::testing::Test {
 protected:
  // A rank's part of a job of so many pages.
  static Transfer& part_of(Transfer& part, const std::vector<PageVerdict>& verdicts) {
    part.keys.resize(verdicts.size());
    part.verdicts = verdicts;
    return part;
  }
  // The report of the next rank.
  void merge(const Transfer& part) {
    if (ranks_ == 0) {
      whole_.kind = part.kind;
      whole_.keys = part.keys;
      begin_merge(whole_);
    }
    std::vector<std::int64_t> words;
    append_report(part, /*ended=*/true, words);
    EXPECT_EQ(words.size(), report_words(part.pages()));
    EXPECT_TRUE(has_ended(words));
    merge_report(words, ranks_++, whole_);
  }
  void merge(const std::vector<PageVerdict>& verdicts) {
    Transfer part;
    merge(part_of(part, verdicts));
  }
  void merge_purge(const std::optional<PurgeOutcome>& outcome) {
    Transfer part;
    part.kind = TransferKind::kPurge;
    part.purge = outcome;
    merge(part);
  }

  Transfer whole_;
  int ranks_ = 0;
};

TEST_F(TransferReport, APageIsAsBadAsOnTheWorstRank) {
  const std::vector<PageVerdict> worse = {kDone, kFailed, kRefused, kMissing, kCorrupt};
  for (const PageVerdict other : worse) {
    ranks_ = 0;
    merge(worse);
    merge(std::vector<PageVerdict>(worse.size(), other));
    const auto place = std::find(worse.begin(), worse.end(), other) - worse.begin();
    for (std::ptrdiff_t page = 0; page < std::ssize(worse); ++page) {
      EXPECT_EQ(whole_.verdicts[static_cast<std::size_t>(page)],
                worse[static_cast<std::size_t>(std::max(page, place))]);
    }
  }
}

TEST_F(TransferReport, PagesOfManyWordsHaveAVerdictEach) {
  std::vector<PageVerdict> verdicts(17, kDone);
  verdicts[8] = kMissing;
  verdicts[16] = kCorrupt;
  merge(verdicts);
  merge(std::vector<PageVerdict>(17, kDone));
  EXPECT_EQ(whole_.verdicts, verdicts);
}

TEST_F(TransferReport, FoundIsWhatAllFoundAndLostWhatAnyLost) {
  Transfer part;
  part_of(part, {kDone, kDone, kDone});
  const std::int64_t found[] = {3, 1, 2};
  const std::int64_t lost[] = {0, 4, 2};
  whole_.lost_pages = 9;  // of another time
  for (const std::size_t rank : {0u, 1u, 2u}) {
    part.found_pages = found[rank];
    part.lost_pages = lost[rank];
    part.moved_bytes = 10;
    part.started_us = 1'000 * std::int64_t{static_cast<int>(rank)};  // on its own clock
    part.ended_us = part.started_us + 30 - found[rank];
    merge(part);
  }
  EXPECT_EQ(whole_.found_pages, 1);
  EXPECT_EQ(whole_.lost_pages, 4);
  EXPECT_EQ(whole_.moved_bytes, 30);
  EXPECT_EQ(whole_.ended_us - whole_.started_us, 29) << "as long as the slowest took";
}

TEST_F(TransferReport, OfAPartThatHasNotEndedNothingElseIsSaid) {
  Transfer part;
  std::vector<std::int64_t> words = {7};
  append_report(part_of(part, {kDone, kDone}), /*ended=*/false, words);
  EXPECT_EQ(words.size(), 1 + report_words(2));
  EXPECT_FALSE(has_ended(std::span(words).subspan(1)));
  EXPECT_THAT(std::vector<std::int64_t>(words.begin() + 1, words.end()), Each(0));
}

TEST_F(TransferReport, APurgeThatOneRankDidNotBeginIsNotDone) {
  merge_purge(PurgeOutcome{.pages = 3});
  merge_purge(std::nullopt);
  merge_purge(PurgeOutcome{.pages = 2});
  ASSERT_TRUE(whole_.purge.has_value());
  EXPECT_EQ(whole_.purge->pages, 3);
  ASSERT_FALSE(whole_.purge->status.ok());
  EXPECT_EQ(whole_.purge->status.error().code, ErrorCode::kDeadline);
  EXPECT_EQ(whole_.purge->status.error().detail, "rank 1: pages may be left");
}

TEST_F(TransferReport, APurgeSaysWhichErrorItsFirstRankHad) {
  merge_purge(PurgeOutcome{.pages = 3});
  merge_purge(PurgeOutcome{.status = Error{ErrorCode::kUnsupported, "it cannot", ENOSYS}});
  merge_purge(PurgeOutcome{.status = Error{ErrorCode::kUnsupported, "nor can it"}});
  ASSERT_FALSE(whole_.purge->status.ok());
  EXPECT_EQ(whole_.purge->status.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(whole_.purge->status.error().sys_errno, ENOSYS);
  EXPECT_EQ(whole_.purge->status.error().detail, "rank 1: pages may be left");
  EXPECT_FALSE(whole_.purge->advanced);
}

// A page that one rank has forgotten nobody finds, whatever others keep: so one that cannot forget
// at all does not keep the rest from being asked again.
TEST_F(TransferReport, APurgeIsAskedForAgainWhereAnyRankMayStillDoIt) {
  const PurgeOutcome unable = {.status = Error{ErrorCode::kUnsupported, "it cannot"}};
  const PurgeOutcome broken = {.status = Error{ErrorCode::kIo, "broken"}, .advanced = true};
  const std::optional<PurgeOutcome> not_begun;
  for (const auto& other : {std::optional(broken), not_begun}) {
    for (const bool unable_first : {false, true}) {
      ranks_ = 0;
      merge_purge(unable_first ? std::optional(unable) : other);
      merge_purge(unable_first ? other : std::optional(unable));
      EXPECT_EQ(whole_.purge->status.error().code,
                other.has_value() ? ErrorCode::kIo : ErrorCode::kDeadline);
      EXPECT_EQ(whole_.purge->advanced, other.has_value()) << "one got on";
    }
  }
}

TEST_F(TransferReport, OfAJobThatFailedNothingIsLeft) {
  Transfer part;
  part.kind = TransferKind::kPurge;
  part.purge = PurgeOutcome{.pages = 3};
  part.found_pages = part.lost_pages = part.moved_bytes = 2;
  merge(part_of(part, {kDone, kDone}));
  fail_transfer(whole_);
  EXPECT_THAT(whole_.verdicts, ElementsAre(kFailed, kFailed));
  EXPECT_EQ(whole_.found_pages + whole_.lost_pages + whole_.moved_bytes, 0);
  EXPECT_FALSE(whole_.purge.has_value()) << "it is asked for again";
}

}  // namespace
}  // namespace stemma
