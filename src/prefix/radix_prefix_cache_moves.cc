// What moving pages between tiers asks of a tree: going on from a lock, what is hot, what is cold,
// and forgetting what was found to be wrong.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

PrefixLock RadixPrefixCache::extend(PrefixLock held, std::span<const TokenId> tokens) {
  STEMMA_CHECK(cache_of(held) == this, "a lock is extended by the cache it came from");
  NodeSlot node = slot_of(node_of(held));
  STEMMA_CHECK_EQ(held.tokens(), tree_.node(node).end_pages() * page_size());
  const auto held_tokens = static_cast<std::size_t>(held.tokens());
  STEMMA_CHECK_LE(held_tokens, tokens.size());
  RadixTree::Walk walk(tree_, node, tokens.subspan(held_tokens));
  if (!walk.next()) return held;
  ++now_;
  do {
    node = reached(walk);
  } while (walk.next());
  const std::int64_t end = held.tokens() + walk.total_pages() * page_size();
  const NamespaceId ns = held.namespace_id();
  take_hold(held);
  return make_lock(*this, &tree_.node(node), end, ns);
}

// Who matched a node matched all above it, so the hits of a path never grow towards its end.
std::int64_t RadixPrefixCache::hot_tokens(const PrefixLock& held, std::int32_t hits) const {
  STEMMA_CHECK(cache_of(held) == this, "only what this cache holds has hits here");
  NodeSlot at = slot_of(node_of(held));
  while (!tree_.node(at).is_root() && tree_.node(at).hits < hits) at = tree_.node(at).parent;
  return tree_.node(at).end_pages() * page_size();
}

// What a leaf was used for last it hands up when it goes: so the end of what is held says it all.
void RadixPrefixCache::touch(const PrefixLock& held, const InsertOptions& options) {
  STEMMA_CHECK(cache_of(held) == this, "only what this cache holds is used here");
  ++now_;
  raise(slot_of(node_of(held)), options);
}

void RadixPrefixCache::copy_tokens(const PrefixLock& held, std::span<TokenId> out) const {
  STEMMA_CHECK(cache_of(held) == this, "only what this cache holds has tokens here");
  STEMMA_CHECK_EQ(static_cast<std::int64_t>(out.size()), held.tokens());
  NodeSlot at = slot_of(node_of(held));
  for (; !tree_.node(at).is_root(); at = tree_.node(at).parent) {
    const RadixNode& here = tree_.node(at);
    std::int64_t offset = here.start_pages * page_size();
    tree_.arena().for_each_run(here.chain, [&](UnitId first, std::int64_t pages) {
      const auto tokens = tree_.arena().tokens_of(first, pages);
      std::copy(tokens.begin(), tokens.end(), out.begin() + offset);
      offset += pages * page_size();
    });
  }
}

std::optional<ColdLeaf> RadixPrefixCache::try_lock_coldest() {
  const NodeSlot leaf = coldest_or_none();
  if (!leaf.valid()) return std::nullopt;
  return ColdLeaf{lock_path(leaf), tree_.nodes().history(leaf).id, tokens_in(tree_.node(leaf))};
}

PrefixLock RadixPrefixCache::share(const PrefixLock& held) {
  STEMMA_CHECK(cache_of(held) == this, "a lock is shared within its cache");
  return lock_path(slot_of(node_of(held)));
}

// One more lock on a node and all above it.
PrefixLock RadixPrefixCache::lock_path(NodeSlot end) {
  NodeSlot at = end;
  for (; !tree_.node(at).is_root(); at = tree_.node(at).parent) hold(at);
  hold(at);
  ++locks_;
  return make_lock(*this, &tree_.node(end), tree_.node(end).end_pages() * page_size(),
                   namespace_of(at));
}

bool RadixPrefixCache::try_discard(NamespaceId ns, std::span<const TokenId> tokens,
                                   std::int64_t kept) {
  STEMMA_CHECK_EQ(kept % page_size(), 0);
  STEMMA_CHECK_LT(kept, static_cast<std::int64_t>(tokens.size()));
  const std::int64_t kept_pages = kept / page_size();
  RadixTree::Walk walk(tree_, root_of(ns), tokens);
  while (walk.total_pages() <= kept_pages) {
    if (!walk.next()) return true;  // it is not here
  }
  NodeSlot node = walk.node();
  if (tree_.node(node).lock_count != 0) return false;
  const std::int64_t above = kept_pages - tree_.node(node).start_pages;
  if (above > 0) split(node, above);
  // What nobody holds is held by nobody below either (I3).
  const std::vector<NodeSlot> doomed = subtrees({node});
  for (auto at = doomed.rbegin(); at != doomed.rend(); ++at) take_leaf(*at).reset();
  ++epoch_;
  return true;
}

std::vector<NodeSlot> RadixPrefixCache::subtrees(std::vector<NodeSlot> tops) const {
  return subtrees(std::move(tops), tree_.child_lists());
}

std::vector<NodeSlot> RadixPrefixCache::subtrees(std::vector<NodeSlot> tops,
                                                 const RadixTree::ChildLists& lists) const {
  std::vector<NodeSlot> found = std::move(tops);
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (NodeSlot child = lists.first_child[found[i].index()]; child.valid();
         child = lists.next_sibling[child.index()]) {
      if (!tree_.node(child).unlinked) found.push_back(child);
    }
  }
  return found;
}

// A leaf that nobody holds, whole.
OwnedPages RadixPrefixCache::take_leaf(NodeSlot leaf) {
  remove_evictable(leaf);
  usage_.evictable_tokens -= tokens_in(tree_.node(leaf));
  return take_pages(leaf);
}

// Of a leaf that is in no index and in no count of tokens any more; the leaf goes with them.
OwnedPages RadixPrefixCache::take_pages(NodeSlot leaf) {
  std::vector<PageId> ids(static_cast<std::size_t>(tree_.node(leaf).chain.pages));
  take_back(leaf, ids);
  if (policy_ != nullptr) policy_->evicted(ids);
  drop(leaf);
  return allocator_.adopt(ids);
}

}  // namespace stemma
