#include "tier/transfer_lanes.h"

#include "base/check.h"

namespace stemma {

std::size_t transfer_lane(const Transfer& job) noexcept {
  const auto store_lane = 2 + 2 * static_cast<std::size_t>(job.store);
  switch (job.kind) {
    case TransferKind::kBackup:
      return 0;
    case TransferKind::kPromote:
      return 1;
    case TransferKind::kLoad:
    case TransferKind::kFetch:
    case TransferKind::kLookup:
    case TransferKind::kRemove:
      return store_lane;
    case TransferKind::kStore:
    case TransferKind::kPurge:
      return store_lane + 1;
  }
  return 0;
}

std::size_t transfer_lanes(std::size_t stores) noexcept {
  return 2 + 2 * stores;
}

ThreadLanes::ThreadLanes(TransferWork& work, std::int64_t jobs_max)
    : work_(work), done_(jobs_max) {}

// Where the system has no thread left, those that have been started wait for jobs: delegating to a
// constructor has the destructor end them.
ThreadLanes::ThreadLanes(TransferWork& work, std::size_t stores, std::int64_t jobs_max)
    : ThreadLanes(work, jobs_max) {
  for (std::size_t lane = 0; lane < transfer_lanes(stores); ++lane) {
    queues_.push_back(std::make_unique<Queue>(jobs_max));
  }
  for (const auto& queue : queues_) {
    threads_.emplace_back([this, &queue = *queue] { serve(queue); });
  }
}

ThreadLanes::~ThreadLanes() {
  stop();
}

void ThreadLanes::serve(Queue& queue) {
  while (const auto job = queue.pop()) {
    work_.run(**job);
    STEMMA_CHECK(done_.try_push(&**job), "every job posted has room among those done");
  }
}

void ThreadLanes::post(Transfer& job) {
  const std::size_t lane = transfer_lane(job);
  STEMMA_CHECK(queues_[lane]->try_push(&job), "at most jobs_max are posted, and none after stop");
}

Transfer* ThreadLanes::try_take_done_or_null() {
  return done_.try_pop().value_or(nullptr);
}

void ThreadLanes::wait_done(std::chrono::microseconds time) {
  done_.wait_for_item(time);
}

// A closed queue still gives what is in it, so every job that was posted ends.
void ThreadLanes::stop() {
  for (const auto& queue : queues_) queue->close();
  threads_.clear();
}

}  // namespace stemma
