#include "tier/leading_lanes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "stemma/log.h"
#include "tier/transfer_message.h"
#include "tier/transfer_report.h"

namespace stemma {

namespace {

// How long ranks wait at a time for jobs that are to end.
constexpr std::chrono::milliseconds kStopNap(10);

bool is_cancelled(const Transfer& job) {
  return job.cancelled.load(std::memory_order_relaxed);
}

}  // namespace

LeadingLanes::LeadingLanes(RankTransfers& own, RankGroup& ranks, const Clock& clock,
                           std::int64_t jobs_max)
    : own_(own), ranks_(ranks), clock_(clock), posted_(static_cast<std::size_t>(jobs_max)) {
  STEMMA_CHECK_EQ(ranks.rank(), 0);
  done_.reserve(posted_.size());
  underway_.reserve(posted_.size());
  words_ = {jobs_max};
  own_.open(jobs_max);
  reach(tell(ranks_, {RankTask::kOpenLanes}, words_));
}

// Does `task` of `words_` here as well. Which ranks heard of what, once one cannot be reached, is
// not known: nothing more is begun anywhere.
void LeadingLanes::tell_all(RankTask task) {
  if (!lost()) reach(tell(ranks_, {task}, words_));
  if (!lost()) reach(own_.told(task, words_));
}

void LeadingLanes::reach(Status reached) {
  if (reached.ok()) return;
  STEMMA_LOG(kError, "tier.ranks.lost", kv("error", to_string(reached.error())));
  reached_ = std::move(reached);
}

// What a rank writes is its own until all have ended: nobody may take the targets back.
void LeadingLanes::post(Transfer& job) {
  STEMMA_CHECK(!stopped_, "none after stop");
  const bool fills = job.kind == TransferKind::kLoad || job.kind == TransferKind::kFetch;
  STEMMA_CHECK(!fills || job.try_begin_writing(), "a job that begins was not withdrawn");
  job.started_us = clock_.now_us();
  posted_[static_cast<std::size_t>(job.place)] = {.job = &job, .cancelled = false};
  underway_.push_back(job.place);
  write_transfer(job, job.started_us, words_);
  tell_all(RankTask::kTransfer);
}

Transfer* LeadingLanes::try_take_done_or_null() {
  if (done_.empty()) ask({});
  if (done_.empty()) return nullptr;
  Transfer* const job = done_.front();
  done_.erase(done_.begin());
  return job;
}

void LeadingLanes::wait_done(std::chrono::microseconds time) {
  if (done_.empty()) ask(time);
  if (done_.empty() && question_.asked.empty()) own_.take_ended(time);
}

// Asks what others made of what has ended here, and waits for it up to `time`; says what was
// cancelled.
void LeadingLanes::ask(std::chrono::microseconds time) {
  question_.cancelled.clear();
  question_.asked.clear();
  if (underway_.empty()) return;
  own_.take_ended();
  for (const std::int64_t place : underway_) {
    Posted& posted = posted_[static_cast<std::size_t>(place)];
    if (own_.has_ended(place)) question_.asked.push_back(place);
    if (is_cancelled(*posted.job) && !std::exchange(posted.cancelled, true)) {
      question_.cancelled.push_back(place);
    }
  }
  if (lost()) return lose_ended();
  if (question_.asked.empty() && question_.cancelled.empty()) return;
  question_.wait_us = time.count();
  question_.write(words_);
  tell_all(RankTask::kReport);
  lost() ? lose_ended() : land_asked();
}

// Those of the jobs asked for that have ended on every rank.
void LeadingLanes::land_asked() {
  std::size_t at = 0;
  for (const std::int64_t place : question_.asked) {
    Transfer& job = *posted_[static_cast<std::size_t>(place)].job;
    const std::size_t words = report_words(job.pages());
    const auto report = [&](int rank) { return own_.reports_of(rank).subspan(at, words); };
    bool everywhere = true;
    for (int rank = 0; rank < ranks_.ranks(); ++rank) {
      everywhere = everywhere && has_ended(report(rank));
    }
    if (everywhere) {
      job.started_us = own_.job(place).started_us;
      begin_merge(job);
      for (int rank = 0; rank < ranks_.ranks(); ++rank) merge_report(report(rank), rank, job);
      land(place);
    }
    at += words;
  }
}

void LeadingLanes::land(std::int64_t place) {
  done_.push_back(std::exchange(posted_[static_cast<std::size_t>(place)].job, nullptr));
  underway_.erase(std::find(underway_.begin(), underway_.end(), place));
}

// What others do nobody will hear; what this rank does has to end first (I6).
void LeadingLanes::lose_ended() {
  const std::vector<std::int64_t> underway = underway_;
  for (const std::int64_t place : underway) {
    if (!own_.has_ended(place)) continue;
    fail_transfer(*posted_[static_cast<std::size_t>(place)].job);
    land(place);
  }
}

bool LeadingLanes::came_right(Transfer& job, std::int64_t layer) {
  words_ = {job.place, layer};
  tell_all(RankTask::kLayers);
  bool right = !lost();
  for (int rank = 0; right && rank < ranks_.ranks(); ++rank) {
    right = own_.reports_of(rank).front() != 0;
  }
  return right;
}

void LeadingLanes::stop() {
  if (std::exchange(stopped_, true)) return;
  ask({});
  own_.stop();
  while (!underway_.empty()) ask(kStopNap);
}

}  // namespace stemma
