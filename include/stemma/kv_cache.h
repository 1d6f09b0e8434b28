// KvCache: what an engine asks of the cache, in the order of a request's life: begin, reserve,
// commit, finish. One request's hold on pages is a Sequence.
//
//   begin    looks the prompt up, locks what is cached, takes a row
//   reserve  gets pages for the tokens to be computed next, evicting cold ones if it must
//   commit   publishes the full pages that are computed; equal pages of others are shared (I2)
//   finish   the last commit; then everything is given back
//
// Thread:     engine thread only.            Invariants: I1, I2, I3, I5 (docs/INVARIANTS.md).
// Memory:     request table, page states and tree nodes, sized from KvCacheOptions; nothing is
//             allocated in steady state.
// Cost:       begin O(prompt); reserve O(pages got + evicted x log leaves); commit O(new tokens).
// Not here:   KV bytes (KvPool), who runs next (sched/), copies between tiers (tier/).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stemma/ids.h"
#include "stemma/lower_tiers.h"
#include "stemma/options.h"
#include "stemma/page_allocator.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"
#include "stemma/sequence.h"

namespace stemma {

class Clock;
class Grafts;
struct AuditHold;
struct AuditRow;
struct CachedText;
struct FoundText;
struct Graft;
class LayerGate;
class MetricVisitor;
class PageSpace;
class RadixPrefixCache;
class RequestTable;
class Tiering;
class Windows;
struct NodeText;
struct TreeListing;

class KvCache {
 public:
  // kInvalidArgument for a wrong option; kNotFound for an unknown cache or eviction order.
  // Policies that know ages take the time from `clock_or_null`, or the machine's clock. Pages move
  // to `tiers_or_null`, if given, and back: it needs the cache "radix". Both must outlive it.
  static Result<std::unique_ptr<KvCache>> open(const KvCacheOptions& options,
                                               const Clock* clock_or_null = nullptr,
                                               LowerTiers* tiers_or_null = nullptr);
  ~KvCache();  // REQUIRES: every Sequence of this cache holds nothing.
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // See PrefixCache. With `shared_or_null`, texts of this namespace begin with these tokens, whose
  // pages are those of the other namespace: every method below that takes a text takes it whole.
  // REQUIRES: one digest is always opened with the same shared prefix.
  std::optional<NamespaceId> try_open_namespace(const NamespaceDigest& digest,
                                                const SharedPrefix* shared_or_null = nullptr);
  // As often as it was opened. Sequences of it that are held go on, and its name stays theirs.
  void close_namespace(NamespaceId ns);
  // How many of the first `tokens` tokens of equal texts have the same pages in both namespaces.
  std::int64_t common_tokens(NamespaceId a, NamespaceId b, std::int64_t tokens) const;

  // Tokens that begin would find now. Changes nothing.
  std::int64_t probe(NamespaceId ns, std::span<const TokenId> tokens) const;

  // See PrefixCache::want: what begin would find for `tokens` is evicted last.
  // REQUIRES: tokens not empty.
  void want(NamespaceId ns, std::span<const TokenId> tokens, std::int64_t turn);
  void forget_wants();

  // Looks `tokens` up, at most tokens.size() - 1 of them so that one is always computed, and holds
  // what is found. nullopt, and nothing changed, if every row is taken. REQUIRES: tokens not empty.
  std::optional<Sequence> begin(NamespaceId ns, std::span<const TokenId> tokens);

  // A sequence with the first `computed_tokens` tokens of `sequence`, which has KV of them and has
  // published their full pages: those are shared. nullopt, and nothing changed, if there is no row
  // or no page for the rest, or nothing is shared here. REQUIRES: not on loan, no step in flight.
  std::optional<ForkedSequence> try_fork(const Sequence& sequence, std::int64_t computed_tokens);

  // Makes room for positions 0 … tokens-1: free pages first, then exactly the missing ones evicted.
  // All or nothing: false, and nothing changed, if there are too few even so. While a step is in
  // flight nothing is evicted: it would not be free yet. REQUIRES: tokens <= context_tokens_max.
  [[nodiscard]] bool reserve(Sequence& sequence, std::int64_t tokens);

  // The largest `tokens` for which reserve would succeed now, the context limit aside.
  std::int64_t reservable_tokens(const Sequence& sequence) const;

  // Publishes the full pages of `computed`: every token of the sequence whose KV is in its pages
  // now, from the first on. Where others published the same tokens before, their pages are shared,
  // this sequence's are freed, and its row names the shared ones (I2). A cache that shares nothing
  // leaves all as it is. REQUIRES: computed.size() <= sequence.capacity_tokens(); not on loan.
  void commit(Sequence& sequence, std::span<const TokenId> computed);

  // Goes on from the pages published of `tokens`, all that the sequence will compute, where others,
  // or a promotion, have published more of them than the `computed_tokens` that have KV; at most
  // tokens.size() - 1. Its own pages of the same tokens are freed. Returns the tokens that have KV
  // now. O(new tokens). REQUIRES: as commit, of the first computed_tokens of `tokens`.
  std::int64_t adopt(Sequence& sequence, std::span<const TokenId> tokens,
                     std::int64_t computed_tokens);

  // Of layers that look back over a window only, lets go what computing the token at
  // `computed_tokens`, and later ones, will not read. REQUIRES: all before it are computed.
  void advance(Sequence& sequence, std::int64_t computed_tokens);
  // The windowed pages of a sequence, in the places of pages(): invalid ids where `first_token`,
  // and later ones, look back no more. REQUIRES: window_tokens > 0; out.size() is pages().size().
  void copy_windowed(const Sequence& sequence, std::int64_t first_token,
                     std::span<PageId> out) const;

  // As commit, but of the first `publish_tokens_max` tokens at most; then tells the eviction policy
  // what the request was, and gives everything back.
  void finish(Sequence sequence, std::span<const TokenId> computed,
              std::int64_t publish_tokens_max = std::numeric_limits<std::int64_t>::max());

  // Lower tiers. Everything here does nothing, and finds nothing, where there are none.
  // Takes what has ended, publishes what came; whether there was any.
  bool poll_transfers();
  bool arrivals_wait();  // for poll_transfers while no step is in flight: what came to the device
  bool transfers_underway() const;
  bool pages_arriving(std::int64_t within_us) const;  // by a promotion, the last not longer ago
  // Waits until a transfer has ended or the time is over; poll_transfers then takes it.
  void wait_transfers(std::chrono::microseconds time);

  // For the end of a life that another follows: copies down what lower tiers lack of what nobody
  // holds, waits for it and for stores to confirm purges (one that fails: where no file tells the
  // next life), until the deadline; writes host memory's file. REQUIRES: no step in flight.
  void settle(std::int64_t deadline_us);

  // Begins to bring up what lower tiers have of `tokens` beyond what begin would find now; a name
  // for it, to be released. nullopt if there is nothing, or too much is under way.
  std::optional<PromotionId> try_promote(NamespaceId ns, std::span<const TokenId> tokens);
  // Whether it is not too much for a text that nobody brings up yet: if so, nullopt says "nothing".
  bool can_promote(NamespaceId ns, std::span<const TokenId> tokens) const;
  bool worth_waiting(PromotionId id) const;  // for it, rather than compute
  // Whether try_promote may find more of `tokens` once it has ended: it brings a text of which this
  // one has but the beginning, or was given up.
  bool may_bring_more(PromotionId id, NamespaceId ns, std::span<const TokenId> tokens) const;

  // Layer by layer: a step may name pages of a promotion that are still being copied up from host
  // memory. Whoever computes it asks `arriving_or_null` before reading a layer of them.
  bool can_lend(PromotionId id) const;  // all that the promotion is still to bring
  // Lends what the promotion brings of `tokens`, at most tokens.size() - 1, right behind what the
  // sequence holds, until end_loan. Returns the tokens that it then names pages of.
  // REQUIRES: it holds only what begin found.
  std::int64_t lend(Sequence& sequence, std::span<const TokenId> tokens, PromotionId id);
  LayerGate* arriving_or_null();  // nullptr: nothing is lent
  // The step has retired: waits for all that was lent. False: it may have read what came wrong.
  [[nodiscard]] bool await_lent();
  // The sequence holds what it had on loan. False if that is not whole: it then holds only what is
  // published of `tokens`, and what was computed from it must not be used. REQUIRES: await_lent.
  [[nodiscard]] bool end_loan(Sequence& sequence, std::span<const TokenId> tokens);

  void promotion_started(PromotionId id);  // who asked for it computes while the rest arrives
  std::int64_t promotion_pages(PromotionId id) const;        // that it has taken and not published
  PromotionOutcome promotion_outcome(PromotionId id) const;  // what it brought so far
  void release_promotion(PromotionId id, PromotionUse use);
  // Pages are short: gives up what is only waited for (kComputing: all), but for `keep`.
  void give_up_promotions(PromotionUse use, PromotionId keep = PromotionId());
  // Brings `tokens` from page stores to host memory, ahead of need. False: too much is under way.
  bool try_prefetch(NamespaceId ns, std::span<const TokenId> tokens);
  // Of what begin would look up, tokens that host memory has, from the first on.
  std::int64_t probe_host(NamespaceId ns, std::span<const TokenId> tokens) const;
  // The same of page stores, as far as they know without asking anybody (the disk does).
  std::int64_t probe_stores(NamespaceId ns, std::span<const TokenId> tokens);
  bool asks_stores(NamespaceId ns) const;  // others, that know only by asking, may be for its pages

  // A step computed `tokens` prompt tokens, from `first_token` of their texts on average.
  void note_computed(std::int64_t first_token, std::int64_t tokens, std::int64_t us);
  void visit_metrics(MetricVisitor& visitor) const;  // pages, and what tiers count

  // For people: why begin finds no more of `tokens`. REQUIRES: shares(); tokens not empty.
  PrefixEndReport why_ends(NamespaceId ns, std::span<const TokenId> tokens) const;
  // Tokens of `tokens` that the namespace of `digest` would find, went it on from what `ns` does.
  std::int64_t found_beside(NamespaceId ns, const NamespaceDigest& digest,
                            std::span<const TokenId> tokens) const;
  // The hottest nodes of the tree of a tier, and the text of one (prefix/tree_listing); empty and
  // nullopt where nothing is shared or there is no such tier. REQUIRES: kDevice or kHost.
  TreeListing list_nodes(Tier tier, std::int64_t nodes_max) const;
  std::optional<NodeText> node_text(Tier tier, NodeId id) const;
  CacheHolds holds() const;

  // Audits of what is cached (engine/shadow_audit; cache/audit_hold.h).

  // Writes the text of the pages that `sequence` shares. REQUIRES: published_tokens() > 0.
  void copy_text(const Sequence& sequence, CachedText& out) const;
  bool has_scratch_page() const;  // a free page, of the layers with a window too
  // Holds the pages of `text`, whose ids it writes, and a scratch page. No use of them: the order
  // of eviction stays. nullopt if they, or the windowed ones of the last one, have gone.
  std::optional<AuditHold> try_hold(const CachedText& text, AuditRow& row);
  // The last page of the first `end_tokens` of `text` is wrong: nobody finds it any more in any
  // tier, nor what goes on from it. Pages that somebody holds stay his until he lets go; sequences
  // that hold some are to be given up (is_quarantined). What page stores have is removed as soon
  // as they can be asked. REQUIRES: try_hold has just held `text`, and the hold is gone; end_tokens
  // is whole pages, at least one; no step is in flight.
  void quarantine(const CachedText& text, std::int64_t end_tokens);
  bool is_quarantined(const Sequence& sequence) const;

  // Events: which pages of the device begin to be found and which stop, for who follows the cache
  // from outside. Nothing where KvCacheOptions::events_pages_max is 0.
  // Hands over what changed since the last call, or after a loss everything. Once a step.
  void drain_events(PrefixEventSink& sink);
  void resend_events();  // the next drain hands over everything: for who follows from now on

  // Steps in flight, see PageAllocator: pages freed during a step stay untouched until it retires.
  std::int64_t begin_step();
  void retire_step(std::int64_t step);

  // Nobody finds a page of these namespaces any more, nor of any where none is named: neither on
  // the device nor in host memory from now on, nor in a page store from when it has confirmed it;
  // until then, or for good, it is asked for none and given none. What holds such pages reads on
  // and publishes nothing any more, nor does what has begun in these namespaces and holds none;
  // what begins now uses them afresh. kTooLarge: too many wait. REQUIRES: no step is in flight.
  Result<PurgeId> purge(std::span<const NamespaceFamily> namespaces);
  bool is_of_any(NamespaceId ns, std::span<const NamespaceFamily> families) const;  // or goes on
  std::optional<PurgeReport> purge_report(PurgeId id) const;  // nullopt: too many came since

  // See RadixPrefixCache::set_quota, of the pages of the device; of host memory, if there is any,
  // the same share. Nothing where nothing is shared. REQUIRES: 0 <= pages <= total_pages().
  void set_quota(const NamespaceFamily& tenant, std::int64_t pages);
  void set_quotas(std::span<const TenantQuota> quotas);  // many at once cost what one costs
  std::vector<TenantQuota> quotas(Tier tier) const;      // REQUIRES: kDevice or kHost

  // Evicts up to `pages`, coldest first; how many. REQUIRES: pages >= 0; no step is in flight.
  std::int64_t evict(std::int64_t pages);
  // The same until `pages` are free, or will be once the steps in flight have retired.
  void keep_free(std::int64_t pages);
  // Forgets every published page. REQUIRES: no Sequence holds anything; promoting: between steps.
  void reset();

  // Pages that reserve could hand out now: free ones and those that eviction could free.
  std::int64_t available_pages() const;
  // The same once what begin finds of `tokens` is held. O(what it finds).
  std::int64_t available_pages_beside(NamespaceId ns, std::span<const TokenId> tokens) const;
  std::int64_t available_windowed_pages() const;  // REQUIRES: window_tokens is not 0
  std::int64_t free_pages() const noexcept { return allocator_.free_pages(); }  // of these
  std::int64_t free_rows() const;
  std::int64_t page_size() const noexcept { return options_.page_size; }
  std::int64_t total_pages() const noexcept { return options_.pages; }
  bool shares() const { return prefix_->shares(); }  // pages of one request with others: not "none"
  std::uint64_t epoch() const;  // equal ones mean that an earlier probe still holds
  PrefixUsage usage() const { return prefix_->usage(); }
  std::int64_t evicted_pages() const;  // since opening
  const KvCacheOptions& options() const noexcept { return options_; }
  std::int64_t now_us() const;  // on its clock

  // Checks I1, I2, I3 and I5; the first contradiction, or nullopt. O(pages + tokens); allocates.
  std::optional<std::string> audit() const;
  std::string draw() const { return prefix_->draw(); }  // the tree, for tests and people

 private:
  friend class KeptProbe;
  friend class KvCacheAudit;
  friend class Sequence;
  friend class TextReporter;
  KvCache(const KvCacheOptions& options, std::unique_ptr<Clock> own_clock, const Clock& clock);
  Status open_tiering(LowerTiers& lower);
  RadixPrefixCache& tree() const;
  Sequence::Published match(NamespaceId ns, std::span<const TokenId> tokens);
  FoundText find(const Graft& graft, std::span<const TokenId> tokens) const;
  std::int64_t find_below(Tier tier, NamespaceId ns, std::span<const TokenId> tokens) const;
  bool publish(Sequence& sequence, PrefixLock& held, std::span<const TokenId> tokens);
  void back_up_windows(const Sequence& sequence, std::int64_t first_token);
  void extend(Sequence& sequence, std::span<const TokenId> tokens);
  void name_published(Sequence& sequence, std::int64_t first_page);
  bool try_hold_part(NamespaceId ns, const NamespaceDigest& digest, std::span<const TokenId> tokens,
                     PrefixLock& lock, std::vector<PageId>& pages);
  void quarantine_part(NamespaceId ns, std::span<const TokenId> wrong);
  void quarantine_all(std::span<const NamespaceId> namespaces);
  const RadixPrefixCache* tree_or_null(Tier tier) const;
  bool can_get(std::int64_t pages) const;
  std::int64_t held_pages(const Sequence& sequence) const;
  std::int64_t reservable_pages() const;
  KvCacheOptions options_;
  std::unique_ptr<Clock> own_clock_;  // nullptr where one was given
  const Clock& clock_;                // of the eviction policy
  PageAllocator allocator_;
  std::unique_ptr<RequestTable> rows_;
  std::unique_ptr<Windows> windows_;     // nullptr: none; its pages hang on the allocator's
  std::unique_ptr<PrefixCache> prefix_;  // its pages are the allocator's: destroyed before it
  std::unique_ptr<PageSpace> space_;     // of allocator_ and prefix_
  std::unique_ptr<Grafts> grafts_;
  std::unique_ptr<Tiering> tiering_;  // nullptr without lower tiers; holds locks on prefix_
  std::vector<Sequence*> live_;       // by row; nullptr for a free row
  std::int64_t steps_in_flight_ = 0;
  std::optional<PurgeReport> last_purge_;  // the last of purges_, where there are no lower tiers
  std::int64_t purges_ = 0;
};

}  // namespace stemma
