// PageRecord and GhostPages: what is known of a page, and of pages that are gone.
//
// A ghost is found by the fingerprint of its page: a 64-bit hash of all tokens up to its end. Two
// texts of one fingerprint would share what was learned, and nothing else.
//
// Thread:     engine thread only.
// Memory:     40 bytes a record, 16 to 32 more a ghost; reserved at construction.
// Cost:       a look-up or two in memory each, which prefetch begins; the oldest ghost goes when
//             there is no room.
// Not here:   what records mean (hazard_policy).
#pragma once

#include <cstdint>
#include <optional>

#include "prefix/untouched_array.h"

namespace stemma {

struct PageRecord {
  std::uint64_t fingerprint = 0;
  std::int64_t used_us = 0;   // when the last request that used it ended
  std::int32_t weight = 0;    // of it in its class
  std::uint32_t request = 0;  // the number of that request
  std::int16_t page_class = 0;
  std::uint16_t alike_pages = 1;  // it and those before it that are of the same class and request
  std::uint16_t turn = 0;         // of that request in its conversation
  std::uint16_t before_end = 0;   // pages from it to the last one of that request's prompt
  std::uint16_t other_texts = 0;  // requests that used it and did not continue the one before them
  std::int8_t bias = 0;           // hints of that request: −1, 0 or 1
  bool known = false;             // some request that used it has ended
  bool came_back = false;         // it was gone when the request that holds it began
};
static_assert(sizeof(PageRecord) == 40, "five words a page");

class GhostPages {
 public:
  // REQUIRES: 1 <= ghosts_max < 2^31.
  explicit GhostPages(std::int64_t ghosts_max);

  // Remembers a page that is gone; returns the one that is forgotten for it, if any.
  std::optional<PageRecord> push(const PageRecord& page);
  // Takes the page of this fingerprint out; nullopt if there is none.
  std::optional<PageRecord> take(std::uint64_t fingerprint);

  // Begins loading what take, or push of a page of this fingerprint, looks at first. Always
  // inlined: see RadixTree::prefetch_removal.
  [[gnu::always_inline]] void prefetch(std::uint64_t fingerprint) const noexcept {
    __builtin_prefetch(&table_[home(static_cast<std::uint32_t>(fingerprint))]);
  }
  // Begins loading the ghost that lies where take of this fingerprint looks first.
  [[gnu::always_inline]] void prefetch_ghost(std::uint64_t fingerprint) const noexcept {
    const Entry& entry = table_[home(static_cast<std::uint32_t>(fingerprint))];
    if (entry.place != kNone) __builtin_prefetch(&ring_[static_cast<std::size_t>(entry.place)]);
  }
  // Begins loading what the i-th push from now on forgets. REQUIRES: 0 <= i.
  [[gnu::always_inline]] void prefetch_forgotten(std::int64_t i) const noexcept {
    const auto ghosts = static_cast<std::int64_t>(ring_.size());
    if (next_ + i < ghosts) return;
    prefetch(ring_[static_cast<std::size_t>((next_ + i) % ghosts)].fingerprint);
  }

 private:
  static constexpr std::int32_t kNone = -1;
  // Where a ghost is, and the low half of its fingerprint: most others are told by it.
  struct Entry {
    std::int32_t place = kNone;  // in the ring
    std::uint32_t low = 0;
  };
  std::size_t home(std::uint32_t low) const noexcept { return low & mask_; }
  std::size_t find(std::uint64_t fingerprint, std::int32_t place) const noexcept;
  void erase(std::size_t at) noexcept;

  std::int64_t next_ = 0;  // pushes so far; the ring's oldest place is the next one
  std::uint32_t mask_ = 0;
  UntouchedArray<PageRecord> ring_;  // known: false where taken out
  UntouchedArray<Entry> table_;      // by fingerprint, open addressing
};

}  // namespace stemma
