// WatchStack: page hashes in the order in which they were put on a stack, any of which may be asked
// how many lie above it and be taken out. The lowest falls out when the stack is full.
//
// Thread:     one thread a stack.
// Memory:     58 to 90 bytes a watch, all at construction.
// Cost:       a look-up of a hash that is not there: one or two cache lines; one that is there, and
//             putting and taking out: O(log watches).
// Not here:   which pages are watched (ghost_curve).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/drawn_hash.h"

namespace stemma {

class WatchStack {
 public:
  // REQUIRES: 1 <= watches_max < 2^30.
  explicit WatchStack(std::int64_t watches_max);

  // How many watches lie above that of `hash`; nullopt if it is not there.
  std::optional<std::int64_t> try_rank(std::int64_t hash) const;

  // Takes the watch of `hash` out, if it is there.
  void remove(std::int64_t hash);

  // Puts a watch on top. REQUIRES: it is not there.
  void push(std::int64_t hash);

  std::int64_t watches() const noexcept { return watches_; }
  std::size_t memory_bytes() const noexcept;

 private:
  static constexpr std::int32_t kNowhere = -1;

  struct Entry {
    std::int64_t hash = 0;
    std::int32_t place = kNowhere;
  };

  // Where `hash` is in the table, or the empty entry at which it would be.
  std::size_t find(std::int64_t hash) const;
  std::size_t home(std::int64_t hash) const;
  void erase_entry(std::size_t entry);
  void count(std::int32_t place, std::int32_t change);
  std::int32_t count_up_to(std::int32_t place) const;  // watches at places <= place
  std::int32_t lowest_place() const;
  // Moves all watches to the lowest places, in their order.
  void compact();

  DrawnHash hash_;  // pages are chosen by whoever asks for them
  std::int64_t watches_max_;
  std::int64_t watches_ = 0;
  std::int32_t next_place_ = 0;  // the place of the next push
  std::vector<Entry> table_;     // open addressing, linear probing; at most half full
  std::vector<std::int64_t> hash_at_;
  std::vector<bool> taken_;            // whether a place holds a watch
  std::vector<std::int32_t> partial_;  // sums of taken_, as a Fenwick tree
};

}  // namespace stemma
