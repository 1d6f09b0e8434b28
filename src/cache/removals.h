// Removals: pages that were found to be wrong and may be in page stores too. Until a store is rid
// of them, nobody looks for them in any store, and nothing is stored under their keys.
//
// A removal begins when no copy to the store is under way that has one of the pages: what lands
// later would stay. A store that fails is asked again after a while, for as long as the cache
// lives.
//
// Thread:     engine thread only.                 Invariants: I8, I9, I10 (docs/INVARIANTS.md).
// Memory:     48 bytes a page in question, kPagesMax at most; beyond that stores are not used any
//             more.
// Cost:       nothing while no page is in question; else O(log pages) a key asked for.
// Not here:   which pages are wrong (tiering), reading and removing (tier/page_work).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "stemma/options.h"
#include "stemma/page_store.h"
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

  // These pages are wrong wherever they are. Nothing where there are no stores.
  void add(std::span<const PageKey> keys);

  // How many of `keys`, from the first on, may be asked of stores and stored there.
  std::int64_t allowed_pages(std::span<const PageKey> keys) const;

  // Begins what can begin. Once a poll.
  void advance();
  // REQUIRES: a ticket of kRemove.
  void landed(const TransferTicket& ticket);

  // Pages that are not known to be gone from every store.
  std::int64_t pages() const noexcept { return std::ssize(wrong_); }

 private:
  static constexpr std::int64_t kPagesMax = 1 << 16;

  struct WrongPage {
    PageKey key;
    std::uint64_t stores = 0;  // a bit for each store that may have it
  };
  // What is under way with one store.
  struct Store {
    bool asked = false;
    std::int64_t ask_again_us = 0;
  };

  std::vector<WrongPage>::const_iterator find(const PageKey& key) const;
  void ask(int store);
  bool being_stored(int store) const;

  Parts parts_;
  std::vector<WrongPage> wrong_;  // by key
  std::vector<Store> stores_;
  bool overflowed_ = false;
};

}  // namespace stemma
