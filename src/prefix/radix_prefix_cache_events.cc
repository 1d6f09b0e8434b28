// What RadixPrefixCache tells those who follow it from outside: each page that becomes findable and
// each that stops being so, by its key.
//
// With a log, every page that can be found has its key from the moment it is published: the keys
// above it are there, so each costs one hash, and what is evicted can be named without computing
// anything. Pages in quarantine were removed when they went out of sight, and what is published
// below them is never found: neither is told of again.
//
// Texts of a grafted namespace go on from a page of another one, and are found only while that page
// is: it is their first pages' parent, though the keys of these are rooted in their own namespace.
// Where such a page goes or comes back, what is behind it is told of with it. Where a namespace
// that has pages turns out to go on from one, everything is told anew.
#include <algorithm>
#include <optional>
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

void RadixPrefixCache::set_grafted(NamespaceId ns, bool grafted) {
  if (log_or_null_ != nullptr) grafts_.set_grafted(ns, grafted);
}

void RadixPrefixCache::follow(NamespaceId ns, const PrefixLock& held) {
  if (log_or_null_ == nullptr) return;
  const NodeSlot end = slot_of(node_of(held));
  compute_keys(end);  // what is in quarantine may have none
  const bool is_new = grafts_.set_after(ns, last_key(end), !tree_.node(end).unlinked);
  if (is_new && tree_.node(root_of(ns)).children > 0) log_or_null_->lose();
}

void RadixPrefixCache::follow(NamespaceId ns, NamespaceId other, std::span<const TokenId> text) {
  if (log_or_null_ == nullptr || grafts_.after(ns).has_value()) return;
  PageKeyChain chain(digest(other));
  PageKey last;
  const auto size = static_cast<std::size_t>(page_size());
  for (auto rest = text; !rest.empty(); rest = rest.subspan(size)) {
    last = chain.append(rest.first(size));
  }
  const bool found = probe(other, text).matched_tokens == std::ssize(text);
  grafts_.set_after(ns, last, found);
  if (tree_.node(root_of(ns)).children > 0) log_or_null_->lose();
}

// `tokens` are those of the last pages of a node, which were just published.
void RadixPrefixCache::log_stored(NamespaceId ns, NodeSlot slot, std::span<const TokenId> tokens) {
  const RadixNode& node = tree_.node(slot);
  if (node.unlinked) return;
  compute_own_keys(slot);
  if (!grafts_.is_found(ns)) return;
  log_pages(ns, slot, tokens);
  note_found(slot, node.chain.pages - std::ssize(tokens) / page_size(), true);
}

// The last pages of a node, which have these tokens, begin to be found.
void RadixPrefixCache::log_pages(NamespaceId ns, NodeSlot slot, std::span<const TokenId> tokens) {
  const RadixNode& node = tree_.node(slot);
  const std::int64_t first_page = node.chain.pages - std::ssize(tokens) / page_size();
  PrefixEventLog::Place place{.digest = digest(ns), .parent = grafts_.after(ns)};
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
  if (grafts_.any()) {
    if (!grafts_.is_found(namespace_of(root_above(slot)))) return;
    note_found(slot, node.chain.pages - pages, false);
  }
  log_removed_pages(slot, pages);
}

void RadixPrefixCache::log_removed_pages(NodeSlot slot, std::int64_t pages) {
  const std::span<PageKey> keys = log_or_null_->add_removed(pages);
  copy_keys(slot, tree_.node(slot).chain.pages - pages, keys);
  std::reverse(keys.begin(), keys.end());
}

// The pages of a node from `first_page` on begin to be found, or stop, and with them what goes on
// from them in other namespaces. However many these are, the nodes are looked at once.
void RadixPrefixCache::note_found(NodeSlot slot, std::int64_t first_page, bool found) {
  if (!grafts_.any()) return;
  std::optional<RadixTree::ChildLists> lists;
  std::int64_t page = 0;
  tree_.arena().for_each_run(tree_.node(slot).chain, [&](UnitId first, std::int64_t run_pages) {
    for (const PageKey& key : tree_.arena().keys_of(first, run_pages)) {
      if (page++ < first_page || !grafts_.note(key, found)) continue;
      for (const NodeSlot root : roots_) {
        const bool follows =
            tree_.node(root).children > 0 && grafts_.after(namespace_of(root)) == key;
        if (!follows || log_or_null_->lost()) continue;
        if (!lists.has_value()) lists = tree_.child_lists();
        log_below(root, *lists, found);
      }
    }
  });
}

// All that is below a root begins to be found, or stops.
void RadixPrefixCache::log_below(NodeSlot root, const RadixTree::ChildLists& lists, bool found) {
  std::vector<NodeSlot> nodes = subtrees({root}, lists);
  nodes.erase(nodes.begin());
  if (!found) std::reverse(nodes.begin(), nodes.end());
  for (const NodeSlot slot : nodes) {
    if (found) {
      log_pages(namespace_of(root), slot, tree_.tokens_of(slot));
    } else {
      log_removed_pages(slot, tree_.node(slot).chain.pages);
    }
  }
}

// Parents first: namespaces that go on from others after these, each from its root down.
void RadixPrefixCache::hand_over_all(PrefixEventSink& sink) {
  sink.take(
      {.kind = PrefixEvent::Kind::kCleared, .keys = {}, .digest = {}, .parent = {}, .tokens = {}});
  const RadixTree::ChildLists lists = tree_.child_lists();
  for (const bool grafted : {false, true}) {
    for (const NodeSlot root : roots_) {
      const NamespaceId ns = namespace_of(root);
      if (grafts_.is_grafted(ns) == grafted && grafts_.is_found(ns)) hand_over(root, lists, sink);
    }
  }
}

void RadixPrefixCache::hand_over(NodeSlot root, const RadixTree::ChildLists& lists,
                                 PrefixEventSink& sink) {
  const std::vector<NodeSlot> found = subtrees({root}, lists);
  std::vector<PageKey> keys;
  std::vector<TokenId> tokens;
  for (const NodeSlot slot : std::span(found).subspan(1)) {
    const RadixNode& node = tree_.node(slot);
    keys.resize(static_cast<std::size_t>(node.chain.pages));
    copy_keys(slot, 0, keys);
    tokens.clear();
    tree_.append_tokens(slot, tokens);
    PrefixEvent event{.kind = PrefixEvent::Kind::kStored,
                      .keys = keys,
                      .digest = digest_of(root),
                      .parent = grafts_.after(namespace_of(root)),
                      .tokens = tokens};
    if (node.parent != root) event.parent = last_key(node.parent);
    sink.take(event);
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
