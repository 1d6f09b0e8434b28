// TransferTicket and TransferEngine: pages on their way between tiers, and what is held meanwhile.
//
// A ticket owns a lock on the pages that are read and the pages that are written (I6): whatever
// becomes of the request that wanted them, they stay what they are until the copy has ended, and
// are then published or freed, once. A ticket that is dropped while its job is with a lane is a
// contradiction; cancelling only says that nobody needs the outcome.
//
//   kBlank ──submit──► kUnderway ──the lane is done──► kLanded ──dropped──► kBlank
//                          └── cancel: kAbandoned ──the lane is done──► kLanded
//
// Thread:     engine thread only.                     Invariants: I1, I6, I10 (docs/INVARIANTS.md).
// Memory:     a fixed number of jobs of each kind, made at construction; their lists keep room.
// Cost:       submit and take O(1).
// Not here:   which pages move and why (cache/tiering), bytes (transfer_work).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "alloc/windowed_holds.h"
#include "stemma/page_allocator.h"
#include "stemma/prefix_cache.h"
#include "tier/transfer.h"
#include "tier/transfer_lanes.h"

namespace stemma {

enum class TicketState : std::uint8_t { kBlank, kUnderway, kAbandoned, kLanded };

std::string_view ticket_state_name(TicketState state);
// Whether the transition table allows `from` -> `to`.
bool may_become(TicketState from, TicketState to) noexcept;

class TransferEngine;

// Move-only; gives job, lock and pages back when destroyed. Empty by default and after a move.
class [[nodiscard]] TransferTicket {
 public:
  TransferTicket() = default;
  TransferTicket(TransferTicket&& other) noexcept { take_from(other); }
  TransferTicket& operator=(TransferTicket&& other) noexcept {
    if (this != &other) {
      reset();
      take_from(other);
    }
    return *this;
  }
  TransferTicket(const TransferTicket&) = delete;
  TransferTicket& operator=(const TransferTicket&) = delete;
  ~TransferTicket() { reset(); }

  bool valid() const noexcept { return job_ != nullptr; }
  TicketState state() const noexcept { return state_; }
  // REQUIRES: valid().
  Transfer& job() const noexcept { return *job_; }

  PrefixLock source;  // on the pages that are read, where they are in a tree
  PrefixLock anchor;  // on what the target's tree has before the pages that arrive
  OwnedPages target;  // the pages that are written
  // Of LayerGroup::kWindowed, what is read, which hangs on pages of `source`, and what is written.
  HeldWindowedPages windowed_source;
  TakenWindowedPages windowed_target;
  std::int64_t cookie = 0;  // the owner's own: which of its affairs this belongs to

  // Gives everything back. REQUIRES: it is not underway.
  void reset() noexcept;

 private:
  friend class TransferEngine;
  void take_from(TransferTicket& other) noexcept;
  void become(TicketState next);

  TransferEngine* engine_ = nullptr;
  Transfer* job_ = nullptr;
  TicketState state_ = TicketState::kBlank;
};

struct TransferLimits {
  std::int64_t down_max = 8;     // jobs of kBackup at once
  std::int64_t up_max = 16;      // of kPromote
  std::int64_t reads_max = 16;   // of kLoad, kFetch, kLookup and kRemove, for all stores together
  std::int64_t writes_max = 16;  // of kStore
  std::int64_t purges_max = 4;   // of kPurge: what has to go does not wait for what comes

  std::int64_t total() const noexcept {
    return down_max + up_max + reads_max + writes_max + purges_max;
  }
};

class TransferEngine {
 public:
  // `lanes` must outlive it, and have room for limits.total() jobs.
  TransferEngine(const TransferLimits& limits, TransferLanes& lanes);
  // Ends all jobs, then drops their tickets.
  ~TransferEngine();
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;

  // A blank ticket with a blank job; nullopt if as many of its kind are in use as may be.
  std::optional<TransferTicket> try_open(TransferKind kind, int store = 0);

  bool can_open(TransferKind kind) const { return !blank_[queue_of(kind)].empty(); }

  // Hands the job to its lane and keeps the ticket until it has landed.
  void submit(TransferTicket ticket);

  // A ticket whose job has ended, in the order of their ends.
  std::optional<TransferTicket> try_take_landed();
  // The job that it would give the ticket of, which stays underway; nullptr if none has ended.
  const Transfer* next_landed_or_null();

  // Says of every ticket underway with this cookie, of kinds that were meant for a request, that
  // nobody needs the outcome. It lands all the same, but what a store would have filled is free at
  // once: whatever hangs holds no page.
  void abandon(std::int64_t cookie);

  // Calls visit(ticket) for each ticket underway.
  template <typename Visit>
  void for_each_underway(Visit&& visit) const {
    for (const TransferTicket& ticket : underway_) {
      if (ticket.valid()) visit(ticket);
    }
  }

  std::int64_t underway() const noexcept { return underway_count_; }
  // Waits until a job has ended or the time is over.
  void wait_landed(std::chrono::microseconds time);
  // The only job of that kind and cookie that is underway and needed; nullptr if there is none, or
  // several.
  Transfer* only_job_or_null(TransferKind kind, std::int64_t cookie) const;
  // See TransferLanes.
  bool wait_layer(Transfer& job, std::int64_t layer) { return lanes_.wait_layer(job, layer); }
  bool wait_layer_on(Transfer& job, CudaStream& stream, std::int64_t layer) {
    return lanes_.wait_layer_on(job, stream, layer);
  }
  bool came_right(Transfer& job, std::int64_t layer) { return lanes_.came_right(job, layer); }
  // Pages that tickets underway own (I1): of a kind, and of those meant for a request, by cookie.
  std::int64_t target_pages(TransferKind kind) const;
  std::int64_t promised_pages(std::int64_t cookie) const;

 private:
  friend class TransferTicket;
  enum Queue : std::uint8_t { kDown, kUp, kReads, kWrites, kPurges, kQueues };
  static Queue queue_of(TransferKind kind) noexcept;
  void give_back(Transfer* job) noexcept;

  TransferLanes& lanes_;
  std::vector<std::unique_ptr<Transfer>> jobs_;
  std::array<std::vector<Transfer*>, kQueues> blank_;
  std::vector<TransferTicket> underway_;  // by the job's place in jobs_
  Transfer* ended_ = nullptr;             // looked at, and not taken
  std::int64_t underway_count_ = 0;
};

}  // namespace stemma
