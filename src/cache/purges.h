// Purges: namespaces of which page stores are to forget everything, or, where a page was wrong,
// everything that may have been computed from it. Until a store has said that it
// has, nothing of these namespaces is looked up in it or stored there; then they are used afresh.
//
// A purge begins when no copy to the store is under way that has a page of it: what lands later
// would stay. A store that fails is asked again, for another purge first, less and less often, for
// as long as the cache lives; one that gets on is asked again at once. What a store did not confirm
// when that ends is found in the next life, unless that is told of it (tier/purge_file). One that
// says that it cannot be purged at all (kUnsupported) is not asked again: it keeps what it has, and
// as long as the cache lives nothing of these namespaces is looked up in it or stored there.
//
// Thread:     engine thread only.                     Invariants: I9, I10 (docs/INVARIANTS.md).
// Memory:     kPurgesMax purges, one of all that was wrong beside them, and kNamespacesMax
// namespaces of those that are pending; as many
//             again for each store that cannot be purged, which is barred from all where there are
//             more.
// Cost:       nothing where nothing is pending; else O(pending purges) a look-up. A store that
//             cannot be purged: a binary search more.
// Not here:   what the device and host memory have (tiering), removing (page stores).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "stemma/kv_cache.h"
#include "stemma/options.h"
#include "stemma/page_store.h"
#include "tier/purge_file.h"
#include "tier/transfer_ticket.h"

namespace stemma {

class Purges {
 public:
  // Everything must outlive it.
  struct Parts {
    TransferEngine& transfers;
    std::span<PageStore* const> stores;
    const Clock& clock;
    const TierOptions& options;
  };
  static constexpr std::size_t kPurgesMax = 64;
  static constexpr std::size_t kNamespacesMax = 1 << 16;

  // REQUIRES: at most 64 stores.
  explicit Purges(const Parts& parts);

  // Whether one more can be remembered: a store that is down may have many waiting.
  bool can_add(std::span<const NamespaceFamily> namespaces) const;
  // Every store is to forget these namespaces; all where none is named. `pages` are those that went
  // elsewhere, by tier. One that is pending for the same namespaces is asked for anew, and counts
  // for both: who repeats himself while a store is down takes no room from others.
  // REQUIRES: can_add.
  PurgeId add(std::span<const NamespaceFamily> namespaces,
              const std::array<std::int64_t, 4>& pages);

  // Every store is to forget those pages of these namespaces that have at least `pages_before`
  // pages before them: one was wrong, and nobody knows all that was computed from it. Until then
  // nothing of these namespaces is looked up in the store or stored there. Where no more can be
  // remembered, everything is to be forgotten. Nothing is added where every store is to forget as
  // much anyway; where all namespaces are to be forgotten, others that were added here go with it.
  void add_behind(std::span<const NamespaceFamily> namespaces, std::int64_t pages_before);

  // A store has not confirmed it, in an earlier life. Where no more can be remembered, everything
  // is to be forgotten there.
  void restore(int store, const UnconfirmedPurge& purge);
  // Adds what each store has not confirmed, or never will.
  void list_unconfirmed(Unconfirmed& out) const;
  // Grows with every call that may have added some.
  std::int64_t additions() const noexcept { return additions_; }

  // Whether the store may be asked for pages of the namespace, and given some.
  bool usable(int store, const NamespaceDigest& digest) const;

  // Begins what can begin. Once a poll.
  void advance();
  // REQUIRES: a ticket of kPurge.
  void landed(const TransferTicket& ticket);

  // nullopt if it was never added, or has gone for later ones.
  std::optional<PurgeReport> report(PurgeId id) const;
  bool was_added(PurgeId id) const noexcept { return id.valid() && id.value() < next_id_; }
  // Purges that not every store has confirmed.
  std::int64_t pending() const noexcept { return pending_; }
  // Whether a store that did not fail when it was asked last is still to confirm one.
  bool gets_on() const;

 private:
  struct Purge {
    std::vector<NamespaceFamily> namespaces;  // sorted; none: all
    std::int64_t pages_before = 0;            // those with fewer stay
    bool is_named = false;                    // somebody was given its id
    std::uint64_t stores = 0;                 // a bit for each that has not confirmed it
    std::uint64_t unable = 0;                 // and for each that never will
    std::array<std::int64_t, 4> pages = {};   // by tier
  };
  // What is under way with one store.
  struct Store {
    bool asked = false;
    int failures = 0;  // in a row
    std::int64_t ask_again_us = 0;
    std::int64_t failed_last = -1;  // the purge that did
    bool barred_from_all = false;
    std::vector<NamespaceFamily> barred;  // sorted; what it keeps and is not to be asked for
  };

  const Purge* find_or_null(PurgeId id) const;
  std::size_t find_pending(std::span<const NamespaceFamily> sorted,
                           std::int64_t pages_before) const;
  bool is_to_forget_all(std::int64_t pages_before) const;
  void absorb_into(PurgeId all);
  bool has_room(std::size_t namespaces) const;
  std::uint64_t stores_to_ask() const;
  void fit(Purge& purge) const;
  PurgeId place(Purge purge, std::uint64_t stores);
  void drop_oldest_done();
  void ask(int store);
  bool being_stored(const Purge& purge, int store) const;
  void note_failure(Store& store);
  void note_unable(int store);
  void bar(int store, Purge& purge);
  void settle(Purge& purge, std::uint64_t stores);

  Parts parts_;
  std::deque<std::pair<PurgeId, Purge>> purges_;  // the oldest first
  std::int64_t next_id_ = 0;
  std::int64_t pending_ = 0;
  std::size_t pending_namespaces_ = 0;
  std::int64_t additions_ = 0;
  std::uint64_t unable_ = 0;  // a bit for each store that cannot be purged
  std::vector<Store> stores_;
};

}  // namespace stemma
