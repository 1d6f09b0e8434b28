// What RadixPrefixCache tells those who follow it from outside: each page that becomes findable and
// each that stops being so, by its key.
//
// With a log, every page that can be found has its key from the moment it is published: the keys
// above it are there, so each costs one hash, and what is evicted can be named without computing
// anything. Pages in quarantine were removed when they went out of sight, and what is published
// below them is never found: neither is told of again.
#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

void RadixPrefixCache::drain_events(PrefixEventSink& sink) {
  if (log_or_null_ == nullptr) return;
  if (!log_or_null_->lost()) return log_or_null_->drain(sink);
  log_or_null_->restart();
  hand_over_all(sink);
}

void RadixPrefixCache::resend_events() {
  if (log_or_null_ != nullptr) log_or_null_->lose();
}

// `tokens` are those of the last pages of a node, which were just published.
void RadixPrefixCache::log_stored(NamespaceId ns, NodeSlot slot, std::span<const TokenId> tokens) {
  const RadixNode& node = tree_.node(slot);
  if (node.unlinked) return;
  compute_own_keys(slot);
  const std::int64_t first_page =
      node.chain.pages - static_cast<std::int64_t>(tokens.size()) / page_size();
  PrefixEventLog::Place place{.digest = digest(ns), .parent = std::nullopt};
  if (first_page > 0) {
    PageKey before;
    copy_keys(slot, first_page - 1, std::span(&before, 1));
    place.parent = before;
  } else if (!tree_.node(node.parent).is_root()) {
    place.parent = last_key(node.parent);
  }
  const std::span<PageKey> keys = log_or_null_->add_stored(place, tokens);
  copy_keys(slot, first_page, keys);
}

// The last `pages` of a node, below which nothing is found any more, go.
void RadixPrefixCache::log_removed(NodeSlot slot, std::int64_t pages) {
  const RadixNode& node = tree_.node(slot);
  if (node.unlinked || pages == 0) return;
  const std::span<PageKey> keys = log_or_null_->add_removed(pages);
  copy_keys(slot, node.chain.pages - pages, keys);
  std::reverse(keys.begin(), keys.end());
}

// Parents first: from the roots down.
void RadixPrefixCache::hand_over_all(PrefixEventSink& sink) {
  sink.take(
      {.kind = PrefixEvent::Kind::kCleared, .keys = {}, .digest = {}, .parent = {}, .tokens = {}});
  const RadixTree::ChildLists lists = tree_.child_lists();
  std::vector<NodeSlot> found;  // of one namespace
  std::vector<PageKey> keys;
  std::vector<TokenId> tokens;
  for (const NodeSlot root : roots_) {
    found.assign(1, root);
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (NodeSlot child = lists.first_child[found[i].index()]; child.valid();
           child = lists.next_sibling[child.index()]) {
        if (!tree_.node(child).unlinked) found.push_back(child);
      }
    }
    for (const NodeSlot slot : std::span(found).subspan(1)) {
      const RadixNode& node = tree_.node(slot);
      keys.resize(static_cast<std::size_t>(node.chain.pages));
      copy_keys(slot, 0, keys);
      tokens.clear();
      tree_.append_tokens(slot, tokens);
      PrefixEvent event{.kind = PrefixEvent::Kind::kStored,
                        .keys = keys,
                        .digest = digest_of(root),
                        .parent = {},
                        .tokens = tokens};
      if (node.parent != root) event.parent = last_key(node.parent);
      sink.take(event);
    }
  }
}

// Writes the keys of the pages of a node from `first_page` on, at most out.size().
// REQUIRES: they have keys.
void RadixPrefixCache::copy_keys(NodeSlot slot, std::int64_t first_page, std::span<PageKey> out) {
  std::int64_t start = 0;
  std::size_t written = 0;
  tree_.arena().for_each_run(tree_.node(slot).chain, [&](UnitId first, std::int64_t pages) {
    const std::int64_t skip = std::clamp<std::int64_t>(first_page - start, 0, pages);
    start += pages;
    if (skip == pages || written == out.size()) return;
    const auto keys = tree_.arena().keys_of(first, pages).subspan(static_cast<std::size_t>(skip));
    const std::size_t count = std::min(keys.size(), out.size() - written);
    std::copy_n(keys.begin(), count, out.begin() + static_cast<std::ptrdiff_t>(written));
    written += count;
  });
}

}  // namespace stemma
