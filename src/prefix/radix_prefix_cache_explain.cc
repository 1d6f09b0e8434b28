// What a tree can tell people: why a look-up ended where it did, which text is nearest, and which
// nodes there are.
#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

// Of the pages that go from the end of a leaf only the first is marked: a look-up ends there.
void RadixPrefixCache::mark_evicted(NodeSlot leaf, std::int64_t pages) {
  const RadixNode& node = tree_.node(leaf);
  if (node.unlinked || pages == 0) return;
  const std::int64_t kept = node.chain.pages - pages;
  const NodeSlot end = kept > 0 ? leaf : node.parent;
  marks_or_null_->note(tree_.nodes().history(end).id, page_of(node, kept), marks_clock_->now_us());
}

std::span<const TokenId> RadixPrefixCache::page_of(const RadixNode& node, std::int64_t page) const {
  std::span<const TokenId> tokens;
  tree_.arena().for_each_run(node.chain, [&](UnitId first, std::int64_t pages) {
    if (page >= 0 && page < pages) {
      const UnitId unit(first.value() + static_cast<std::int32_t>(page));
      tokens = tree_.arena().tokens_of(unit, 1);
    }
    page -= pages;
  });
  STEMMA_CHECK(!tokens.empty(), "the page is one of the node's");
  return tokens;
}

PrefixEndReport RadixPrefixCache::why_ends(NamespaceId ns, std::span<const TokenId> tokens) const {
  const auto wanted = tokens.first(tokens.size() - 1);
  NodeSlot end = root_of(ns);
  RadixTree::Walk walk(tree_, end, wanted);
  while (walk.next()) end = walk.node();
  PrefixEndReport report = {.matched_tokens = walk.total_pages() * page_size()};
  const auto left = wanted.subspan(static_cast<std::size_t>(report.matched_tokens));
  if (std::ssize(left) < page_size()) {
    report.end = PrefixEnd::kTail;
  } else if (marks_or_null_ != nullptr && walk.covers_node()) {
    const auto page = left.first(static_cast<std::size_t>(page_size()));
    const auto evicted = marks_or_null_->evicted_us(tree_.nodes().history(end).id, page);
    if (evicted.has_value()) report.end = PrefixEnd::kEvicted;
    report.evicted_us = evicted.value_or(0);
  }
  return report;
}

NearestText RadixPrefixCache::nearest(NamespaceId ns, std::span<const TokenId> tokens,
                                      std::int64_t next_tokens_max) const {
  NodeSlot end = root_of(ns);
  RadixTree::Walk walk(tree_, end, tokens);
  while (walk.next()) end = walk.node();
  const std::int64_t matched_tokens = walk.total_pages() * page_size();
  NearestText nearest = {.common_tokens = matched_tokens};
  const auto left = tokens.subspan(static_cast<std::size_t>(matched_tokens));
  const auto compare = [&](std::span<const TokenId> cached) {
    const auto parted = std::mismatch(cached.begin(), cached.end(), left.begin(), left.end());
    const std::int64_t common = matched_tokens + (parted.first - cached.begin());
    if (common < nearest.common_tokens ||
        (common == nearest.common_tokens && !nearest.cached_next.empty())) {
      return;
    }
    nearest.common_tokens = common;
    const auto next = cached.subspan(static_cast<std::size_t>(parted.first - cached.begin()));
    const auto shown = std::min(next.size(), static_cast<std::size_t>(next_tokens_max));
    nearest.cached_next.assign(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(shown));
  };
  if (!walk.covers_node()) {
    const std::vector<TokenId> inside = tree_.tokens_of(end);
    compare(std::span(inside).subspan(static_cast<std::size_t>(walk.pages() * page_size())));
    return nearest;
  }
  const NodeSlot child = nearest_child(end, left);
  if (child.valid()) compare(tree_.tokens_of(child));
  return nearest;
}

// The child that has most of `tokens` in common, of those the first by its tokens; none has a whole
// page of them.
NodeSlot RadixPrefixCache::nearest_child(NodeSlot parent, std::span<const TokenId> tokens) const {
  NodeSlot nearest;
  std::span<const TokenId> nearest_page;
  std::int64_t most = -1;
  for (const NodeSlot child : tree_.children_of(parent)) {
    if (tree_.node(child).unlinked) continue;
    const auto page = page_of(tree_.node(child), 0);
    const auto parted = std::mismatch(page.begin(), page.end(), tokens.begin(), tokens.end());
    const std::int64_t common = parted.first - page.begin();
    if (common < most) continue;
    if (common == most && !std::ranges::lexicographical_compare(page, nearest_page)) continue;
    most = common;
    nearest = child;
    nearest_page = page;
  }
  return nearest;
}

TreeNode RadixPrefixCache::shown(NodeSlot slot, const NamespaceDigest& digest) const {
  const RadixNode& node = tree_.node(slot);
  const bool below_root = tree_.node(node.parent).is_root();
  return {.id = tree_.nodes().history(slot).id,
          .parent = below_root ? NodeId() : tree_.nodes().history(node.parent).id,
          .digest = digest,
          .start_tokens = node.start_pages * page_size(),
          .tokens = tokens_in(node),
          .children = node.children,
          .hits = node.hits,
          .lock_count = node.lock_count,
          .uses_ago = now_ - node.last_use,
          .quarantined = node.unlinked};
}

namespace {

// A node that may be shown next.
struct ReachedNode {
  std::tuple<std::int64_t, std::int64_t> heat;  // hits, last use
  NodeSlot slot;
  NamespaceId ns;
  bool operator<(const ReachedNode& other) const {
    return std::tie(heat, other.slot) < std::tie(other.heat, slot);
  }
};

// Of those that are reached together, those that may be shown where only so many are: of a large
// tree nearly all are behind as many hotter ones.
void keep_hottest(std::vector<ReachedNode>& reached, std::int64_t nodes_max) {
  if (std::ssize(reached) <= nodes_max) return;
  const auto end = reached.begin() + nodes_max;
  std::nth_element(reached.begin(), end, reached.end(),
                   [](const ReachedNode& a, const ReachedNode& b) { return b < a; });
  reached.erase(end, reached.end());
}

}  // namespace

// From the roots down, always to the hottest node that has been reached: so no node comes before
// its parent, and who is left out is no hotter than who is shown, but for what lies above it.
TreeListing RadixPrefixCache::hottest_nodes(std::int64_t nodes_max,
                                            const RadixPrefixCache* twin_or_null) const {
  const RadixTree::ChildLists lists = tree_.child_lists();
  std::priority_queue<ReachedNode> reached;
  std::vector<ReachedNode> together;
  const auto reach_below = [&](NodeSlot slot, NamespaceId ns) {
    for (NodeSlot child = lists.first_child[slot.index()]; child.valid();
         child = lists.next_sibling[child.index()]) {
      const RadixNode& node = tree_.node(child);
      together.push_back({.heat = {node.hits, node.last_use}, .slot = child, .ns = ns});
      if (std::ssize(together) > 4 * nodes_max) keep_hottest(together, nodes_max);
    }
  };
  const auto take_reached = [&] {
    keep_hottest(together, nodes_max);
    for (const ReachedNode& node : together) reached.push(node);
    together.clear();
  };
  for (const NodeSlot root : roots_) reach_below(root, namespace_of(root));
  take_reached();
  TreeListing listing = {.total_nodes = nodes() - std::ssize(roots_)};
  while (!reached.empty() && std::ssize(listing.nodes) < nodes_max) {
    const ReachedNode next = reached.top();
    reached.pop();
    TreeNode& node = listing.nodes.emplace_back(shown(next.slot, digest(next.ns)));
    if (twin_or_null != nullptr) {
      const TextEnd there = twin_or_null->probe_by_digest(node.digest, text_to(next.slot));
      node.twin_tokens = std::max<std::int64_t>(there.matched_tokens - node.start_tokens, 0);
      node.twin = there.node;
    }
    reach_below(next.slot, next.ns);
    take_reached();
  }
  return listing;
}

std::optional<NodeText> RadixPrefixCache::try_text(NodeId id) const {
  for (std::int32_t i = 0; i < tree_.nodes().high_water(); ++i) {
    const NodeSlot slot(i);
    if (!tree_.nodes().exists(slot) || tree_.nodes().history(slot).id != id) continue;
    if (tree_.node(slot).is_root()) return std::nullopt;
    return NodeText{.digest = digest_of(root_above(slot)),
                    .tokens = text_to(slot),
                    .start_tokens = tree_.node(slot).start_pages * page_size()};
  }
  return std::nullopt;
}

std::vector<TokenId> RadixPrefixCache::text_to(NodeSlot slot) const {
  std::vector<TokenId> text(static_cast<std::size_t>(tree_.node(slot).end_pages() * page_size()));
  for (NodeSlot at = slot; !tree_.node(at).is_root(); at = tree_.node(at).parent) {
    const std::vector<TokenId> own = tree_.tokens_of(at);
    const std::int64_t start = tree_.node(at).start_pages * page_size();
    std::copy(own.begin(), own.end(), text.begin() + start);
  }
  return text;
}

TextEnd RadixPrefixCache::probe_by_digest(const NamespaceDigest& digest,
                                          std::span<const TokenId> tokens) const {
  TextEnd end;
  const std::optional<NamespaceId> ns = namespaces_.find(digest);
  if (!ns.has_value()) return end;
  RadixTree::Walk walk(tree_, root_of(*ns), tokens);
  while (walk.next()) end.node = tree_.nodes().history(walk.node()).id;
  end.matched_tokens = walk.total_pages() * page_size();
  return end;
}

}  // namespace stemma
