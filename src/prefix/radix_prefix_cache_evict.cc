// What leaves the cache: first what nobody waits for, by the order or the policy, then what tenants
// within their quotas have, then what waiting requests want.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

OwnedPages RadixPrefixCache::evict(std::int64_t wanted_pages) {
  STEMMA_CHECK_GE(wanted_pages, 0);
  OwnedPages out;
  while (out.pages() < wanted_pages && evictable_leaves() > 0) {
    const std::int64_t left = wanted_pages - out.pages();
    const NodeSlot parked = next_parked_or_none();
    if (parked.valid()) {
      out.append(evict_parked_leaf(parked, left));
    } else if (ordered_leaves() == 0) {
      out.append(evict_wanted_leaf(left));
    } else {
      out.append(policy_ == nullptr ? evict_by_key(left) : evict_by_policy(left));
    }
  }
  if (!out.empty()) ++epoch_;
  return out;
}

// Pages of the leaf of the last turn; as soon as another leaf is bare that nobody waits for, that
// one is next.
OwnedPages RadixPrefixCache::evict_wanted_leaf(std::int64_t wanted_pages) {
  return evict_unordered_leaf(wanted_.last(), wanted_pages);
}

// Pages of a leaf that is neither in the index nor with the policy.
OwnedPages RadixPrefixCache::evict_unordered_leaf(NodeSlot leaf, std::int64_t wanted_pages) {
  std::array<PageId, 256> gathered;
  const RadixNode& node = tree_.node(leaf);
  const auto pages = static_cast<std::size_t>(std::min<std::int64_t>(
      {wanted_pages, node.chain.pages, static_cast<std::int64_t>(gathered.size())}));
  const std::span<PageId> ids = std::span(gathered).first(pages);
  evict_from(leaf, ids);
  if (policy_ != nullptr) policy_->evicted(ids);
  usage_.evictable_tokens -= static_cast<std::int64_t>(pages) * page_size();
  if (node.chain.pages == 0) {
    remove_evictable(leaf);
    drop(leaf);
  }
  return allocator_.adopt(ids);
}

void RadixPrefixCache::want(NamespaceId ns, std::span<const TokenId> tokens, std::int64_t turn) {
  want(ns, tokens, WantedTurn{.turn = turn});
}

void RadixPrefixCache::want(NamespaceId ns, std::span<const TokenId> tokens,
                            const WantedTurn& turn) {
  RadixTree::Walk walk(tree_, root_of(ns), tokens);
  while (walk.next()) {
    const NodeSlot slot = walk.node();
    const RadixNode& node = tree_.node(slot);
    const bool leaf = node.children == 0 && node.lock_count == 0;
    if (leaf) remove_evictable(slot);
    wanted_.want(slot, static_cast<std::int32_t>(walk.pages()), turn);
    if (leaf) add_evictable(slot);
  }
}

void RadixPrefixCache::forget_wants() {
  wanted_.lapse();
  while (wanted_.leaves() > 0) {
    const NodeSlot leaf = wanted_.last();
    wanted_.remove_leaf(leaf);
    add_evictable(leaf);
  }
}

bool RadixPrefixCache::wanted_as_a_whole(NodeSlot slot) const noexcept {
  return wanted_.wanted_pages(slot) >= tree_.node(slot).chain.pages;
}

// In a large tree a leaf costs what its cache misses cost, about ten of them. So they are begun
// early: a node's when it rises near the top of the index, those it leads to when it rises further.
// Ids are gathered from many leaves and handed over together: each lies in another corner of the
// allocator, and one loop over all of them waits for memory once, not once a leaf.
OwnedPages RadixPrefixCache::evict_by_key(std::int64_t wanted_pages) {
  std::array<PageId, 256> gathered;
  std::size_t count = 0;
  OwnedPages out;
  for (std::int64_t i = 0; i < index_.near_top_leaves(); ++i) {
    tree_.prefetch_node(index_.near_top(i));
  }
  while (wanted_pages > 0 && !index_.empty()) {
    if (index_.risen(3).valid()) tree_.prefetch_node(index_.risen(3));
    if (index_.risen(2).valid()) tree_.prefetch_removal(index_.risen(2));
    const NodeSlot leaf = index_.top();
    const std::int64_t spare = spare_pages(leaf);
    if (spare == 0) {
      park(leaf);
      continue;
    }
    aging_ = std::max(aging_, index_.key(leaf).first);
    const RadixNode& node = tree_.node(leaf);
    const auto pages = static_cast<std::size_t>(
        std::min<std::int64_t>({wanted_pages, spare, static_cast<std::int64_t>(gathered.size())}));
    if (count + pages > gathered.size()) {
      out.append(allocator_.adopt(std::span(gathered).first(count)));
      count = 0;
    }
    evict_from(leaf, std::span(gathered).subspan(count, pages));
    count += pages;
    wanted_pages -= static_cast<std::int64_t>(pages);
    usage_.evictable_tokens -= static_cast<std::int64_t>(pages) * page_size();
    if (node.chain.pages == 0) {
      index_.remove(leaf);
      drop(leaf);
    } else if (wanted_as_a_whole(leaf)) {
      index_.remove(leaf);
      add_evictable(leaf);
    }
  }
  out.append(allocator_.adopt(std::span(gathered).first(count)));
  return out;
}

// As long as the pages at the end of a leaf are alike to the policy, they go together; then it is
// ranked anew by what has become its last page.
OwnedPages RadixPrefixCache::evict_by_policy(std::int64_t wanted_pages) {
  std::array<PageId, 256> gathered;
  OwnedPages out;
  policy_->begin_eviction();
  while (wanted_pages > 0 && policy_->leaves() > 0) {
    const PagePolicy::Victim victim = policy_->next_victim();
    const std::int64_t spare = spare_pages(victim.slot);
    if (spare == 0) {
      park(victim.slot);
      continue;
    }
    const RadixNode& node = tree_.node(victim.slot);
    const auto pages = static_cast<std::size_t>(std::min<std::int64_t>(
        {wanted_pages, victim.pages_max, spare, static_cast<std::int64_t>(gathered.size())}));
    const std::span<PageId> ids = std::span(gathered).first(pages);
    policy_->remove_leaf(victim.slot);
    evict_from(victim.slot, ids);
    policy_->evicted(ids);
    out.append(allocator_.adopt(ids));
    wanted_pages -= static_cast<std::int64_t>(pages);
    usage_.evictable_tokens -= static_cast<std::int64_t>(pages) * page_size();
    if (node.chain.pages == 0) {
      drop(victim.slot);
    } else {
      add_evictable(victim.slot);
    }
  }
  return out;
}

void RadixPrefixCache::evict_from(NodeSlot leaf, std::span<PageId> ids) {
  if (marks_or_null_ != nullptr) mark_evicted(leaf, static_cast<std::int64_t>(ids.size()));
  take_back(leaf, ids);
}

void RadixPrefixCache::take_back(NodeSlot leaf, std::span<PageId> ids) {
  if (log_or_null_ != nullptr) log_removed(leaf, std::ssize(ids));
  if (quotas_.any()) parked_.recount(quotas_.count(leaf, -std::ssize(ids)));
  if (debts_.any()) debts_.cut(leaf, tree_.node(leaf).chain.pages - std::ssize(ids));
  tree_.shrink(leaf, ids);
}

std::int64_t RadixPrefixCache::ordered_leaves() const noexcept {
  return policy_ == nullptr ? index_.leaves() : policy_->leaves();
}

std::int64_t RadixPrefixCache::evictable_leaves() const noexcept {
  return ordered_leaves() + wanted_.leaves() + parked_.leaves();
}

}  // namespace stemma
