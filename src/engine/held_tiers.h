// HeldTiers: lower tiers for tests of the engine, of which a test says when copies have landed, and
// a clock that the threads of their lanes may look at.
//
// Thread:     that of the tests; the clock any.
// Memory:     none beside the tiers'.
// Cost:       none.
// Not here:   the tiers themselves (tier_stack), lanes on which nothing moves (held_lanes).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "base/clock.h"
#include "stemma/lower_tiers.h"
#include "tier/transfer_lanes.h"

namespace stemma {

// Stands still until it is moved; lanes may look at it meanwhile.
class SharedFakeClock final : public Clock {
 public:
  std::int64_t now_us() const override { return now_us_; }
  void advance_us(std::int64_t delta_us) { now_us_ += delta_us; }

 private:
  std::atomic<std::int64_t> now_us_ = 0;
};

class HeldTiers final : public LowerTiers {
 public:
  explicit HeldTiers(LowerTiers& inner) : inner_(inner) {}
  std::int64_t host_pages() const override { return inner_.host_pages(); }
  std::span<PageStore* const> stores() const override { return inner_.stores(); }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t jobs_max) override {
    auto lanes = std::make_unique<Lanes>(*this, inner_.open_lanes(jobs_max));
    lanes_ = lanes.get();
    return lanes;
  }

  // Waits until all copies that have begun are made; those that were not taken still can be.
  void wait_copied() { lanes_->wait_copied(); }

  bool holds = false;

 private:
  class Lanes final : public TransferLanes {
   public:
    Lanes(const HeldTiers& owner, std::unique_ptr<TransferLanes> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    void post(Transfer& job) override {
      inner_->post(job);
      ++posted_;
    }
    Transfer* try_take_done_or_null() override {
      if (owner_.holds) return nullptr;
      if (made_.empty()) take_made();
      if (made_.empty()) return nullptr;
      Transfer* const job = made_.front();
      made_.pop_front();
      --posted_;
      return job;
    }
    void wait_done(std::chrono::microseconds time) override {
      if (made_.empty()) inner_->wait_done(time);
    }
    void wait_copied() {
      for (take_made(); std::ssize(made_) < posted_; take_made()) {
        inner_->wait_done(std::chrono::seconds(60));
      }
    }
    bool wait_layer(Transfer& job, std::int64_t layer) override {
      return inner_->wait_layer(job, layer);
    }
    void stop() override { inner_->stop(); }

   private:
    void take_made() {
      while (Transfer* const job = inner_->try_take_done_or_null()) made_.push_back(job);
    }

    const HeldTiers& owner_;
    std::unique_ptr<TransferLanes> inner_;
    std::int64_t posted_ = 0;     // and not taken
    std::deque<Transfer*> made_;  // of those, in the order of their ends
  };

  LowerTiers& inner_;
  Lanes* lanes_ = nullptr;  // opened last
};

}  // namespace stemma
