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

  // Waits until some copy has been made, taken or not. REQUIRES: one is under way.
  void wait_copied() { lanes_->wait_done(std::chrono::seconds(60)); }

  bool holds = false;

 private:
  class Lanes final : public TransferLanes {
   public:
    Lanes(const HeldTiers& owner, std::unique_ptr<TransferLanes> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    void post(Transfer& job) override { inner_->post(job); }
    Transfer* try_take_done_or_null() override {
      if (owner_.holds) return nullptr;
      return inner_->try_take_done_or_null();
    }
    void wait_done(std::chrono::microseconds time) override { inner_->wait_done(time); }
    bool wait_layer(Transfer& job, std::int64_t layer) override {
      return inner_->wait_layer(job, layer);
    }
    void stop() override { inner_->stop(); }

   private:
    const HeldTiers& owner_;
    std::unique_ptr<TransferLanes> inner_;
  };

  LowerTiers& inner_;
  Lanes* lanes_ = nullptr;  // opened last
};

}  // namespace stemma
