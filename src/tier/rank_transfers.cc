#include "tier/rank_transfers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "prefix/namespace_digest.h"
#include "tier/transfer_message.h"
#include "tier/transfer_report.h"

namespace stemma {

void TransferQuestion::write(std::vector<std::int64_t>& words) const {
  words = {wait_us, std::ssize(cancelled)};
  words.insert(words.end(), cancelled.begin(), cancelled.end());
  words.insert(words.end(), asked.begin(), asked.end());
}

void TransferQuestion::read(std::span<const std::int64_t> words) {
  STEMMA_CHECK(words.size() >= 2 && std::cmp_less_equal(words[1], words.size() - 2),
               "ranks: what came is no question");
  const auto places = words.subspan(2);
  const auto told = static_cast<std::size_t>(words[1]);
  wait_us = words[0];
  cancelled.assign(places.begin(), places.begin() + words[1]);
  asked.assign(places.begin() + words[1], places.end());
  STEMMA_CHECK_EQ(told, cancelled.size());
}

const RankTransfers::Part& RankTransfers::part_of(std::int64_t place) const {
  STEMMA_CHECK(0 <= place && place < std::ssize(parts_), "a job of these lanes");
  return *parts_[static_cast<std::size_t>(place)];
}

RankTransfers::Part& RankTransfers::part_of(std::int64_t place) {
  return const_cast<Part&>(std::as_const(*this).part_of(place));
}

Status RankTransfers::told(RankTask task, std::span<const std::int64_t> words) {
  switch (task) {
    case RankTask::kOpenLanes:
      open(words[0]);
      return {};
    case RankTask::kTransfer:
      begin(words);
      return {};
    case RankTask::kReport:
      return report(words);
    default:
      return Error{ErrorCode::kInternal, "ranks: that is no task of transfers"};
  }
}

void RankTransfers::open(std::int64_t jobs_max) {
  stop();
  lanes_ = tiers_.open_lanes(jobs_max);
  while (std::ssize(parts_) < jobs_max) parts_.push_back(std::make_unique<Part>());
}

// What rank 0 has in a namespace this rank has in another one.
void RankTransfers::begin(std::span<const std::int64_t> words) {
  Part& part = part_of(transfer_place(words));
  STEMMA_CHECK(!part.underway, "what its lane has is not touched (I6)");
  part.job.clear();
  read_transfer(words, clock_.now_us(), part.job);
  if (ranks_.rank() > 0) part.job.digest = of_rank(part.job.digest, ranks_.rank());
  part.underway = true;
  lanes_->post(part.job);
}

void RankTransfers::cancel(std::int64_t place) {
  part_of(place).job.cancelled.store(true, std::memory_order_relaxed);
}

void RankTransfers::take_ended(std::chrono::microseconds time) {
  if (lanes_ == nullptr) return;
  if (time.count() > 0) lanes_->wait_done(time);
  while (const Transfer* const job = lanes_->try_take_done_or_null()) {
    part_of(job->place).underway = false;
  }
}

Status RankTransfers::report(std::span<const std::int64_t> words) {
  question_.read(words);
  for (const std::int64_t place : question_.cancelled) cancel(place);
  take_ended();
  const auto ended = [this](std::int64_t place) { return has_ended(place); };
  if (!std::all_of(question_.asked.begin(), question_.asked.end(), ended)) {
    take_ended(std::chrono::microseconds(question_.wait_us));
  }
  reports_.clear();
  for (const std::int64_t place : question_.asked) {
    append_report(job(place), ended(place), reports_);
  }
  if (ranks_.rank() == 0) {
    all_reports_.resize(reports_.size() * static_cast<std::size_t>(ranks_.ranks()));
  }
  return ranks_.gather(std::as_bytes(std::span(reports_)),
                       std::as_writable_bytes(std::span(all_reports_)));
}

std::span<const std::int64_t> RankTransfers::reports_of(int rank) const {
  return std::span(all_reports_)
      .subspan(static_cast<std::size_t>(rank) * reports_.size(), reports_.size());
}

void RankTransfers::stop() {
  if (lanes_ == nullptr) return;
  for (const auto& part : parts_) part->job.cancelled.store(true, std::memory_order_relaxed);
  lanes_->stop();
  take_ended();
  lanes_.reset();
}

}  // namespace stemma
