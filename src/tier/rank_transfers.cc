#include "tier/rank_transfers.h"

#include <algorithm>
#include <cstring>
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

void write_lookup(std::size_t store, std::span<const PageKey> keys,
                  std::vector<std::int64_t>& words) {
  words.assign(1 + keys.size_bytes() / sizeof(std::int64_t), 0);
  words[0] = static_cast<std::int64_t>(store);
  if (!keys.empty()) std::memcpy(&words[1], keys.data(), keys.size_bytes());
}

std::int64_t RankTransfers::look_up(std::span<const std::int64_t> words) {
  keys_.resize((words.size() - 1) * sizeof(std::int64_t) / sizeof(PageKey));
  if (!keys_.empty()) {
    std::memcpy(static_cast<void*>(keys_.data()), &words[1], keys_.size() * sizeof(PageKey));
  }
  PageStore& store = *tiers_.stores()[static_cast<std::size_t>(words[0])];
  const auto found = store.lookup(keys_, clock_.now_us());
  return found.ok() ? *found : -1;
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
    case RankTask::kLayers:
      reports_ = {wait_layer(words[0], words[1]) ? 1 : 0};
      return gather_reports();
    case RankTask::kLookup:
      reports_ = {look_up(words)};
      return gather_reports();
    case RankTask::kHostFile:
      return use_host_file(words);
    default:
      return Error{ErrorCode::kInternal, "ranks: that is no task of transfers"};
  }
}

Status RankTransfers::use_host_file(std::span<const std::int64_t> words) {
  Transfer pages;
  const HostFileTask task = read_host_file(words, pages);
  pages.digest = of_rank(pages.digest, ranks_.rank());
  const auto answer = host_file_.told(
      {tiers_.host_image_or_null(), tiers_.windowed_host_image_or_null()}, task, pages);
  if (!answer.has_value()) return {};
  reports_ = {*answer};
  return gather_reports();
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

// Those of layers that look back over everything: other layers' pages come before they are named.
template <typename Visit>
void RankTransfers::for_each_promoted(Visit visit) {
  for (const auto& part : parts_) {
    const Transfer& job = part->job;
    const bool arrives = part->underway && job.kind == TransferKind::kPromote;
    if (arrives && job.group == LayerGroup::kFull) visit(job.place);
  }
}

bool RankTransfers::wait(std::int64_t layer) {
  for_each_promoted([&](std::int64_t place) { static_cast<void>(wait_layer(place, layer)); });
  return true;
}

bool RankTransfers::wait_on(CudaStream& stream, std::int64_t layer) {
  for_each_promoted(
      [&](std::int64_t place) { static_cast<void>(wait_layer_on(place, stream, layer)); });
  return true;
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
  return gather_reports();
}

Status RankTransfers::gather_reports() {
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
