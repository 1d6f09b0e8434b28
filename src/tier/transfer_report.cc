#include "tier/transfer_report.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace stemma {

namespace {

enum class PurgePart : std::int64_t { kNotBegun, kAll, kSome };

// Verdicts follow, a byte each.
struct Report {
  std::int64_t ended = 0;
  std::int64_t us = 0;
  std::int64_t found_pages = 0;
  std::int64_t lost_pages = 0;
  std::int64_t moved_bytes = 0;
  PurgePart purge = PurgePart::kNotBegun;
  std::int64_t purged_pages = 0;
  std::int64_t purge_advanced = 0;
  std::int64_t purge_error = 0;  // of kSome
  std::int64_t sys_errno = 0;
};
constexpr std::size_t kReportWords = sizeof(Report) / sizeof(std::int64_t);

Report read_report(std::span<const std::int64_t> words) {
  STEMMA_CHECK(words.size() >= kReportWords, "ranks: what came is no report");
  Report report;
  std::memcpy(static_cast<void*>(&report), words.data(), sizeof(report));
  return report;
}

// The worse ones last. What one rank knows to be wrong, or to be missing, says more than that
// nothing is known elsewhere.
int badness(PageVerdict verdict) {
  switch (verdict) {
    case PageVerdict::kDone:
      return 0;
    case PageVerdict::kFailed:
      return 1;
    case PageVerdict::kRefused:
      return 2;
    case PageVerdict::kMissing:
      return 3;
    case PageVerdict::kCorrupt:
      return 4;
  }
  return 1;
}

bool is_unable(const Status& status) {
  return !status.ok() && status.error().code == ErrorCode::kUnsupported;
}

// A page of a store is all ranks' frames of it: as many went as went anywhere. A rank that cannot
// purge at all keeps no other from being asked again.
void merge_purge(const Report& report, int rank, Transfer& whole) {
  PurgeOutcome& purge = whole.purge.has_value() ? *whole.purge : whole.purge.emplace();
  purge.pages = std::max(purge.pages, report.purged_pages);
  purge.advanced |= report.purge_advanced != 0;
  if (report.purge == PurgePart::kAll) return;
  const bool begun = report.purge == PurgePart::kSome;
  const Status own = Error{
      begun ? static_cast<ErrorCode>(report.purge_error) : ErrorCode::kDeadline,
      "rank " + std::to_string(rank) + ": pages may be left", static_cast<int>(report.sys_errno)};
  if (purge.status.ok() || (is_unable(purge.status) && !is_unable(own))) purge.status = own;
}

}  // namespace

std::size_t report_words(std::int64_t pages) {
  return kReportWords + ceil_div(static_cast<std::size_t>(pages), sizeof(std::int64_t));
}

void append_report(const Transfer& part, bool ended, std::vector<std::int64_t>& words) {
  const std::size_t at = words.size();
  words.resize(at + report_words(part.pages()));
  if (!ended) return;
  Report report = {.ended = 1,
                   .us = part.ended_us - part.started_us,
                   .found_pages = part.found_pages,
                   .lost_pages = part.lost_pages,
                   .moved_bytes = part.moved_bytes};
  if (part.purge.has_value()) {
    const Status& status = part.purge->status;
    report.purge = status.ok() ? PurgePart::kAll : PurgePart::kSome;
    report.purged_pages = part.purge->pages;
    report.purge_advanced = part.purge->advanced ? 1 : 0;
    if (!status.ok()) {
      report.purge_error = static_cast<std::int64_t>(status.error().code);
      report.sys_errno = status.error().sys_errno;
    }
  }
  std::memcpy(&words[at], &report, sizeof(report));
  STEMMA_CHECK_EQ(part.verdicts.size(), part.keys.size());
  if (part.keys.empty()) return;
  std::memcpy(&words[at + kReportWords], part.verdicts.data(), part.verdicts.size());
}

bool has_ended(std::span<const std::int64_t> words) {
  return read_report(words).ended != 0;
}

void begin_merge(Transfer& whole) {
  whole.verdicts.assign(whole.keys.size(), PageVerdict::kDone);
  whole.found_pages = whole.pages();
  whole.lost_pages = 0;
  whole.purge.reset();
  whole.moved_bytes = 0;
  whole.ended_us = whole.started_us;
}

void merge_report(std::span<const std::int64_t> words, int rank, Transfer& whole) {
  const Report report = read_report(words);
  whole.found_pages = std::min(whole.found_pages, report.found_pages);
  whole.lost_pages = std::max(whole.lost_pages, report.lost_pages);
  whole.moved_bytes += report.moved_bytes;
  whole.ended_us = std::max(whole.ended_us, whole.started_us + report.us);
  if (whole.kind == TransferKind::kPurge) merge_purge(report, rank, whole);
  static_assert(sizeof(PageVerdict) == 1);
  const auto verdicts = std::as_bytes(words.subspan(kReportWords));
  for (std::size_t page = 0; page < whole.verdicts.size(); ++page) {
    const auto verdict = static_cast<PageVerdict>(verdicts[page]);
    if (badness(verdict) > badness(whole.verdicts[page])) whole.verdicts[page] = verdict;
  }
}

void fail_transfer(Transfer& whole) {
  whole.verdicts.assign(whole.keys.size(), PageVerdict::kFailed);
  whole.found_pages = 0;
  whole.lost_pages = 0;
  whole.purge.reset();
  whole.moved_bytes = 0;
  whole.ended_us = whole.started_us;
}

}  // namespace stemma
