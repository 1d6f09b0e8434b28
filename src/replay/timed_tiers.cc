#include "replay/timed_tiers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "tier/memory_page_store.h"

namespace stemma {

namespace {

// What the disk keeps of a page: a byte, so that its limit is one of pages.
constexpr std::array<std::byte, 1> kFrame = {};
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

bool is_of_store(const Transfer& job) {
  return transfer_lane(job) >= 2;
}

}  // namespace

// --- Lanes

TimedLanes::TimedLanes(const TimedTierOptions& options, PageStore* disk_or_null, const Clock& clock)
    : options_(options), disk_or_null_(disk_or_null), clock_(clock) {}

std::int64_t TimedLanes::next_end_us() const {
  std::int64_t next_us = done_.empty() ? kNever : clock_.now_us();
  for (const Lane& lane : lanes_) {
    if (!lane.jobs.empty()) next_us = std::min(next_us, lane.end_us);
  }
  return next_us;
}

void TimedLanes::post(Transfer& job) {
  Lane& lane = lanes_[transfer_lane(job)];
  lane.jobs.push_back({&job, clock_.now_us()});
  if (lane.jobs.size() == 1) begin_first(lane, clock_.now_us());
}

// A job whose time is over by the deadline has moved what it could until then.
void TimedLanes::begin_first(Lane& lane, std::int64_t free_us) {
  const Transfer& job = *lane.jobs.front().job;
  lane.begin_us = std::max(free_us, lane.jobs.front().posted_us);
  lane.end_us = lane.begin_us;
  if (job.cancelled.load(std::memory_order_relaxed)) return;
  lane.end_us +=
      std::llround(std::min(page_us(job) * static_cast<double>(job.pages()), kReplayUsMax));
  if (is_of_store(job))
    lane.end_us = std::min(lane.end_us, std::max(job.deadline_us, lane.begin_us));
}

double TimedLanes::page_us(const Transfer& job) const {
  const bool moves_nothing = job.kind == TransferKind::kLookup ||
                             job.kind == TransferKind::kRemove || job.kind == TransferKind::kPurge;
  if (moves_nothing) return 0;
  const double gb_s = is_of_store(job) ? options_.disk_gb_s : options_.link_gb_s;
  return options_.page_bytes / (1000 * gb_s);
}

void TimedLanes::end_first(Lane& lane) {
  Transfer& job = *lane.jobs.front().job;
  lane.jobs.pop_front();
  const double one_us = page_us(job);
  const auto time_us = static_cast<double>(lane.end_us - lane.begin_us);
  // Half a microsecond was rounded away at most.
  const double pages = one_us == 0 ? static_cast<double>(job.pages()) : (time_us + 0.5) / one_us;
  job.started_us = lane.begin_us;
  job.ended_us = lane.end_us;
  move(job, static_cast<std::size_t>(std::min(pages, static_cast<double>(job.pages()))));
  done_.push_back(&job);
  if (!lane.jobs.empty()) begin_first(lane, lane.end_us);
}

// The first `pages` of them.
void TimedLanes::move(Transfer& job, std::size_t pages) {
  job.verdicts.assign(job.keys.size(), PageVerdict::kFailed);
  for (std::size_t i = 0; i < pages; ++i) {
    std::array<std::byte, 1> frame = {};
    PageRead read = {.key = job.keys[i], .frame = frame, .verdict = PageVerdict::kDone};
    PageWrite write = {.key = job.keys[i], .frame = kFrame};
    switch (job.kind) {
      case TransferKind::kBackup:
      case TransferKind::kPromote:
        break;
      case TransferKind::kStore:
        disk_or_null_->write({&write, 1}, job.deadline_us);
        break;
      case TransferKind::kLoad:
      case TransferKind::kFetch:
        if (!job.try_begin_writing()) return;
        disk_or_null_->read({&read, 1}, job.deadline_us);
        job.end_writing();
        break;
      case TransferKind::kRemove: {
        const PageRemoval removal = {.key = job.keys[i], .frame = kFrame};
        disk_or_null_->remove({&removal, 1}, job.deadline_us);
        break;
      }
      case TransferKind::kLookup:
      case TransferKind::kPurge:
        break;
    }
    job.verdicts[i] = read.verdict;
  }
  if (job.kind == TransferKind::kLookup) {
    job.found_pages = *disk_or_null_->lookup(job.keys, job.deadline_us);
  }
  if (job.kind == TransferKind::kPurge) {
    job.purge = disk_or_null_->purge(job.namespaces, job.deadline_us);
  }
  if (page_us(job) > 0) {
    job.moved_bytes = std::llround(options_.page_bytes * static_cast<double>(job.done_pages()));
  }
}

TimedLanes::Lane* TimedLanes::first_to_end_or_null() {
  Lane* first = nullptr;
  for (Lane& lane : lanes_) {
    if (lane.jobs.empty() || lane.end_us > clock_.now_us()) continue;
    if (first == nullptr || lane.end_us < first->end_us) first = &lane;
  }
  return first;
}

Transfer* TimedLanes::try_take_done_or_null() {
  while (Lane* const lane = first_to_end_or_null()) end_first(*lane);
  if (done_.empty()) return nullptr;
  Transfer* const job = done_.front();
  done_.pop_front();
  return job;
}

bool TimedLanes::wait_layer(Transfer&, std::int64_t) {
  STEMMA_CHECK(false, "a replay lends no pages");
  return false;
}

void TimedLanes::stop() {
  for (Lane& lane : lanes_) {
    while (!lane.jobs.empty()) {
      lane.end_us = lane.begin_us;
      end_first(lane);
    }
  }
}

// --- Tiers

TimedTiers::TimedTiers(const TimedTierOptions& options, const Clock& clock)
    : options_(options), clock_(clock) {
  STEMMA_CHECK(options.host_pages >= 1 && options.page_bytes > 0, "there are pages, of some size");
  STEMMA_CHECK(options.link_gb_s > 0 && options.disk_gb_s > 0, "what moves at all");
  if (options.disk_pages == 0) return;
  disk_or_null_ = std::make_unique<MemoryPageStore>(Tier::kDisk, options.disk_pages);
  stores_.push_back(disk_or_null_.get());
}

std::unique_ptr<TransferLanes> TimedTiers::open_lanes(std::int64_t) {
  auto lanes = std::make_unique<TimedLanes>(options_, disk_or_null_.get(), clock_);
  lanes_ = lanes.get();
  return lanes;
}

}  // namespace stemma
