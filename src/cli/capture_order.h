// CaptureOrder: puts requests, which end in any order, back into that in which they came.
//
// One that has ended waits for those before it. Where too many tokens wait so, the oldest of which
// no end is known is given up: it is left out, however it ends.
//
// Thread:     one thread an object.
// Memory:     tokens_max tokens of requests that wait, and those of one more; some 200 bytes a
//             request that has not ended.
// Cost:       O(1) a request.
// Not here:   files (capture_writer), threads (request_capture).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "stemma/ids.h"
#include "stemma/request.h"

namespace stemma {

// A request whose turn it is.
struct DueRequest {
  std::int64_t submitted_us = 0;  // not below that of the one before
  EndedRequest ended;
};

class CaptureOrder {
 public:
  // REQUIRES: tokens_max >= 0.
  explicit CaptureOrder(std::int64_t tokens_max) : tokens_max_(tokens_max) {}

  void came(RequestId request, std::int64_t submitted_us) {
    latest_us_ = std::max(latest_us_, submitted_us);
    numbers_.emplace(request.value(), first_ + static_cast<std::int64_t>(places_.size()));
    places_.push_back({.request = request, .submitted_us = latest_us_, .ended = {}});
  }

  // What failed is in no capture: nobody can say what it computed. One that did not come, or was
  // given up, is passed over.
  void ended(EndedRequest&& request) {
    Place* const place = take_place_or_null(request.request);
    if (place == nullptr || request.finish == FinishReason::kFailed) return;
    waiting_tokens_ += tokens_of(request);
    place->ended = std::move(request);
    while (waiting_tokens_ > tokens_max_ && !places_.front().is_over) give_up_first();
  }

  // It has ended, and nothing more is known of it.
  void lost(RequestId request) { left_out_ += take_place_or_null(request) != nullptr ? 1 : 0; }

  // Those that have not ended are waited for no more.
  void give_up_rest() {
    for (Place& place : places_) place.is_over = true;
    numbers_.clear();
  }

  std::optional<DueRequest> try_next() {
    while (!places_.empty() && places_.front().is_over) {
      Place place = std::move(places_.front());
      pop_first();
      if (!place.ended.has_value()) continue;
      waiting_tokens_ -= tokens_of(*place.ended);
      return DueRequest{place.submitted_us, *std::move(place.ended)};
    }
    return std::nullopt;
  }

  // How many came, did not fail and will not be due.
  std::int64_t left_out() const noexcept { return left_out_; }

 private:
  struct Place {
    RequestId request;
    std::int64_t submitted_us = 0;
    bool is_over = false;
    std::optional<EndedRequest> ended;
  };

  // By the memory that they take.
  static std::int64_t tokens_of(const EndedRequest& request) {
    return static_cast<std::int64_t>(request.tokens.capacity());
  }

  Place* take_place_or_null(RequestId request) {
    const auto found = numbers_.find(request.value());
    if (found == numbers_.end()) return nullptr;
    Place& place = places_[static_cast<std::size_t>(found->second - first_)];
    numbers_.erase(found);
    place.is_over = true;
    return &place;
  }

  void give_up_first() {
    numbers_.erase(places_.front().request.value());
    pop_first();
    ++left_out_;
  }

  void pop_first() {
    places_.pop_front();
    ++first_;
  }

  std::int64_t tokens_max_;
  std::int64_t waiting_tokens_ = 0;
  std::int64_t latest_us_ = 0;
  std::int64_t left_out_ = 0;
  std::int64_t first_ = 0;  // the number of the first of places_
  std::deque<Place> places_;
  std::unordered_map<std::int64_t, std::int64_t> numbers_;  // of requests that have not ended
};

}  // namespace stemma
