// BoundedQueue: hands values from some threads to others; when it is full it says so, and grows for
// none but those of whose number the producer is sure.
//
// Thread:     any number of producers and consumers.
// Memory:     room for `items_max` values from construction on; a T() in each empty place.
// Cost:       one uncontended lock an operation, a system call only to wake a sleeper.
// Not here:   what the values mean; priorities; anything without a lock (nothing here is per
// token).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace stemma {

template <typename T>
class BoundedQueue {
 public:
  // REQUIRES: items_max >= 1.
  explicit BoundedQueue(std::int64_t items_max)
      : items_max_(items_max), ring_(static_cast<std::size_t>(items_max)) {
    STEMMA_CHECK_GE(items_max, 1);
  }

  // Puts `item` behind the others. False if the queue is full or closed; `item` is then unchanged.
  bool try_push(T&& item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || is_full()) return false;
      put(std::move(item));
    }
    not_empty_.notify_one();
    return true;
  }

  // Puts `item` behind the others, also where the queue is full: for values of which there are no
  // more than of something that is bounded. Takes memory then. REQUIRES: it is not closed.
  void push_over(T&& item) {
    {
      const std::lock_guard lock(mutex_);
      STEMMA_CHECK(!closed_, "a closed queue takes nothing in");
      if (count_ == ring_.size()) grow();
      put(std::move(item));
    }
    not_empty_.notify_one();
  }

  // The oldest value, or nullopt if there is none now.
  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    if (count_ == 0) {
      return std::nullopt;
    }
    return take_oldest();
  }

  // As try_push, but waits for room. False only if the queue is closed.
  bool push(T&& item) {
    {
      std::unique_lock lock(mutex_);
      not_full_.wait(lock, [this] { return closed_ || !is_full(); });
      if (closed_) {
        return false;
      }
      put(std::move(item));
    }
    not_empty_.notify_one();
    return true;
  }

  // As try_pop, but waits for a value. nullopt only if the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    not_empty_.wait(lock, [this] { return closed_ || count_ > 0; });
    if (count_ == 0) {
      return std::nullopt;
    }
    return take_oldest();
  }

  // Waits until there is a value, the queue is closed, or the time is over. Whether there is one.
  bool wait_for_item(std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    return not_empty_.wait_for(lock, time, [this] { return closed_ || count_ > 0; }) && count_ > 0;
  }

  // From now on nothing is taken in; what is inside can still be popped. Wakes every sleeper.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    not_empty_.notify_all();
    not_full_.notify_all();
  }

  std::int64_t items() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(count_);
  }
  std::int64_t items_max() const noexcept { return items_max_; }

 private:
  // Everything here: mutex_ is held.
  bool is_full() const { return static_cast<std::int64_t>(count_) >= items_max_; }
  void put(T&& item) {
    ring_[(first_ + count_) % ring_.size()] = std::move(item);
    ++count_;
  }
  void grow() {
    std::vector<T> larger(2 * ring_.size());
    for (std::size_t i = 0; i < count_; ++i) {
      larger[i] = std::move(ring_[(first_ + i) % ring_.size()]);
    }
    ring_ = std::move(larger);
    first_ = 0;
  }
  // REQUIRES: there is a value.
  T take_oldest() {
    T item = std::exchange(ring_[first_], T());
    first_ = (first_ + 1) % ring_.size();
    --count_;
    not_full_.notify_one();
    return item;
  }

  const std::int64_t items_max_;
  mutable std::mutex mutex_;
  std::condition_variable not_empty_;
  std::condition_variable not_full_;
  std::vector<T> ring_;  // T() in empty places
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  bool closed_ = false;
};

}  // namespace stemma
