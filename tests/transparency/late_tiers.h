// LateTiers: lower tiers whose copies up arrive when a test says so.
//
// The bytes move at once, on the lanes' own threads and beside whatever the engine computes; only
// that they have arrived is told late. Copies down are not touched.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "stemma/lower_tiers.h"
#include "tier/transfer_lanes.h"

namespace stemma {

class LateLanes final : public TransferLanes {
 public:
  explicit LateLanes(std::unique_ptr<TransferLanes> inner) : inner_(std::move(inner)) {}

  // From now on copies up arrive in let_land only.
  void hold() { holds_ = true; }
  // Waits for every copy up that was begun; they have all arrived when this returns.
  void let_land() {
    while (rising_ > 0) {
      sort_ended();
      if (rising_ > 0) inner_->wait_done(std::chrono::milliseconds(1));
    }
    while (!held_.empty()) {
      arrived_.push_back(held_.front());
      held_.pop_front();
    }
  }

  void post(Transfer& job) override {
    if (rises(job)) ++rising_;
    inner_->post(job);
  }
  Transfer* try_take_done_or_null() override {
    sort_ended();
    if (arrived_.empty()) return nullptr;
    Transfer* const job = arrived_.front();
    arrived_.pop_front();
    return job;
  }
  void wait_done(std::chrono::microseconds time) override {
    sort_ended();
    if (arrived_.empty()) inner_->wait_done(time);
  }
  bool wait_layer(Transfer& job, std::int64_t layer) override {
    return inner_->wait_layer(job, layer);
  }
  void stop() override {
    inner_->stop();
    let_land();
    holds_ = false;
  }

 private:
  static bool rises(const Transfer& job) {
    return job.kind != TransferKind::kBackup && job.kind != TransferKind::kStore;
  }
  void sort_ended() {
    while (Transfer* const job = inner_->try_take_done_or_null()) {
      if (rises(*job)) --rising_;
      (rises(*job) && holds_ ? held_ : arrived_).push_back(job);
    }
  }

  std::unique_ptr<TransferLanes> inner_;
  bool holds_ = false;
  std::int64_t rising_ = 0;  // posted and not ended
  std::deque<Transfer*> held_;
  std::deque<Transfer*> arrived_;
};

// One cache may be opened over it.
class LateTiers final : public LowerTiers {
 public:
  explicit LateTiers(LowerTiers& inner) : inner_(inner) {}

  std::int64_t host_pages() const override { return inner_.host_pages(); }
  std::span<PageStore* const> stores() const override { return inner_.stores(); }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t jobs_max) override {
    auto lanes = std::make_unique<LateLanes>(inner_.open_lanes(jobs_max));
    lanes_or_null_ = lanes.get();
    return lanes;
  }

  // While the cache lives.
  LateLanes& lanes() { return *lanes_or_null_; }

 private:
  LowerTiers& inner_;
  LateLanes* lanes_or_null_ = nullptr;
};

}  // namespace stemma
