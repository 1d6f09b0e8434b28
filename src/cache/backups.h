// Backups: copies down: from the device to host memory, from there to the page stores.
//
// What is copied is locked until the copy has ended, what it is copied to belongs to the ticket;
// only then it is published, parents before children (I6, I11). Where host memory is short its
// coldest pages go; where that does not suffice the rest stays unbacked and is counted.
//
// Host memory is given so many jobs at once, and so is each store. What comes meanwhile they are
// owed: the tree above remembers it (prefix/page_debts), and poll by poll the oldest goes next. A
// page that is evicted before its turn is not copied.
//
// Thread:     engine thread only.             Invariants: I6, I10, I11 (docs/INVARIANTS.md).
// Memory:     scratch for one text; a number a store.
// Cost:       O(tokens) to find what is missing, once a use of what is hot; the copies run
//             elsewhere. What is owed costs a poll nothing until it can go, then what a copy down
//             costs.
// Not here:   what deserves a copy (tiering), copying (tier/).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/host_tier.h"
#include "cache/purges.h"
#include "cache/removals.h"
#include "cache/tier_counters.h"
#include "cache/window_span.h"
#include "stemma/page_store.h"
#include "stemma/prefix_cache.h"
#include "tier/transfer_ticket.h"

namespace stemma {

class Backups {
 public:
  // Everything must outlive it.
  struct Parts {
    RadixPrefixCache& device;
    WindowedPages* device_windowed_or_null;
    WindowSpan window;
    HostTier& host;
    TransferEngine& transfers;
    std::span<PageStore* const> stores;
    std::int64_t store_jobs_max;  // at once, of one store; at least 1
    const Clock& clock;
    const TierOptions& options;
    TierCounters& counters;
    Removals& removals;
    Purges& purges;
  };
  explicit Backups(const Parts& parts) : parts_(parts), store_jobs_(parts.stores.size()) {}

  // To how many the tree of the device has to be able to owe pages: to host memory.
  static constexpr std::int64_t device_creditors(bool windows) { return windows ? 2 : 1; }
  // And the tree of host memory.
  static std::int64_t creditors(std::int64_t stores, bool windows) {
    return windows ? 2 * stores : stores;
  }

  // Begins to copy what host memory lacks of the first `end_tokens` of what is held on the device,
  // as far as there is room, at once or when it is its turn; how many pages it lacked. REQUIRES:
  // end_tokens is a multiple of page_size and not more than is held.
  std::int64_t back_up(const PrefixLock& held, std::int64_t end_tokens);
  // The same of the windowed pages that going on from there reads, where host memory has, or will
  // have, or is owed the others. REQUIRES: some layers have a window.
  std::int64_t back_up_window(const PrefixLock& held, std::int64_t end_tokens);

  // The same of what host memory has been owed longest, as far as it can be given more now. Once a
  // poll. Windowed pages go when those they hang on have gone.
  void back_up_owed();
  // It is owed nothing any more: what it was stays unbacked.
  void give_up_owed();

  // Begins to copy what page stores lack of what is held in host memory, from `first_page` on; at
  // once or when it is its turn. What a remote store has lost of the pages before, by age or for
  // want of room, goes to it anew once it has these.
  void store(const PrefixLock& held, std::int64_t first_page);
  // The same of what has been owed longest, as far as stores can be given more now. Once a poll.
  void store_owed();

  // Publishes what arrived. REQUIRES: a ticket of kBackup or kStore.
  void landed(TransferTicket ticket);

  // Whether host memory has, or will have, the first `tokens` of `held`, and their window as far
  // as the device has it.
  bool covers(const PrefixLock& held, std::int64_t tokens);

 private:
  void copy_rows(const PrefixLock& held, NamespaceId host_ns, std::int64_t end_tokens);
  struct MissingWindow {
    PageStretch pages;
    std::int64_t carried_end = 0;  // of the full pages that are below, or on their way
  };
  MissingWindow missing_window(const PrefixLock& held, NamespaceId host_ns,
                               std::int64_t end_tokens);
  bool window_is_below(NamespaceId host_ns, std::int64_t page, const PageKey& key) const;
  bool window_underway(NamespaceId host_ns, const PageKey& key) const;
  void back_up_owed_window(const PrefixLock& held, PageStretch pages);
  void send_window(const PrefixLock& held, NamespaceId host_ns, const PageStretch& pages);
  void landed_window_backup(TransferTicket ticket);
  void store_window(const PrefixLock& held, PageStretch pages);
  void store_window_in(int store, const PrefixLock& held, PageStretch pages);
  void store_owed_window_in(int store, const PrefixLock& held, PageStretch pages);
  void landed_window_store(TransferTicket ticket);
  void landed_backup(TransferTicket ticket);
  void landed_store(TransferTicket ticket);
  void store_lost(const TransferTicket& ticket);
  void store_in(int store, const PrefixLock& held, PageStretch pages);
  bool try_store_owed(int store, LayerGroup group);
  bool can_store(int store) const;
  bool can_store_now(int store, LayerGroup group, const PrefixLock& held, const PageStretch& pages);
  std::int64_t stored_end(int store, std::span<const PageKey> keys, std::int64_t first_page) const;
  std::int64_t creditor_of(int store, LayerGroup group) const;
  std::optional<TransferTicket> try_open_store(int store, const PrefixLock& held,
                                               std::int64_t pages);
  void submit_store(TransferTicket ticket);
  // Where what is held ends in host memory once all copies have landed, of which the pages before
  // `first_page` are there.
  std::int64_t backed_up_end(const PrefixLock& held, NamespaceId host_ns, std::int64_t first_page);
  std::span<const PageKey> keys_from(const PrefixLock& held, std::int64_t first_page);
  std::span<const TokenId> text_of(RadixPrefixCache& tree, const PrefixLock& held);

  // Of the device's creditors.
  static constexpr std::int64_t kHost = 0;
  static constexpr std::int64_t kHostWindows = 1;

  Parts parts_;
  std::vector<std::int64_t> store_jobs_;  // under way, by store
  std::vector<TokenId> text_;
  std::vector<PageKey> keys_;
  std::vector<PageId> row_;       // of what is held
  std::vector<PageId> host_row_;  // of the same text
};

}  // namespace stemma
