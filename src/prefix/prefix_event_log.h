// PrefixEventLog: what became findable in a tree and what stopped being so, since it was last
// asked.
//
// Whoever follows a cache from outside, such as a router that sends each request to the server that
// has most of its prompt, needs the changes in their order and nothing left out. The log keeps
// them until somebody drains it, once a step. Where nobody does in time, it remembers only that
// something is lost: the tree then hands over all it has instead.
//
// Thread:     engine thread only.                         Invariants: I10 (docs/INVARIANTS.md).
// Memory:     4 bytes a token and 128 a page, for `pages_max` pages; reserved at construction,
//             touched up to the high-water mark. Adding and draining allocate nothing.
// Cost:       a copy of the keys and tokens.
// Not here:   keys (radix_prefix_cache), what is lost (radix_prefix_cache_events), wires (events/).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "prefix/untouched_array.h"
#include "stemma/ids.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class PrefixEventLog {
 public:
  // REQUIRES: pages_max >= 1, page_size >= 1.
  PrefixEventLog(std::int64_t pages_max, std::int64_t page_size);

  // Where a run of stored pages stands.
  struct Place {
    NamespaceDigest digest;
    std::optional<PageKey> parent;
  };
  // Room for the keys of a run of stored pages, which the caller writes; empty if it is lost.
  // REQUIRES: tokens are at least one whole page.
  std::span<PageKey> add_stored(const Place& place, std::span<const TokenId> tokens);
  // Room for the keys of pages that are found no more, each before those that it continues; empty
  // if it is lost. REQUIRES: pages >= 1.
  std::span<PageKey> add_removed(std::int64_t pages);
  // What was logged before means nothing any more, nor does what was lost.
  void add_cleared();

  // Forgets what it has: it is lost, and so is what is added from now on.
  void lose() noexcept;
  bool lost() const noexcept { return lost_; }
  // Hands over everything and is empty. REQUIRES: !lost().
  void drain(PrefixEventSink& sink);
  // Begins anew, empty and with nothing lost.
  void restart() noexcept;

  std::int64_t pages() const noexcept { return pages_; }
  std::int64_t pages_max() const noexcept { return pages_max_; }
  // How often it was full.
  std::int64_t overflows() const noexcept { return overflows_; }

 private:
  struct Entry {
    PrefixEvent::Kind kind;
    bool has_parent;
    std::int64_t pages;
    NamespaceDigest digest;
    PageKey parent;
  };

  bool has_room(std::int64_t pages);
  std::span<PageKey> take_keys(std::int64_t pages);

  std::int64_t pages_max_;
  std::int64_t page_size_;
  std::int64_t pages_ = 0;  // of all entries
  std::size_t entries_ = 0;
  std::size_t tokens_ = 0;
  bool lost_ = false;
  std::int64_t overflows_ = 0;
  UntouchedArray<Entry> entry_;    // [pages_max + 1]: one that cleared, then at least a page each
  UntouchedArray<PageKey> key_;    // [pages_max]
  UntouchedArray<TokenId> token_;  // [pages_max, page_size]
};

}  // namespace stemma
