// Loans: pages that sequences name in a step while they are still being copied up to the device.
//
// The tickets own the pages, not the sequences; so a loan ends with its step, when the copies have
// ended: what they brought is then in the tree, and the sequences hold it like everybody else.
//
// Thread:     engine thread only, as is the gate.     Invariants: I6, I8, I9 (docs/INVARIANTS.md).
// Memory:     a pointer a copy, reused.
// Cost:       wait: that of the slowest copy's layer.
// Not here:   who borrows (KvCache::lend), what a copy brings (promotion).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "stemma/kv_batch.h"
#include "tier/transfer_ticket.h"

namespace stemma {

class Loans final : public LayerGate {
 public:
  // `transfers` must outlive it.
  explicit Loans(TransferEngine& transfers) : transfers_(transfers) {}

  // Pages that `job` brings are named in the step that is being planned.
  void add(Transfer& job, std::int64_t cookie) {
    const auto same = [&](const Loan& loan) { return loan.job == &job; };
    if (std::none_of(loans_.begin(), loans_.end(), same)) loans_.push_back({&job, cookie});
  }
  bool empty() const noexcept { return loans_.empty(); }

  bool wait(std::int64_t layer) override {
    asked_layers_ = std::max(asked_layers_, layer + 1);
    bool there = true;
    for (const Loan& loan : loans_) there = transfers_.wait_layer(*loan.job, layer) && there;
    return there;
  }
  bool wait_on(CudaStream& stream, std::int64_t layer) override {
    asked_layers_ = std::max(asked_layers_, layer + 1);
    bool there = true;
    for (const Loan& loan : loans_) {
      there = transfers_.wait_layer_on(*loan.job, stream, layer) && there;
    }
    return there;
  }

  // The step has retired. Whether all that it asked for came right: what was lent may be found in
  // the tree all the same, where others brought it, and then it is not what was read. Waits for the
  // copies. REQUIRES: none was taken back since.
  [[nodiscard]] bool settle() {
    if (asked_layers_ == 0) return true;
    bool right = true;
    for (const Loan& loan : loans_) {
      right = transfers_.came_right(*loan.job, asked_layers_ - 1) && right;
    }
    return right;
  }

  // Whether a copy has not ended yet.
  bool underway() const {
    return std::any_of(loans_.begin(), loans_.end(), [&](const Loan& loan) {
      return transfers_.only_job_or_null(TransferKind::kPromote, loan.cookie) == loan.job;
    });
  }
  // The step is over.
  void clear() {
    loans_.clear();
    asked_layers_ = 0;
  }

 private:
  struct Loan {
    Transfer* job;
    std::int64_t cookie;
  };

  TransferEngine& transfers_;
  std::vector<Loan> loans_;
  std::int64_t asked_layers_ = 0;  // by the step
};

}  // namespace stemma
