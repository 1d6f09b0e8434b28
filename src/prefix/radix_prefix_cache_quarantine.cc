// What the audit of cached pages asks of a tree: holding pages without using them, and taking pages
// that are wrong out of everybody's sight.
//
// Nodes in quarantine are in no walk's way: their entries in the table of children are gone, and
// what is published below them gets none. So the same tokens can be published again beside them.
// Each of them is locked, and with it all above it; when its last lock goes, so does the node. It
// is never a leaf that eviction could take.
#include <vector>

#include "base/check.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

std::optional<PrefixLock> RadixPrefixCache::try_lock(NamespaceId ns, const NamespaceDigest& digest,
                                                     std::span<const TokenId> tokens) {
  STEMMA_CHECK_EQ(static_cast<std::int64_t>(tokens.size()) % page_size(), 0);
  if (namespaces_.digest(ns) != digest) return std::nullopt;
  RadixTree::Walk walk(tree_, root_of(ns), tokens);
  while (walk.next()) {
  }
  if (walk.total_pages() * page_size() < static_cast<std::int64_t>(tokens.size())) {
    return std::nullopt;
  }
  return lock_path(walk.node());
}

void RadixPrefixCache::quarantine(NamespaceId ns, std::span<const TokenId> tokens,
                                  std::int64_t kept, std::vector<PageKey>& keys,
                                  std::vector<PageKey>* windowed_or_null) {
  STEMMA_CHECK_EQ(kept % page_size(), 0);
  STEMMA_CHECK_LT(kept, static_cast<std::int64_t>(tokens.size()));
  const std::int64_t kept_pages = kept / page_size();
  RadixTree::Walk walk(tree_, root_of(ns), tokens);
  while (walk.total_pages() <= kept_pages) {
    if (!walk.next()) return;  // it is not here
  }
  const NodeSlot top = walk.node();
  const std::int64_t above = kept_pages - tree_.node(top).start_pages;
  if (above > 0) split(top, above);
  const std::vector<NodeSlot> wrong = subtrees({top});
  for (const NodeSlot slot : wrong) {
    append_keys(slot, keys);
    if (windowed_or_null != nullptr) append_windowed_keys(slot, *windowed_or_null);
  }
  hide(wrong);
}

std::vector<PageKey> RadixPrefixCache::quarantine_all(std::span<const NamespaceId> namespaces,
                                                      std::vector<PageKey>& keys,
                                                      std::vector<PageKey>* windowed_or_null) {
  const std::vector<NodeSlot> wrong = nodes_of(namespaces);
  std::vector<PageKey> first_keys;
  for (const NodeSlot slot : wrong) {
    const std::size_t before = keys.size();
    append_keys(slot, keys);
    if (windowed_or_null != nullptr) append_windowed_keys(slot, *windowed_or_null);
    if (tree_.node(slot).start_pages == 0) first_keys.push_back(keys[before]);
  }
  hide(wrong);
  return first_keys;
}

std::int64_t RadixPrefixCache::purge(std::span<const NamespaceFamily> namespaces) {
  std::vector<NamespaceId> meant;
  for (std::int32_t ns = 0; ns < std::ssize(roots_); ++ns) {
    if (is_of_any(namespaces_.digest(NamespaceId(ns)), namespaces)) meant.emplace_back(ns);
  }
  return hide(nodes_of(meant));
}

// All that is found in these namespaces, each node before those below it.
std::vector<NodeSlot> RadixPrefixCache::nodes_of(std::span<const NamespaceId> namespaces) const {
  std::vector<NodeSlot> nodes;
  for (const NamespaceId ns : namespaces) {
    if (tree_.node(root_of(ns)).children > 0) nodes.push_back(root_of(ns));
  }
  if (nodes.empty()) return nodes;
  nodes = subtrees(std::move(nodes));
  std::erase_if(nodes, [this](NodeSlot slot) { return tree_.node(slot).is_root(); });
  return nodes;
}

// Nodes of which each comes before those below it, and with all that lies below it. Their pages.
std::int64_t RadixPrefixCache::hide(std::span<const NodeSlot> nodes) {
  if (nodes.empty()) return 0;
  std::int64_t pages = 0;
  for (auto slot = nodes.rbegin(); slot != nodes.rend(); ++slot) {
    pages += tree_.node(*slot).chain.pages;
    if (tree_.node(*slot).lock_count == 0) {
      take_leaf(*slot).reset();
    } else {
      if (log_or_null_ != nullptr) log_removed(*slot, tree_.node(*slot).chain.pages);
      if (debts_.any()) debts_.cut(*slot, 0);
      tree_.unlink(*slot);
    }
  }
  ++epoch_;
  return pages;
}

bool RadixPrefixCache::is_quarantined(const PrefixLock& held) const {
  STEMMA_CHECK(cache_of(held) == this, "a lock is known to the cache it came from");
  return tree_.node(slot_of(node_of(held))).unlinked;
}

void RadixPrefixCache::append_keys(NodeSlot slot, std::vector<PageKey>& keys) {
  compute_keys(slot);
  tree_.arena().for_each_run(tree_.node(slot).chain, [&](UnitId first, std::int64_t pages) {
    const auto of_run = tree_.arena().keys_of(first, pages);
    keys.insert(keys.end(), of_run.begin(), of_run.end());
  });
}

// Of what may hang on its pages. REQUIRES: these have their keys.
void RadixPrefixCache::append_windowed_keys(NodeSlot slot, std::vector<PageKey>& keys) {
  const auto size = static_cast<std::size_t>(page_size());
  PageKey parent = last_key(tree_.node(slot).parent);
  tree_.arena().for_each_run(tree_.node(slot).chain, [&](UnitId first, std::int64_t pages) {
    auto tokens = tree_.arena().tokens_of(first, pages);
    for (const PageKey& key : tree_.arena().keys_of(first, pages)) {
      keys.push_back(key_hasher_.next(key_hasher_.windowed_parent(parent), tokens.first(size)));
      tokens = tokens.subspan(size);
      parent = key;
    }
  });
}

}  // namespace stemma
