// RadixPrefixCache: the prefix cache over a radix tree: namespaces, uses, locks, eviction.
//
// Thread:     engine thread only.           Invariants: I1, I3, I4, I5, I7 (docs/INVARIANTS.md).
// Memory:     that of its parts, reserved at construction; match, insert, evict allocate nothing.
// Cost:       match: one look-up and one comparison a node; insert O(new tokens), from where the
//             lock ends; unlock O(depth); evict O(log leaves) a leaf.
// Not here:   structure (radix_tree), order (eviction_order, eviction_index, page_policy).
#pragma once

#include <memory>
#include <vector>

#include "prefix/evicted_marks.h"
#include "prefix/eviction_index.h"
#include "prefix/eviction_order.h"
#include "prefix/graft_points.h"
#include "prefix/locked_text.h"
#include "prefix/namespace_registry.h"
#include "prefix/page_debts.h"
#include "prefix/page_key.h"
#include "prefix/page_policy.h"
#include "prefix/parked_leaves.h"
#include "prefix/prefix_cache_options.h"
#include "prefix/prefix_event_log.h"
#include "prefix/radix_tree.h"
#include "prefix/tenant_quotas.h"
#include "prefix/tree_listing.h"
#include "prefix/wanted_leaves.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"

namespace stemma {

class RadixPrefixCache final : public PrefixCache {
 public:
  static Result<std::unique_ptr<RadixPrefixCache>> open(const PrefixCacheOptions& options);

  // REQUIRES: the options are valid (open checks them).
  RadixPrefixCache(const PrefixCacheOptions& options, EvictionOrder order);
  // Gives every page back. REQUIRES: no PrefixLock is alive.
  ~RadixPrefixCache() override;
  RadixPrefixCache(const RadixPrefixCache&) = delete;
  RadixPrefixCache& operator=(const RadixPrefixCache&) = delete;

  std::string_view name() const override { return "radix"; }
  std::int64_t page_size() const override { return tree_.page_size(); }
  bool shares() const override { return true; }
  using PrefixCache::try_open_namespace;
  std::optional<NamespaceId> try_open_namespace(const NamespaceDigest& digest,
                                                OwnedPages* evicted_or_null) override;
  void close_namespace(NamespaceId ns) override;
  // The namespace of `digest`, which stays as it is, open or closed; nullopt: it has nothing.
  std::optional<NamespaceId> find_namespace(const NamespaceDigest& digest) const;
  PrefixProbe probe(NamespaceId ns, std::span<const TokenId> tokens) const override;
  // As probe, and writes the pages that it finds, in token order. REQUIRES: out has room for them.
  PrefixProbe probe(NamespaceId ns, std::span<const TokenId> tokens, std::span<PageId> out) const;
  // What probe matches, for who asks again and again: O(1) where nothing changed on the way of
  // `tokens`. REQUIRES: `end` was never used, or for these tokens.
  std::int64_t probe_again(NamespaceId ns, std::span<const TokenId> tokens, WalkEnd& end) const;
  PrefixLock match(NamespaceId ns, std::span<const TokenId> tokens) override;
  PrefixLock extend(PrefixLock held, std::span<const TokenId> tokens) override;
  PrefixLock insert(std::span<const TokenId> tokens, PrefixLock held, OwnedPages pages,
                    const InsertOptions& options) override;
  void complete(const PrefixLock& held, const RequestEnd& end) override;
  // As complete, for a request of which this cache has a sample of the pages. REQUIRES: `places`
  // are those of the pages held.
  void complete(const PrefixLock& held, const PathPlaces& places, const RequestEnd& end);
  void want(NamespaceId ns, std::span<const TokenId> tokens, std::int64_t turn) override;
  void want(NamespaceId ns, std::span<const TokenId> tokens, const WantedTurn& turn);
  void forget_wants() override;
  OwnedPages evict(std::int64_t wanted_pages) override;
  void reset() override;
  PrefixUsage usage() const override { return usage_; }
  std::uint64_t epoch() const override { return epoch_; }
  std::optional<std::string> audit() const override;
  std::string draw() const override;

  // What tenants are sure of (radix_prefix_cache_quotas).

  // A tenant whose cached pages, locked ones included, are no more than `pages` loses none of them
  // while eviction finds others; of more it loses in everybody's order those beyond (or, for names,
  // whole namespaces). 0: it is sure of none. REQUIRES: 0 <= pages <= those of the pool.
  void set_quota(const NamespaceFamily& tenant, std::int64_t pages);
  // The same of each by its quota_pages. O(tenants + namespaces), and once O(nodes) where one of
  // them had no quota and has pages.
  void set_quotas(std::span<const TenantQuota> quotas);
  std::vector<TenantQuota> quotas() const;  // in the order in which they were first given

  // What moving pages between tiers asks of a tree (radix_prefix_cache_moves).

  // How many tokens of what is held, from the first one on, at least `hits` matches have covered.
  // O(nodes held).
  std::int64_t hot_tokens(const PrefixLock& held, std::int32_t hits) const;
  PrefixLock share(const PrefixLock& held);  // a second lock; no use of it; O(nodes held)
  // A use of what is held, but not a hit; raises its priority, as insert.
  void touch(const PrefixLock& held, const InsertOptions& options);
  // Writes the tokens of what is held. REQUIRES: out.size() == held.tokens().
  void copy_tokens(const PrefixLock& held, std::span<TokenId> out) const;
  // Locks the leaf that goes next, with all that it continues; it then goes no more, and the next
  // call locks another: what is waited for last. No use of it. nullopt if there is none.
  std::optional<ColdLeaf> try_lock_coldest();
  // Drops every page that goes on from the first `kept` tokens of `tokens` as they do, with all
  // below it. Nothing, and false, if any of them is locked. O(nodes): for pages found to be wrong.
  // REQUIRES: kept is a multiple of page_size and less than tokens.size().
  bool try_discard(NamespaceId ns, std::span<const TokenId> tokens, std::int64_t kept);

  // Pages that somebody could not take yet (radix_prefix_cache_debts).

  // From now on these pages of what is held are owed to the creditor, until it takes them or they
  // go. Holds nothing. O(nodes held). REQUIRES: creditor < PrefixCacheOptions::creditors; they are
  // held.
  void owe(const PrefixLock& held, const PageStretch& pages, std::int64_t creditor);
  // The first page of what is held, from `first_page` on, that the creditor is not owed. O(nodes
  // held). REQUIRES: it is a page of what is held, or the one behind.
  std::int64_t owed_end(const PrefixLock& held, std::int64_t first_page,
                        std::int64_t creditor) const;
  // What has been owed longest, with what is owed before it: owed no more. No use of it. nullopt if
  // nothing is owed. O(nodes held).
  std::optional<OwedText> try_take_owed(std::int64_t creditor);
  const PageDebts& debts() const noexcept { return debts_; }

  // What a namespace stands for. REQUIRES: it was opened here.
  const NamespaceDigest& digest(NamespaceId ns) const { return namespaces_.digest(ns); }
  // Ids that were given: they are 0, 1, ….
  std::int64_t namespaces() const noexcept { return namespaces_.namespaces(); }

  // What the audit of cached pages asks of a tree (radix_prefix_cache_quarantine).

  // Locks the pages of `tokens`, and with them what else lies in the node where they end. No use of
  // them, and nothing is split. nullopt if not all of them are cached, or `ns` does not stand for
  // `digest` any more. REQUIRES: tokens are whole pages; ns was opened here.
  std::optional<PrefixLock> try_lock(NamespaceId ns, const NamespaceDigest& digest,
                                     std::span<const TokenId> tokens);
  // From now on nobody finds the pages that go on from the first `kept` tokens of `tokens` as they
  // do, nor what lies below them. What nobody holds is free at once; the rest when its last lock
  // goes, and until then whoever holds it reads it as before. Appends the keys of all these pages
  // to `keys`, and those of their windowed pages. O(nodes): for pages found to be wrong.
  // REQUIRES: kept is a multiple of page_size and less than tokens.size(); ns was opened here.
  void quarantine(NamespaceId ns, std::span<const TokenId> tokens, std::int64_t kept,
                  std::vector<PageKey>& keys, std::vector<PageKey>* windowed_or_null = nullptr);
  // The same of every page of these namespaces; the keys of those that texts begin with. O(nodes).
  std::vector<PageKey> quarantine_all(std::span<const NamespaceId> namespaces,
                                      std::vector<PageKey>& keys,
                                      std::vector<PageKey>* windowed_or_null = nullptr);
  // The same of these, of all where none is named; how many pages that were. O(nodes).
  std::int64_t purge(std::span<const NamespaceFamily> namespaces);
  // Whether the pages at the end of what is held are in quarantine, or would be if published.
  bool is_quarantined(const PrefixLock& held) const;

  // What is told to those who follow the cache from outside (radix_prefix_cache_events).

  // Hands over what changed since the last call. After a loss, that is after resend_events or where
  // there was more than PrefixCacheOptions::events_pages_max, all that is found now instead:
  // kCleared, then kStored for each node, O(nodes + tokens). Nothing where no log was asked for.
  void drain_events(PrefixEventSink& sink);
  void resend_events();  // the next drain hands over everything: for who follows from now on
  // Texts of `ns` go on from a page of another namespace, or do not. Until `follow` says which page
  // that is, and while it is not found, events say nothing of them.
  void set_grafted(NamespaceId ns, bool grafted);
  // What is held ends where texts of `ns` go on. REQUIRES: ns is grafted.
  void follow(NamespaceId ns, const PrefixLock& held);
  // The same of the last page of `text`, whole pages of another namespace, be it here or not.
  void follow(NamespaceId ns, NamespaceId other, std::span<const TokenId> text);
  // nullptr: none was asked for.
  const PrefixEventLog* event_log_or_null() const noexcept { return log_or_null_.get(); }

  // What is asked of a tree to tell people what it did (radix_prefix_cache_explain).

  // Where and why a match of `tokens`, all but the last one, would end. Changes nothing. As probe.
  PrefixEndReport why_ends(NamespaceId ns, std::span<const TokenId> tokens) const;
  // The text that agrees with `tokens` longest, token by token, and what it goes on with, at most
  // `next_tokens_max` tokens. O(nodes); allocates.
  NearestText nearest(NamespaceId ns, std::span<const TokenId> tokens,
                      std::int64_t next_tokens_max) const;
  // The nodes most often matched, of these the last used, at most `nodes_max`; with a node, all
  // above it. Of each, how much the tree `twin_or_null` has too. O(nodes + texts of those listed);
  // allocates.
  TreeListing hottest_nodes(std::int64_t nodes_max,
                            const RadixPrefixCache* twin_or_null = nullptr) const;
  // The text down to a node; nullopt if there is no such node any more. O(nodes); allocates.
  std::optional<NodeText> try_text(NodeId id) const;
  // As probe, in whichever namespace stands for `digest`. O(log namespaces) more.
  TextEnd probe_by_digest(const NamespaceDigest& digest, std::span<const TokenId> tokens) const;

  const EvictionOrder& order() const noexcept { return order_; }
  std::int64_t nodes() const noexcept { return tree_.nodes().nodes(); }
  std::int64_t listed_nodes() const noexcept { return tree_.listed_nodes(); }
  std::int64_t evictable_leaves() const noexcept;
  std::int64_t locks() const noexcept { return locks_; }  // alive, of no tokens included
  std::int64_t reserved_bytes() const noexcept { return tree_.reserved_bytes(); }

 private:
  void unlock(void* node, std::int64_t tokens, NamespaceId ns) noexcept override;
  std::int64_t copy_pages(const void* node, std::int64_t tokens, std::int64_t first_page,
                          std::span<PageId> out) const override;
  std::int64_t copy_page_keys(void* node, std::int64_t tokens, std::int64_t first_page,
                              std::span<PageKey> out) override;

  NamespaceId rename_closed_or_none(const NamespaceDigest& digest, OwnedPages* evicted_or_null);
  NamespaceId first_free_or_none(NamespaceId first) const;
  // Which tenants' namespaces may lose what they have for a name (radix_prefix_cache_names): of who
  // keeps his quota, or has none; of who has more than his quota, and may keep less; of everybody.
  enum class Payers { kWhoKeepTheirQuotas, kWhoHaveMore, kEverybody };
  OwnedPages empty_least_used();
  OwnedPages empty_least_used_of(Payers payers, const RadixTree::ChildLists& lists);
  NodeSlot root_of(NamespaceId ns) const;
  NodeSlot root_above(NodeSlot slot) const;
  NodeSlot slot_of(const void* node) const noexcept;
  std::int64_t tokens_in(const RadixNode& node) const noexcept;
  EvictionKey key_of(NodeSlot slot) const noexcept;
  NodeSlot reached(const RadixTree::Walk& walk);
  NodeSlot split(NodeSlot node, std::int64_t pages);
  void stamp(RadixNode& node) const noexcept;
  void raise(NodeSlot slot, const InsertOptions& options);
  void hold(NodeSlot slot);
  PrefixLock lock_path(NodeSlot end);
  std::int64_t ordered_leaves() const noexcept;
  bool wanted_as_a_whole(NodeSlot slot) const noexcept;
  void add_evictable(NodeSlot leaf);
  void remove_evictable(NodeSlot leaf);
  void announce(NodeSlot parent, std::span<const TokenId> tokens, const OwnedPages& pages);
  OwnedPages evict_by_key(std::int64_t wanted_pages);
  OwnedPages evict_by_policy(std::int64_t wanted_pages);
  OwnedPages evict_parked_leaf(NodeSlot leaf, std::int64_t wanted_pages);
  OwnedPages evict_wanted_leaf(std::int64_t wanted_pages);
  OwnedPages evict_unordered_leaf(NodeSlot leaf, std::int64_t wanted_pages);
  std::int64_t spare_pages(NodeSlot leaf) const noexcept;  // that may go; 0 within its quota
  void place_below(std::vector<NodeSlot> roots);
  void park(NodeSlot leaf);
  NodeSlot next_parked_or_none() const;
  NodeSlot coldest_or_none();
  // These nodes and all below them that a walk may find, each before those below it.
  std::vector<NodeSlot> subtrees(std::vector<NodeSlot> tops) const;
  std::vector<NodeSlot> subtrees(std::vector<NodeSlot> tops, const RadixTree::ChildLists&) const;
  std::vector<NodeSlot> nodes_of(std::span<const NamespaceId> namespaces) const;
  std::int64_t hide(std::span<const NodeSlot> nodes);
  OwnedPages take_leaf(NodeSlot leaf);
  OwnedPages take_pages(NodeSlot leaf);
  void append_keys(NodeSlot slot, std::vector<PageKey>& keys);
  void append_windowed_keys(NodeSlot slot, std::vector<PageKey>& keys);
  NamespaceId namespace_of(NodeSlot root) const { return namespace_of_[root.index()]; }
  NodeSlot publish(NodeSlot parent, std::span<const TokenId> tokens, OwnedPages pages,
                   std::int32_t priority);
  void drop(NodeSlot leaf);
  void evict_from(NodeSlot leaf, std::span<PageId> ids);  // as take_back, of what had to go
  void mark_evicted(NodeSlot leaf, std::int64_t pages);
  std::span<const TokenId> page_of(const RadixNode& node, std::int64_t page) const;
  NodeSlot nearest_child(NodeSlot parent, std::span<const TokenId> tokens) const;
  TreeNode shown(NodeSlot slot, const NamespaceDigest& digest) const;
  std::vector<TokenId> text_to(NodeSlot slot) const;
  void take_back(NodeSlot leaf, std::span<PageId> ids);
  void log_stored(NamespaceId ns, NodeSlot slot, std::span<const TokenId> tokens);
  void log_pages(NamespaceId ns, NodeSlot slot, std::span<const TokenId> tokens);
  void log_removed(NodeSlot slot, std::int64_t pages);
  void log_removed_pages(NodeSlot slot, std::int64_t pages);
  void log_below(NodeSlot root, const RadixTree::ChildLists& lists, bool found);
  void note_found(NodeSlot slot, std::int64_t first_page, bool found);
  void hand_over_all(PrefixEventSink& sink);
  void hand_over(NodeSlot root, const RadixTree::ChildLists& lists, PrefixEventSink& sink);
  void copy_keys(NodeSlot slot, std::int64_t first_page, std::span<PageKey> out);
  void compute_keys(NodeSlot slot);
  void compute_own_keys(NodeSlot slot);
  PageKey last_key(NodeSlot slot);
  const NamespaceDigest& digest_of(NodeSlot root) const;
  std::uint64_t seed_of(NodeSlot root) const;

  std::optional<std::string> audit_locks() const;
  std::optional<std::string> audit_keys() const;
  std::optional<std::string> audit_index() const;
  std::optional<std::string> audit_quotas() const;
  std::optional<std::string> audit_debts() const;
  void draw_below(NodeSlot root, const std::vector<std::vector<NodeSlot>>& children,
                  std::string& out) const;

  PageAllocator& allocator_;
  EvictionOrder order_;
  RadixTree tree_;
  EvictionIndex index_;                 // of a keyed order; else empty
  std::unique_ptr<PagePolicy> policy_;  // of any other; else none
  WantedLeaves wanted_;                 // leaves that neither of them has
  TenantQuotas quotas_;
  ParkedLeaves parked_;  // the same: leaves of tenants within their quotas
  PageDebts debts_;
  UntouchedArray<PageId> path_;  // scratch of complete and announce, for one path
  NamespaceRegistry namespaces_;
  std::vector<NodeSlot> roots_;               // by namespace
  UntouchedArray<NamespaceId> namespace_of_;  // by node, of roots
  PageKeyHasher key_hasher_;
  std::unique_ptr<PrefixEventLog> log_or_null_;  // with one, every page that is found has its key
  GraftPoints grafts_;                           // for it
  std::unique_ptr<EvictedMarks> marks_or_null_;
  const Clock* marks_clock_ = nullptr;  // of marks
  PrefixUsage usage_;
  std::uint64_t epoch_ = 0;
  std::int64_t now_ = 0;    // operations that used something: the time of uses
  std::int64_t aging_ = 0;  // the highest first part of a key that was evicted
  std::int64_t locks_ = 0;
};

}  // namespace stemma
