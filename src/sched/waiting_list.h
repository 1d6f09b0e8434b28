// WaitingList: the requests that wait, in the order in which they are looked at. Who leaves does so
// at once, and leaves a gap; gaps are closed together, before the list is looked at.
//
// Thread:     engine thread only.                              Invariants: I10.
// Memory:     16 bytes a request that may wait; fixed at construction.
// Cost:       adding and removing O(1); looking O(requests) after somebody has left.
// Not here:   the order (schedule_policy).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "sched/request.h"

namespace stemma {

class WaitingList {
 public:
  // Half of the room is for gaps: closing them costs O(1) for each who left.
  explicit WaitingList(std::size_t requests_max) { requests_.reserve(2 * requests_max); }

  // REQUIRES: fewer than requests_max wait; it is not here.
  void push_back(Request& request) {
    if (requests_.size() == requests_.capacity()) close_gaps();
    request.queue_place = requests_.size();
    requests_.push_back(&request);
  }
  // REQUIRES: it is here.
  void remove(const Request& request) {
    STEMMA_CHECK(
        request.queue_place < requests_.size() && requests_[request.queue_place] == &request,
        "only who waits leaves the queue");
    requests_[request.queue_place] = nullptr;
    ++gaps_;
  }

  // All, in order. Valid until somebody comes or goes: who goes meanwhile is nullptr in it.
  std::span<Request* const> requests() {
    close_gaps();
    return requests_;
  }
  // The request at a place of requests() is this one from now on. REQUIRES: every place is given to
  // somebody else in turn, and nobody comes or goes meanwhile.
  void put(std::size_t place, Request& request) {
    requests_[place] = &request;
    request.queue_place = place;
  }
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const Request* request : requests_) {
      if (request != nullptr) visit(*request);
    }
  }

  std::int64_t size() const noexcept { return std::ssize(requests_) - gaps_; }
  bool empty() const noexcept { return size() == 0; }

 private:
  void close_gaps() {
    if (gaps_ == 0) return;
    std::size_t kept = 0;
    for (Request* const request : requests_) {
      if (request != nullptr) put(kept++, *request);
    }
    requests_.resize(kept);
    gaps_ = 0;
  }

  std::vector<Request*> requests_;  // nullptr: a gap
  std::int64_t gaps_ = 0;
};

}  // namespace stemma
