// PageArena: where the tree keeps the tokens, the page ids and the keys of its pages.
//
// One unit holds one page. A node's pages lie in a chain of runs; a run is a stretch of adjacent
// units, so that a comparison of tokens and a copy of ids each run over plain memory. Splitting a
// chain moves nothing: it cuts a run in two. Which unit a page lies in has nothing to do with its
// id, so that scattered ids do not scatter tokens.
//
// Thread:     engine thread only.                      Invariants: I5, I7 (docs/INVARIANTS.md).
// Memory:     4 bytes a token and 16 a page (48 once keys are asked for), for a quarter more units
//             than pages; reserved at construction, touched up to the high-water mark.
// Cost:       taking and giving back a run O(1) (two-level size classes, Masmano et al. 2004), and
//             a bit for each unit.
// Not here:   which node a chain belongs to (radix_tree), who owns a page (alloc/).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "prefix/untouched_array.h"
#include "stemma/ids.h"
#include "stemma/page_allocator.h"
#include "stemma/prefix_cache.h"

namespace stemma {

// The place of one page in the arena.
using UnitId = StrongId<struct UnitTag>;

// Pages of one node, in order. A value that only its arena can read.
struct PageChain {
  UnitId first;  // the first unit of the first run
  UnitId last;   // the first unit of the last run
  std::int32_t pages = 0;
};

class PageArena {
 public:
  // REQUIRES: 0 <= pages_max <= 2^30, page_size >= 1.
  PageArena(std::int64_t pages_max, std::int64_t page_size);

  // Puts `pages` and their tokens behind the chain; takes the pages over from their owner.
  // REQUIRES: tokens.size() == pages.pages() * page_size; the arena then holds at most pages_max.
  void append(PageChain& chain, std::span<const TokenId> tokens, OwnedPages pages);

  // Cuts the first `pages` off. Tokens, ids and keys stay where they are. O(runs before the cut).
  // REQUIRES: 0 < pages < chain.pages.
  PageChain take_front(PageChain& chain, std::int64_t pages);

  // Takes the last ids.size() pages out and writes their ids, in token order: the caller owes them
  // to their allocator. REQUIRES: ids.size() <= chain.pages.
  void take_back(PageChain& chain, std::span<PageId> ids);

  // How many pages the chain and `tokens` have in common, from the first one on: tokens compared
  // exactly (I7).
  std::int64_t common_pages(const PageChain& chain, std::span<const TokenId> tokens) const noexcept;

  // Writes the ids of pages `skip` … of the chain, at most out.size(); returns how many.
  std::int64_t copy_ids(const PageChain& chain, std::int64_t skip,
                        std::span<PageId> out) const noexcept;

  // The id of the last page. REQUIRES: chain.pages > 0.
  PageId last_id(const PageChain& chain) const noexcept {
    const auto last = chain.last.index();
    return ids_[last + static_cast<std::size_t>(runs_[last].pages) - 1];
  }

  // Calls visit(first unit, pages) for each run, in order.
  template <typename Visit>
  void for_each_run(const PageChain& chain, Visit&& visit) const {
    for (UnitId unit = chain.first; unit.valid(); unit = runs_[unit.index()].next) {
      visit(unit, std::int64_t{runs_[unit.index()].pages});
    }
  }

  // The tokens and ids of `pages` adjacent units of one run.
  std::span<const TokenId> tokens_of(UnitId first, std::int64_t pages) const noexcept {
    return {tokens_.data() + token_offset(first), static_cast<std::size_t>(pages * page_size_)};
  }
  std::span<const PageId> ids_of(UnitId first, std::int64_t pages) const noexcept {
    return {ids_.data() + first.index(), static_cast<std::size_t>(pages)};
  }
  // The keys' memory of adjacent units: whoever writes them knows which are valid. The first call
  // reserves it.
  std::span<PageKey> keys_of(UnitId first, std::int64_t pages);

  std::int64_t page_size() const noexcept { return page_size_; }
  std::int64_t used_pages() const noexcept { return used_pages_; }
  // Everything reserved, touched or not.
  std::int64_t reserved_bytes() const noexcept;

  // Begins loading the tokens at the start of the chain.
  [[gnu::always_inline]] void prefetch(const PageChain& chain) const noexcept {
    __builtin_prefetch(tokens_.data() + token_offset(chain.first));
    __builtin_prefetch(&runs_[chain.first.index()]);
  }

  // Begins loading what taking pages from the end of the chain touches.
  [[gnu::always_inline]] void prefetch_back(const PageChain& chain) const noexcept {
    __builtin_prefetch(&runs_[chain.last.index()]);
    __builtin_prefetch(&ids_[chain.last.index()]);
    __builtin_prefetch(&unused_[chain.last.index() / 64]);
  }

  // Compares free lists, bits and counters; a description of the first contradiction. O(units).
  std::optional<std::string> audit() const;
  // As audit, for one chain.
  std::optional<std::string> audit_chain(const PageChain& chain) const;

 private:
  // The header of a run of units, at its first unit. In a chain: its neighbours there. Free: its
  // neighbours in the list of its size class; its last unit then repeats `pages`, so that a run
  // behind it can find its start.
  struct Run {
    std::int32_t pages;
    UnitId next;
    UnitId previous;
  };
  static constexpr std::size_t kClasses = 128;  // four to each power of two

  std::size_t token_offset(UnitId unit) const noexcept {
    return unit.index() * static_cast<std::size_t>(page_size_);
  }
  Run& run(UnitId unit) noexcept { return runs_[unit.index()]; }
  const Run& run(UnitId unit) const noexcept { return runs_[unit.index()]; }
  bool unused(std::int64_t unit) const noexcept;
  void mark(UnitId first, std::int64_t pages, bool unused_now) noexcept;
  std::int64_t pages_in_common(UnitId first, std::span<const TokenId> tokens) const noexcept;

  std::int32_t extend_last(PageChain& chain, std::int32_t pages);
  std::int32_t append_run(PageChain& chain, std::int32_t pages);
  std::int32_t take_unused(UnitId unit, std::int32_t pages);
  void give_back(UnitId first, std::int32_t pages);
  UnitId find_unused(std::int32_t pages) const;
  void link_unused(UnitId unit, std::int32_t pages);
  void unlink_unused(UnitId unit);

  std::int64_t page_size_;
  std::int64_t pages_max_;
  std::int64_t units_;
  std::int64_t used_pages_ = 0;
  UntouchedArray<TokenId> tokens_;        // [units, page_size]
  UntouchedArray<PageId> ids_;            // [units]
  UntouchedArray<Run> runs_;              // [units]; meaningful at the first unit of a run
  UntouchedArray<PageKey> keys_;          // [units], once asked for
  UntouchedArray<std::uint64_t> unused_;  // one bit a unit
  std::array<UnitId, kClasses> unused_runs_ = {};
  std::array<std::uint64_t, kClasses / 64> classes_in_use_ = {};
};

}  // namespace stemma
