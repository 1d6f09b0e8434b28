// Time is a count of the operations that used something. A match stamps every node it covers; an
// insert stamps the node its lock ended in and every node from there on, which keeps it O(new
// tokens). The nodes above are no less used, but a stamp is read only while its node is a leaf: so
// a leaf that is evicted hands its stamp and its priority up to its parent. When a node's turn
// comes, its stamp is the last use of anything that was ever below it.
//
// The index holds exactly the leaves with a lock count of 0. Nothing in it changes its key: what is
// used is locked, and what is locked is not in it. Where a PagePolicy decides, the same leaves are
// in it instead. Leaves that waiting requests want as a whole are in neither, but in wanted_; those
// that were spared for their tenant's quota are in parked_.
#include "prefix/radix_prefix_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/machine_entropy.h"
#include "prefix/page_policy_factory.h"

namespace stemma {

namespace {

RadixTree::Limits limits_of(const PrefixCacheOptions& options) {
  RadixTree::Limits limits;
  limits.pages_max = options.allocator.total_pages();
  limits.roots_max = options.namespaces_max;
  limits.page_size = options.page_size;
  limits.hash_bits = options.lookup_hash_bits;
  limits.hash_seed = options.hash_seed.has_value() ? *options.hash_seed : machine_entropy();
  return limits;
}

std::int64_t nodes_max_of(const PrefixCacheOptions& options) {
  return options.allocator.total_pages() + options.namespaces_max;
}

}  // namespace

Result<std::unique_ptr<RadixPrefixCache>> RadixPrefixCache::open(
    const PrefixCacheOptions& options) {
  STEMMA_RETURN_IF_ERROR(check_options(options));
  STEMMA_ASSIGN_OR_RETURN(const EvictionOrder order,
                          EvictionOrder::make(options.eviction, options.slru_protected_hits));
  return std::make_unique<RadixPrefixCache>(options, order);
}

RadixPrefixCache::RadixPrefixCache(const PrefixCacheOptions& options, EvictionOrder order)
    : allocator_(options.allocator),
      order_(order),
      tree_(limits_of(options)),
      index_(order.keyed() ? nodes_max_of(options) : 0),
      policy_(make_page_policy(order, options, nodes_max_of(options))),
      wanted_(nodes_max_of(options)),
      quotas_(nodes_max_of(options)),
      parked_(nodes_max_of(options), quotas_),
      debts_(nodes_max_of(options), options.creditors),
      path_(order.keyed() ? 0 : static_cast<std::size_t>(options.allocator.total_pages())),
      namespaces_(options.namespaces_max),
      namespace_of_(static_cast<std::size_t>(nodes_max_of(options)), Backing::kSmall),
      log_or_null_(
          options.events_pages_max == 0
              ? nullptr
              : std::make_unique<PrefixEventLog>(options.events_pages_max, options.page_size)),
      marks_or_null_(options.evicted_marks == 0
                         ? nullptr
                         : std::make_unique<EvictedMarks>(options.evicted_marks)),
      marks_clock_(options.clock) {
  STEMMA_CHECK(marks_or_null_ == nullptr || marks_clock_ != nullptr, "marks have times");
}

RadixPrefixCache::~RadixPrefixCache() {
  reset();
}

PrefixProbe RadixPrefixCache::probe(NamespaceId ns, std::span<const TokenId> tokens) const {
  RadixTree::Walk walk(tree_, root_of(ns), tokens);
  std::int64_t evictable_pages = 0;
  while (walk.next()) {
    if (tree_.node(walk.node()).lock_count == 0) evictable_pages += walk.pages();
  }
  return {walk.total_pages() * page_size(), evictable_pages * page_size()};
}

PrefixProbe RadixPrefixCache::probe(NamespaceId ns, std::span<const TokenId> tokens,
                                    std::span<PageId> out) const {
  RadixTree::Walk walk(tree_, root_of(ns), tokens);
  std::int64_t evictable_pages = 0;
  while (walk.next()) {
    const RadixNode& node = tree_.node(walk.node());
    const auto pages = static_cast<std::size_t>(walk.pages());
    tree_.arena().copy_ids(node.chain, 0, out.first(pages));
    out = out.subspan(pages);
    if (node.lock_count == 0) evictable_pages += walk.pages();
  }
  return {walk.total_pages() * page_size(), evictable_pages * page_size()};
}

std::int64_t RadixPrefixCache::probe_again(NamespaceId ns, std::span<const TokenId> tokens,
                                           WalkEnd& end) const {
  tree_.walk_again(root_of(ns), tokens, end);
  return end.total_pages * page_size();
}

PrefixLock RadixPrefixCache::match(NamespaceId ns, std::span<const TokenId> tokens) {
  ++now_;
  NodeSlot node = root_of(ns);
  hold(node);
  RadixTree::Walk walk(tree_, node, tokens);
  while (walk.next()) {
    node = reached(walk);
    RadixNode& covered = tree_.node(node);
    if (covered.hits < std::numeric_limits<std::int32_t>::max()) ++covered.hits;
  }
  ++locks_;
  return make_lock(*this, &tree_.node(node), walk.total_pages() * page_size(), ns);
}

PrefixLock RadixPrefixCache::insert(std::span<const TokenId> tokens, PrefixLock held,
                                    OwnedPages pages, const InsertOptions& options) {
  STEMMA_CHECK(cache_of(held) == this, "an insert continues a lock of the same cache");
  const NamespaceId ns = held.namespace_id();
  NodeSlot node = slot_of(node_of(held));
  STEMMA_CHECK_EQ(held.tokens(), tree_.node(node).end_pages() * page_size());
  STEMMA_CHECK_EQ(static_cast<std::int64_t>(tokens.size()),
                  held.tokens() + pages.pages() * page_size());
  ++now_;
  auto left = tokens.subspan(static_cast<std::size_t>(held.tokens()));
  take_hold(held);
  raise(node, options);
  RadixTree::Walk walk(tree_, node, left);
  while (walk.next()) {
    node = reached(walk);
    raise(node, options);
  }
  if (walk.total_pages() != 0) {
    pages.take_front(walk.total_pages()).reset();  // duplicates
    left = left.subspan(static_cast<std::size_t>(walk.total_pages() * page_size()));
  }
  if (!pages.empty()) {
    node = publish(node, left, std::move(pages), options.priority);
    if (log_or_null_ != nullptr) log_stored(ns, node, left);
  }
  return make_lock(*this, &tree_.node(node), static_cast<std::int64_t>(tokens.size()), ns);
}

void RadixPrefixCache::complete(const PrefixLock& held, const RequestEnd& end) {
  complete(held, {.text_pages = held.tokens() / page_size()}, end);
}

void RadixPrefixCache::complete(const PrefixLock& held, const PathPlaces& places,
                                const RequestEnd& end) {
  STEMMA_CHECK(cache_of(held) == this, "a request ends in the cache that it used");
  if (policy_ == nullptr) return;
  const auto pages = static_cast<std::size_t>(held.tokens() / page_size());
  const std::span<PageId> path(path_.data(), pages);
  STEMMA_CHECK(places.sampled.empty() || places.sampled.size() == pages, "each page has a place");
  copy_pages(node_of(held), held.tokens(), 0, path);
  policy_->completed(path, places, end);
}

void RadixPrefixCache::reset() {
  STEMMA_CHECK(locks_ == 0, "nothing is dropped while a lock holds it (I3)");
  auto log = std::move(log_or_null_);  // one event says it all
  evict(tree_.arena().used_pages()).reset();
  STEMMA_CHECK_EQ(tree_.arena().used_pages(), 0);
  log_or_null_ = std::move(log);
  grafts_.lose_all();
  if (log_or_null_ != nullptr) log_or_null_->add_cleared();
  ++epoch_;
}

// Moves the hold on to where a step of a walk ended, cutting the node there if it goes on.
NodeSlot RadixPrefixCache::reached(const RadixTree::Walk& walk) {
  NodeSlot node = walk.node();
  if (!walk.covers_node()) node = split(node, walk.pages());
  stamp(tree_.node(node));
  hold(node);
  return node;
}

// Cuts a node after its first `pages`; returns the new node, which has these.
NodeSlot RadixPrefixCache::split(NodeSlot node, std::int64_t pages) {
  const NodeSlot upper = tree_.split(node, pages);
  wanted_.split(node, upper, static_cast<std::int32_t>(pages));
  if (quotas_.any()) quotas_.place(upper, node);
  if (debts_.any()) debts_.split(node, upper, pages);
  return upper;
}

void RadixPrefixCache::stamp(RadixNode& node) const noexcept {
  node.last_use = now_;
  node.aging = aging_;
}

void RadixPrefixCache::raise(NodeSlot slot, const InsertOptions& options) {
  RadixNode& used = tree_.node(slot);
  stamp(used);
  if (!used.is_root()) used.priority = std::max(used.priority, options.priority);
}

// Adds one to the locks of this node alone. The caller holds the nodes above it.
void RadixPrefixCache::hold(NodeSlot slot) {
  RadixNode& node = tree_.node(slot);
  if (node.lock_count++ != 0 || node.is_root()) return;
  usage_.evictable_tokens -= tokens_in(node);
  usage_.locked_tokens += tokens_in(node);
  if (node.children == 0) remove_evictable(slot);
}

void RadixPrefixCache::add_evictable(NodeSlot leaf) {
  const NodeId id = tree_.nodes().history(leaf).id;
  if (wanted_as_a_whole(leaf)) {
    wanted_.add_leaf(leaf, id);
  } else if (quotas_.any() && parked_.try_return(leaf, tree_.node(leaf).last_use)) {
    return;
  } else if (policy_ == nullptr) {
    index_.push(leaf, key_of(leaf), id);
  } else {
    policy_->add_leaf({leaf, id, tree_.arena().last_id(tree_.node(leaf).chain)});
  }
}

void RadixPrefixCache::remove_evictable(NodeSlot leaf) {
  if (wanted_.contains(leaf)) {
    wanted_.remove_leaf(leaf);
  } else if (parked_.contains(leaf)) {
    parked_.remove(leaf);
  } else if (policy_ == nullptr) {
    index_.remove(leaf);
  } else {
    policy_->remove_leaf(leaf);
  }
}

// Tells the policy of pages that are about to lie below `parent`.
void RadixPrefixCache::announce(NodeSlot parent, std::span<const TokenId> tokens,
                                const OwnedPages& pages) {
  if (policy_ == nullptr) return;
  const std::span<PageId> ids(path_.data(), static_cast<std::size_t>(pages.pages()));
  pages.copy_to(ids);
  const RadixNode& above = tree_.node(parent);
  PagePolicy::Published what;
  what.tokens = tokens;
  what.pages = ids;
  if (above.is_root()) {
    what.namespace_seed = seed_of(parent);
  } else {
    what.above = tree_.arena().last_id(above.chain);
  }
  policy_->published(what);
}

// Puts new pages below `parent`, which the caller holds; returns the node they are in, held.
NodeSlot RadixPrefixCache::publish(NodeSlot parent, std::span<const TokenId> tokens,
                                   OwnedPages pages, std::int32_t priority) {
  ++epoch_;
  usage_.locked_tokens += static_cast<std::int64_t>(tokens.size());
  announce(parent, tokens, pages);
  if (marks_or_null_ != nullptr) {  // behind the first page nothing can be marked yet
    const auto first = tokens.first(static_cast<std::size_t>(page_size()));
    marks_or_null_->forget(tree_.nodes().history(parent).id, first);
  }
  if (quotas_.any()) parked_.recount(quotas_.count(parent, pages.pages()));
  const RadixNode& above = tree_.node(parent);
  if (above.is_root()) namespaces_.note_used(namespace_of(parent));
  if (above.children == 0 && above.lock_count == 1 && !above.is_root()) {
    tree_.grow(parent, tokens, std::move(pages));
    return parent;
  }
  const NodeSlot leaf = tree_.add_leaf(parent, tokens, std::move(pages), now_);
  if (quotas_.any()) quotas_.place(leaf, parent);
  stamp(tree_.node(leaf));
  tree_.node(leaf).lock_count = 1;
  tree_.node(leaf).priority = priority;
  return leaf;
}

// Removes a leaf whose pages are gone and which waits no more. Its parent inherits its last use,
// with the aging of that time, and its priority.
void RadixPrefixCache::drop(NodeSlot leaf) {
  const RadixNode gone = tree_.node(leaf);
  tree_.remove(leaf);
  wanted_.forget(leaf);
  if (quotas_.any()) parked_.forget(leaf);
  RadixNode& parent = tree_.node(gone.parent);
  if (parent.is_root()) {
    if (parent.children == 0) namespaces_.note_empty(namespace_of(gone.parent));
    return;
  }
  parent.last_use = std::max(parent.last_use, gone.last_use);
  parent.aging = std::max(parent.aging, gone.aging);
  parent.priority = std::max(parent.priority, gone.priority);
  if (parent.children == 0 && parent.lock_count == 0) add_evictable(gone.parent);
}

void RadixPrefixCache::unlock(void* node, std::int64_t tokens, NamespaceId) noexcept {
  const NodeSlot slot = slot_of(node);
  STEMMA_DCHECK(tree_.node(slot).end_pages() * page_size() == tokens,
                "a lock ends where its node ends");
  static_cast<void>(tokens);
  NodeSlot above;
  for (NodeSlot at = slot; at.valid(); at = above) {
    RadixNode& held = tree_.node(at);
    above = held.parent;
    STEMMA_CHECK(held.lock_count > 0, "a lock is released once (I3)");
    if (--held.lock_count != 0 || held.is_root()) continue;
    usage_.locked_tokens -= tokens_in(held);
    if (held.unlinked) {  // nothing is below it: all of that was held from here on (I3)
      take_pages(at).reset();
      continue;
    }
    usage_.evictable_tokens += tokens_in(held);
    if (held.children == 0) add_evictable(at);
  }
  --locks_;
}

std::int64_t RadixPrefixCache::copy_pages(const void* node, std::int64_t tokens,
                                          std::int64_t first_page, std::span<PageId> out) const {
  const std::int64_t pages = tokens / page_size() - first_page;
  STEMMA_CHECK(first_page >= 0 && pages >= 0, "only held pages are copied (I2)");
  STEMMA_CHECK_GE(static_cast<std::int64_t>(out.size()), pages);
  for (NodeSlot at = slot_of(node); !tree_.node(at).is_root(); at = tree_.node(at).parent) {
    const RadixNode& here = tree_.node(at);
    if (here.end_pages() <= first_page) break;
    const std::int64_t skip = std::max<std::int64_t>(first_page - here.start_pages, 0);
    const auto offset = static_cast<std::size_t>(here.start_pages + skip - first_page);
    const auto count = static_cast<std::size_t>(here.chain.pages - skip);
    tree_.arena().copy_ids(here.chain, skip, out.subspan(offset, count));
  }
  return pages;
}

std::int64_t RadixPrefixCache::copy_page_keys(void* node, std::int64_t tokens,
                                              std::int64_t first_page, std::span<PageKey> out) {
  const std::int64_t pages = tokens / page_size() - first_page;
  STEMMA_CHECK(first_page >= 0 && pages >= 0, "only held pages have keys");
  STEMMA_CHECK_GE(static_cast<std::int64_t>(out.size()), pages);
  compute_keys(slot_of(node));
  for (NodeSlot at = slot_of(node); !tree_.node(at).is_root(); at = tree_.node(at).parent) {
    const RadixNode& here = tree_.node(at);
    std::int64_t page = here.start_pages - first_page;
    tree_.arena().for_each_run(here.chain, [&](UnitId first, std::int64_t run_pages) {
      for (const PageKey& key : tree_.arena().keys_of(first, run_pages)) {
        if (page >= 0) out[static_cast<std::size_t>(page)] = key;
        ++page;
      }
    });
  }
  return pages;
}

// Keys of every page from the root to `slot` that does not have one yet, in order: each needs its
// predecessor's.
void RadixPrefixCache::compute_keys(NodeSlot slot) {
  std::vector<NodeSlot> path;
  for (NodeSlot at = slot; !tree_.node(at).is_root(); at = tree_.node(at).parent) {
    if (tree_.node(at).keyed_pages < tree_.node(at).chain.pages) path.push_back(at);
  }
  for (auto at = path.rbegin(); at != path.rend(); ++at) compute_own_keys(*at);
}

// Of one node. REQUIRES: every page above it has its key.
void RadixPrefixCache::compute_own_keys(NodeSlot slot) {
  RadixNode& node = tree_.node(slot);
  const auto size = static_cast<std::size_t>(page_size());
  PageKey key = node.keyed_pages == 0 ? last_key(node.parent) : PageKey();
  std::int64_t end = 0;
  tree_.arena().for_each_run(node.chain, [&](UnitId first, std::int64_t run_pages) {
    const std::int64_t start = std::exchange(end, end + run_pages);
    if (end < node.keyed_pages) return;
    const auto keys = tree_.arena().keys_of(first, run_pages);
    const auto tokens = tree_.arena().tokens_of(first, run_pages);
    auto page = static_cast<std::size_t>(std::max<std::int64_t>(node.keyed_pages - start, 0));
    if (page > 0) key = keys[page - 1];
    for (; page < keys.size(); ++page) {
      key = keys[page] = key_hasher_.next(key, tokens.subspan(page * size, size));
    }
  });
  node.keyed_pages = node.chain.pages;
}

// The key that the first page below `slot` follows. REQUIRES: all its pages have keys.
PageKey RadixPrefixCache::last_key(NodeSlot slot) {
  const RadixNode& node = tree_.node(slot);
  if (!node.is_root()) {
    std::int64_t last_pages = 0;
    tree_.arena().for_each_run(node.chain, [&](UnitId, std::int64_t pages) { last_pages = pages; });
    return tree_.arena().keys_of(node.chain.last, last_pages).back();
  }
  return PageKeyHasher::root(digest_of(slot));
}

// The first bytes of the digest: equal for equal namespaces, and for hardly any others.
std::uint64_t RadixPrefixCache::seed_of(NodeSlot root) const {
  std::uint64_t seed = 0;
  std::memcpy(&seed, digest_of(root).bytes.data(), sizeof seed);
  return seed;
}

NodeSlot RadixPrefixCache::slot_of(const void* node) const noexcept {
  return tree_.nodes().slot_of(static_cast<const RadixNode*>(node));
}

std::int64_t RadixPrefixCache::tokens_in(const RadixNode& node) const noexcept {
  return node.chain.pages * page_size();
}

EvictionKey RadixPrefixCache::key_of(NodeSlot slot) const noexcept {
  const RadixNode& node = tree_.node(slot);
  return order_.key({.last_use = node.last_use,
                     .created = tree_.nodes().history(slot).created,
                     .hits = node.hits,
                     .priority = node.priority,
                     .aging = node.aging});
}

}  // namespace stemma
