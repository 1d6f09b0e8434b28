// Removals: pages that were found to be wrong and may be in page stores too. Until a store is rid
// of them, nobody looks for them in any store, and nothing is stored under their keys.
//
// What a store has behind a wrong page was computed from it, and nobody knows all of it: it is
// purged by its place in its text (purges), and until then nothing of the tenant is looked up or
// stored there, for good where a store cannot be purged. So a page that is gone everywhere is
// forgotten here, and whoever computes it anew may go on from it as from any other.
//
// A removal begins when no copy to the store is under way that has one of the pages: what lands
// later would stay. A store is asked for one page after another, whatever becomes of each, since it
// may be that only a part of it fails. One of which a job removed nothing is asked again less and
// less often, for as long as the cache lives.
//
// Thread:     engine thread only.                 Invariants: I8, I9, I10 (docs/INVARIANTS.md).
// Memory:     48 bytes a page to be removed, kPagesMax at most; beyond that stores are not used any
//             more.
// Cost:       nothing where nothing was wrong; else O(log pages) a key asked for.
// Not here:   which pages are wrong (tiering), reading and removing (tier/page_work), the file in
//             which it outlives the cache (tier/purge_file).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "stemma/options.h"
#include "stemma/page_store.h"
#include "tier/purge_file.h"
#include "tier/transfer_ticket.h"

namespace stemma {

class Removals {
 public:
  // Everything must outlive it.
  struct Parts {
    TransferEngine& transfers;
    std::span<PageStore* const> stores;
    const Clock& clock;
    const TierOptions& options;
  };
  // REQUIRES: at most 64 stores.
  explicit Removals(const Parts& parts);

  // These pages are wrong wherever they are; of layers with a window under the keys that stores
  // have them under. Nothing where there are no stores.
  void add(std::span<const PageKey> keys, LayerGroup group = LayerGroup::kFull);

  // One store has not confirmed to be rid of these, in an earlier life.
  void restore(int store, const UnconfirmedRemoval& removal);
  // Adds what each store has not confirmed; all of a store where too many were wrong.
  void list_unconfirmed(Unconfirmed& out) const;
  // Grows with every call that may have added some.
  std::int64_t additions() const noexcept { return additions_; }

  // How many pages with these keys, from the first on, may be asked of stores and stored there now.
  std::int64_t usable_pages(std::span<const PageKey> keys) const;

  // Whether stores may be asked for windowed pages with these keys.
  bool windows_usable(std::span<const PageKey> windowed) const;
  // Whether nothing is in question: then all is usable.
  bool none() const noexcept { return wrong_.empty() && !overflowed_; }

  // Begins what can begin. Once a poll.
  void advance();
  // REQUIRES: a ticket of kRemove.
  void landed(const TransferTicket& ticket);

  // Pages that are not known to be gone from every store.
  std::int64_t pages() const noexcept { return static_cast<std::int64_t>(wrong_.size()); }
  // Whether a store that did not fail when it was asked last is still to be rid of one.
  bool gets_on() const;

 private:
  static constexpr std::int64_t kPagesMax = 1 << 16;

  struct WrongPage {
    PageKey key;
    std::uint64_t stores = 0;  // a bit for each store that may have it as it was
    LayerGroup group = LayerGroup::kFull;
  };
  // What is under way with one store.
  struct Store {
    bool asked = false;
    LayerGroup group = LayerGroup::kWindowed;  // of the last job
    std::array<PageKey, 2>
        last;          // of each group the last one asked for: the next job begins behind
    int failures = 0;  // in a row
    std::int64_t ask_again_us = 0;

    PageKey& last_of(LayerGroup of) { return last[static_cast<std::size_t>(of)]; }
    const PageKey& last_of(LayerGroup of) const { return last[static_cast<std::size_t>(of)]; }
  };

  const WrongPage* find_or_null(const PageKey& key) const;
  std::vector<WrongPage>::const_iterator next_page(int store, LayerGroup group) const;
  void insert(std::span<const PageKey> keys, LayerGroup group, std::uint64_t stores);
  void gone(const PageKey& key, int store);
  void ask(int store);
  bool being_stored(int store) const;

  Parts parts_;
  std::vector<WrongPage> wrong_;  // by key; none that is gone everywhere
  std::int64_t additions_ = 0;
  std::vector<Store> stores_;
  bool overflowed_ = false;
};

}  // namespace stemma
