// Tiering: which pages move between the tiers, and when.
//
//   matched, published   what was used often enough, or at all, is copied down (backups)
//   poll                 takes copies that have ended, publishes them, asks for the next
//   try_promote          brings up what a waiting request will need (promotions)
//
// Nothing here waits: a step goes on with what is there.
//
// Thread:     engine thread only.      Invariants: I1, I3, I6, I9, I11, I12 (docs/INVARIANTS.md).
// Memory:     that of its parts, fixed when opened.
// Cost:       poll O(what has ended + promotions).
// Not here:   bytes (tier/), who waits (sched/).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/backups.h"
#include "cache/covered_leaves.h"
#include "cache/grafts.h"
#include "cache/host_file.h"
#include "cache/host_tier.h"
#include "cache/load_costs.h"
#include "cache/loans.h"
#include "cache/page_space.h"
#include "cache/promotions.h"
#include "cache/purges.h"
#include "cache/removals.h"
#include "cache/tier_counters.h"
#include "stemma/kv_cache.h"
#include "stemma/lower_tiers.h"
#include "stemma/metrics.h"
#include "stemma/page_store.h"
#include "tier/purge_file.h"
#include "tier/transfer_ticket.h"

namespace stemma {

class Tiering {
 public:
  // What the device has.
  struct Device {
    RadixPrefixCache& tree;
    Grafts& grafts;
    PageSpace& space;
    WindowedPages* windowed_or_null;  // nullptr: no layers have a window
  };
  static Result<std::unique_ptr<Tiering>> open(const KvCacheOptions& options, LowerTiers& lower,
                                               const Device& device, const Clock& clock);
  // Ends every transfer. What stores have not confirmed is in the purge file then, if there is one.
  ~Tiering();
  Tiering(const Tiering&) = delete;
  Tiering& operator=(const Tiering&) = delete;

  void open_namespace(NamespaceId ns, const NamespaceDigest& digest) {
    host_->open_namespace(ns, digest);
  }
  void close_namespace(NamespaceId ns) { host_->close_namespace(ns); }
  // Somebody asks for a text of `ns`: host memory is to know what that goes on from, if anything.
  void note_shared(NamespaceId ns, const GraftedText& text) {
    if (!text.shared_ns.valid() || text.own.empty()) return;
    host_->set_shared(ns, device_.tree.digest(text.shared_ns), text.shared);
  }

  // A request found what it holds.
  void matched(const PrefixLock& held);
  // What is held was published by whoever holds it.
  void published(const PrefixLock& held);
  // It is likely to be gone on from there: so the windowed pages before are worth a copy, where
  // host memory has the others. REQUIRES: some layers have a window.
  void likely_end(const PrefixLock& held, std::int64_t end_tokens) {
    if (options_.write_policy != WritePolicy::kWriteBack) backups_.back_up_window(held, end_tokens);
  }

  // Takes what has ended; whether there was anything. REQUIRES: no step is in flight, or nothing is
  // brought to the device.
  bool poll();
  // The same while steps are in flight: pages that an arrival takes, or evicts for others, would
  // not be free before these retire. So nothing that comes up to the device moves on.
  bool poll_beside_steps();
  // Whether something was left for poll by that.
  bool arrivals_wait();
  bool underway() const noexcept { return transfers() > 0; }
  std::int64_t transfers() const noexcept { return transfers_.underway(); }
  template <typename Visit>
  void for_each_underway(Visit&& visit) const {
    transfers_.for_each_underway(visit);
  }
  // Host memory is owed nothing of the device any more.
  void give_up_owed() { backups_.give_up_owed(); }
  // Whether any of them holds something on the device.
  bool holds_device() const;
  // Whether pages are being brought up, and some came at `since_us` or later.
  bool pages_arriving(std::int64_t since_us) const;
  void wait_landed(std::chrono::microseconds time) { transfers_.wait_landed(time); }

  // Begins to copy down what host memory lacks of all that the device has, as far as there are
  // tickets now. Each text once, until end_settling. True when none is left.
  bool settle_more();
  void end_settling() { settled_.clear(); }
  // Writes the file that host memory survives in, if there is one.
  void save_host();

  // Tokens of `tokens` in host memory, whatever the device has.
  std::int64_t probe_host(NamespaceId ns, std::span<const TokenId> tokens) const;
  // The same, as RadixPrefixCache::probe_again.
  std::int64_t probe_host_again(NamespaceId ns, std::span<const TokenId> tokens,
                                WalkEnd& end) const;
  // Tokens of `tokens` in page stores that know without asking anybody. Counts as a use of them.
  std::int64_t probe_stores(const NamespaceDigest& digest, std::span<const TokenId> tokens);
  // See KvCache. `tokens` are cut to whole pages.
  std::optional<PromotionId> try_promote(
      NamespaceId ns, std::span<const TokenId> tokens,
      Promotion::Attendance attendance = Promotion::Attendance::kAttended);
  bool can_promote(NamespaceId ns, std::span<const TokenId> tokens) const;
  // Brings up, as far as there is place, what goes on from a text that is on its way itself: nobody
  // computes any of it before that has come.
  void bring_behind(NamespaceId ns, std::span<const TokenId> tokens);
  // Whether a store that does not know by itself what it has may be asked for pages of it.
  bool asks_stores(const NamespaceDigest& digest) const;
  // See KvCache.
  bool may_bring_more(PromotionId id, NamespaceId ns, std::span<const TokenId> tokens) const {
    return !promotions_.serves(id, ns, whole_pages(tokens));
  }
  // Brings from page stores to host memory, unless too much is under way: it leaves half of all
  // places to texts whose turn has come.
  bool try_prefetch(NamespaceId ns, std::span<const TokenId> tokens);
  Promotions& promotions() noexcept { return promotions_; }
  Loans& loans() noexcept { return loans_; }
  // Waits until the copies that pages were lent of have ended, and takes them. False if a step has
  // read of them what came wrong. REQUIRES: no step is in flight.
  [[nodiscard]] bool end_loans(std::chrono::microseconds nap);
  LoadCosts& costs() noexcept { return costs_; }

  // The last page of `text`, whole pages, is wrong: nobody finds it any more in any tier, nor what
  // goes on from it as far as that is known; what brings it, or copies it down, comes to nothing.
  void quarantine(NamespaceId ns, std::span<const TokenId> text);
  // Page stores are to forget everything: what goes on from a wrong page in namespaces that nobody
  // knows may be among it.
  void forget_stored();
  // So is every page of these namespaces, and of all in host memory that have no name on the device
  // any more: nobody knows what these go on from. REQUIRES: forget_stored was called.
  void quarantine_all(std::span<const NamespaceId> namespaces);
  // Whether stores may still have pages that are in quarantine, or were purged.
  bool removing() const noexcept { return removals_.pages() > 0 || purges_.pending() > 0; }
  // The same, where an end of life is to wait for them: not for stores that fail, as long as a file
  // tells the next life of it.
  bool removing_before_end() const;

  // Whether another purge of these can be remembered until every store has confirmed it.
  bool can_purge(std::span<const NamespaceFamily> namespaces) const {
    return purges_.can_add(namespaces);
  }
  // Nobody finds a page of these namespaces any more, of all where none is named: on the device and
  // in host memory at once, in stores from the moment on that each says so; until then it is not
  // asked for any. What brings them, or copies them down, comes to nothing. REQUIRES: can_purge.
  PurgeId purge(std::span<const NamespaceFamily> namespaces);
  // nullopt if that is long ago. Host memory has not confirmed any while its file stays.
  std::optional<PurgeReport> purge_report(PurgeId id) const;

  // Pages of host memory that tenants are sure of. REQUIRES: 0 <= each <= host_pages().
  void set_host_quotas(std::span<const TenantQuota> quotas) { host_->tree().set_quotas(quotas); }
  std::int64_t host_pages() const { return host_->allocator().total_pages(); }

  // Device pages that transfers and promotions own (I1).
  std::int64_t device_pages() const { return promotions_.owned_pages(Tier::kDevice); }
  std::uint64_t epoch() const { return host_->tree().epoch(); }
  const RadixPrefixCache& host_tree() const { return host_->tree(); }
  TierCounters& counters() noexcept { return counters_; }
  void visit_metrics(MetricVisitor& visitor) const;
  // Adds the holds of transfers and promotions to those of each of `pages`, the device's or the
  // host's; how many of them they own that hang nowhere.
  std::int64_t count_windowed(const WindowedPages& pages, std::span<std::int32_t> holders) const;
  // The host's tree and pages; the first contradiction, or nullopt.
  std::optional<std::string> audit() const;

 private:
  Tiering(const KvCacheOptions& options, LowerTiers& lower, const Device& device,
          std::unique_ptr<HostTier> host, const Clock& clock);
  std::int64_t back_up(const PrefixLock& held, std::int64_t end_tokens);
  bool copies_hot() const;
  void take(TransferTicket ticket);
  void pay_owed();
  void begin_next();
  void demote_ahead();
  bool is_covered(const ColdLeaf& cold, int& looks);
  bool host_has_more(NamespaceId ns, std::span<const TokenId> tokens) const;
  std::size_t stored_pages(const NamespaceDigest& digest, std::span<const PageKey> keys);
  std::vector<NamespaceId> unnamed_in_host() const;
  std::optional<std::string> audit_windowed() const;
  std::span<const TokenId> whole_pages(std::span<const TokenId> tokens) const;

  // What the purge file is to say follows from these.
  struct UnconfirmedMark {
    std::int64_t additions = 0;
    std::int64_t wrong_shared_changes = 0;
    bool none_left = true;
    bool host_file_stays = false;
    friend bool operator==(const UnconfirmedMark&, const UnconfirmedMark&) = default;
  };
  UnconfirmedMark unconfirmed_mark() const;
  bool is_more(const UnconfirmedMark& mark) const;
  Unconfirmed unconfirmed() const;
  void restore_unconfirmed();
  template <typename Restore>
  bool restore_at(const std::string& label, Restore restore);
  void keep_unconfirmed();
  void write_unconfirmed();

  const Clock& clock_;
  TierOptions options_;
  Device device_;
  std::span<PageStore* const> stores_;
  std::unique_ptr<HostTier> host_;
  TierCounters counters_;
  HostFile host_file_;
  LoadCosts costs_;
  std::optional<std::int64_t> arrived_us_;  // when pages last came up
  std::unique_ptr<TransferLanes> lanes_;
  TransferEngine transfers_;  // its tickets hold pages of both trees: destroyed before them
  Removals removals_;
  Purges purges_;
  Backups backups_;
  Promotions promotions_;  // as transfers_
  Loans loans_;
  std::vector<PrefixLock> passed_over_;  // in demote_ahead
  CoveredLeaves covered_;
  std::vector<PrefixLock> settled_;           // between settle_more and end_settling
  std::int64_t ahead_budget_pages_ = 0;       // that may be copied ahead
  std::int64_t seen_taken_pages_ = 0;         // of the device's space
  PurgeFile* purge_file_or_null_;             // nullptr: nothing outlives this
  std::optional<UnconfirmedMark> kept_mark_;  // of when the file was last as it is to be
  Unconfirmed of_others_;                     // of stores that are not here in this life
  std::int64_t keep_again_us_ = 0;            // not before; what becomes less
  std::int64_t keep_less_us_ = 0;             // not before this
  bool purge_file_lags_ = false;
};

}  // namespace stemma
