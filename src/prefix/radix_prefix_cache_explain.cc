// What a tree can tell people: why a look-up ended where it did, and which text is nearest.
#include <algorithm>

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
  marks_or_null_->note(tree_.nodes().birth(end).id, page_of(node, kept), marks_clock_->now_us());
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
    const auto evicted = marks_or_null_->evicted_us(tree_.nodes().birth(end).id, page);
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
  NearestText nearest = {.matched_tokens = walk.total_pages() * page_size(),
                         .common_tokens = walk.total_pages() * page_size()};
  const auto left = tokens.subspan(static_cast<std::size_t>(nearest.matched_tokens));
  const auto compare = [&](std::span<const TokenId> cached) {
    const auto parted = std::mismatch(cached.begin(), cached.end(), left.begin(), left.end());
    const std::int64_t common = nearest.matched_tokens + (parted.first - cached.begin());
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
  for (const NodeSlot child : tree_.children()[end.index()]) {
    if (tree_.node(child).unlinked) continue;
    const std::vector<TokenId> inside = tree_.tokens_of(child);
    compare(inside);
  }
  return nearest;
}

}  // namespace stemma
