// ReplayBuffer: the last batches that were published, for subscribers that missed some.
//
// Thread:     the publisher's.
// Memory:     at most `batches_max` batches and `bytes_max` bytes of them, but always the last one:
//             by it subscribers know that the publisher lives on.
// Cost:       a move; a batch that is looked up by its sequence number O(1).
// Not here:   sockets (event_publisher).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <zmq.hpp>

namespace stemma {

class ReplayBuffer {
 public:
  ReplayBuffer(std::int64_t batches_max, std::int64_t bytes_max)
      : batches_max_(batches_max), bytes_max_(bytes_max) {}

  // Numbered from 0 on, without a gap.
  void add(zmq::message_t batch) {
    bytes_ += static_cast<std::int64_t>(batch.size());
    batches_.push_back(std::move(batch));
    while (batches() > 1 && (batches() > batches_max_ || bytes_ > bytes_max_)) drop_first();
  }

  void forget_all_but_last() {
    while (batches() > 1) drop_first();
  }

  // The number of the oldest batch kept, and that of the next one to come.
  std::uint64_t first_sequence() const noexcept { return first_; }
  std::uint64_t next_sequence() const noexcept { return first_ + batches_.size(); }
  // REQUIRES: first_sequence() <= sequence < next_sequence().
  zmq::message_t& batch(std::uint64_t sequence) {
    return batches_[static_cast<std::size_t>(sequence - first_)];
  }

  std::int64_t batches() const noexcept { return static_cast<std::int64_t>(batches_.size()); }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  void drop_first() {
    bytes_ -= static_cast<std::int64_t>(batches_.front().size());
    batches_.pop_front();
    ++first_;
  }

  std::int64_t batches_max_;
  std::int64_t bytes_max_;
  std::int64_t bytes_ = 0;
  std::uint64_t first_ = 0;
  std::deque<zmq::message_t> batches_;
};

}  // namespace stemma
