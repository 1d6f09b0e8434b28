// What RadixPrefixCache says about itself: audit checks it against the tree, draw shows it.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "prefix/radix_prefix_cache.h"

namespace stemma {

namespace {

// How many tokens of a node a drawing shows.
constexpr std::size_t kDrawnTokens = 32;

// "1 2|3 4": tokens, with a bar between pages; long nodes are cut short.
std::string drawn_tokens(std::span<const TokenId> tokens, std::int64_t page_size) {
  std::string text;
  const auto page = static_cast<std::size_t>(page_size);
  for (std::size_t i = 0; i < std::min(tokens.size(), kDrawnTokens); ++i) {
    if (i > 0) text += i % page == 0 ? "|" : " ";
    text += std::to_string(tokens[i]);
  }
  if (tokens.size() > kDrawnTokens) {
    text.append("… (").append(std::to_string(tokens.size())).append(" tokens)");
  }
  return text;
}

// "0-3,7": page ids, ascending runs joined.
std::string drawn_ids(std::span<const PageId> ids) {
  std::string text;
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t end = i + 1;
    while (end < ids.size() && ids[end].value() == ids[end - 1].value() + 1) ++end;
    if (i > 0) text += ",";
    text += std::to_string(ids[i].value());
    if (end - i > 1) text.append("-").append(std::to_string(ids[end - 1].value()));
    i = end;
  }
  return text;
}

}  // namespace

std::optional<std::string> RadixPrefixCache::audit() const {
  if (auto fault = tree_.audit()) return fault;
  if (auto fault = audit_locks()) return fault;
  if (auto fault = audit_index()) return fault;
  if (auto fault = audit_quotas()) return fault;
  if (auto fault = audit_debts()) return fault;
  if (auto fault = audit_keys()) return fault;
  if (tree_.arena().used_pages() > allocator_.released_pages()) {
    return "the tree holds pages that nobody gave it (I1)";
  }
  std::vector<bool> seen(static_cast<std::size_t>(allocator_.total_pages()), false);
  for (const NodeSlot slot : id_range(NodeSlot(0), tree_.nodes().high_water())) {
    if (!tree_.nodes().exists(slot)) continue;
    std::vector<PageId> ids(static_cast<std::size_t>(tree_.node(slot).chain.pages));
    tree_.arena().copy_ids(tree_.node(slot).chain, 0, ids);
    for (const PageId id : ids) {
      if (!id.valid() || id.index() >= seen.size()) return "a page id of no pool";
      if (seen[id.index()])
        return std::string("page ") + std::to_string(id.value()) + " has two places (I1)";
      seen[id.index()] = true;
    }
  }
  return std::nullopt;
}

// Where changes are logged, what is found has keys: by them it is said that it goes.
std::optional<std::string> RadixPrefixCache::audit_keys() const {
  if (log_or_null_ == nullptr) return std::nullopt;
  for (const NodeSlot slot : id_range(NodeSlot(0), tree_.nodes().high_water())) {
    if (!tree_.nodes().exists(slot) || tree_.node(slot).unlinked) continue;
    if (tree_.node(slot).keyed_pages != tree_.node(slot).chain.pages) {
      return std::string("node ") + std::to_string(tree_.nodes().history(slot).id.value()) +
             ": pages without keys, where events need them";
    }
  }
  return std::nullopt;
}

// Lock counts against those of the children and against the locks alive (I3); usage in tokens.
std::optional<std::string> RadixPrefixCache::audit_locks() const {
  const NodeSlab& nodes = tree_.nodes();
  std::vector<std::int64_t> below(static_cast<std::size_t>(nodes.high_water()), 0);
  for (const NodeSlot slot : id_range(NodeSlot(0), nodes.high_water())) {
    if (!nodes.exists(slot) || nodes[slot].is_root()) continue;
    below[nodes[slot].parent.index()] += nodes[slot].lock_count;
  }
  PrefixUsage counted;
  std::int64_t locks = 0;
  for (const NodeSlot slot : id_range(NodeSlot(0), nodes.high_water())) {
    if (!nodes.exists(slot)) continue;
    const RadixNode& node = nodes[slot];
    if (node.lock_count < below[slot.index()])
      return "a node has fewer locks than its children (I3)";
    locks += node.lock_count - below[slot.index()];
    (node.lock_count == 0 ? counted.evictable_tokens : counted.locked_tokens) += tokens_in(node);
  }
  if (locks != locks_) return "the nodes' locks are not the locks alive (I3)";
  if (counted.evictable_tokens != usage_.evictable_tokens) return "evictable tokens are miscounted";
  if (counted.locked_tokens != usage_.locked_tokens) return "locked tokens are miscounted";
  return std::nullopt;
}

// The index holds exactly the unlocked leaves, each under the key it has now.
std::optional<std::string> RadixPrefixCache::audit_index() const {
  if (auto fault = policy_ == nullptr ? index_.audit() : policy_->audit()) return fault;
  if (auto fault = wanted_.audit()) return fault;
  if (auto fault = parked_.audit()) return fault;
  std::int64_t leaves = 0;
  for (const NodeSlot slot : id_range(NodeSlot(0), tree_.nodes().high_water())) {
    if (!tree_.nodes().exists(slot)) continue;
    const RadixNode& node = tree_.node(slot);
    const bool leaf = !node.is_root() && node.children == 0 && node.lock_count == 0;
    const bool ordered = policy_ == nullptr ? index_.contains(slot) : policy_->contains(slot);
    const bool wanted = wanted_.contains(slot);
    const bool parked = parked_.contains(slot);
    if (int{ordered} + int{wanted} + int{parked} != int{leaf})
      return "the index does not hold exactly the unlocked leaves";
    if (leaf && wanted != wanted_as_a_whole(slot)) return "a leaf waits where it does not belong";
    if (policy_ == nullptr && ordered && index_.key(slot) != key_of(slot))
      return "a leaf lies in the index under an old key";
    leaves += leaf ? 1 : 0;
  }
  if (leaves != evictable_leaves()) return "the index holds more than the unlocked leaves";
  for (std::size_t ns = 0; ns < roots_.size(); ++ns) {
    if (!tree_.nodes().exists(roots_[ns]) || !tree_.node(roots_[ns]).is_root()) {
      return "a namespace has no root";
    }
    if (namespace_of(roots_[ns]).index() != ns) return "a root is another namespace's";
  }
  return std::nullopt;
}

std::string RadixPrefixCache::draw() const {
  std::string out;
  const auto children = tree_.children();
  for (std::size_t ns = 0; ns < roots_.size(); ++ns) {
    out.append("namespace ").append(std::to_string(ns)).append("\n");
    draw_below(roots_[ns], children, out);
  }
  return out;
}

// Iterative: a drawing must not need a stack as deep as the tree.
void RadixPrefixCache::draw_below(NodeSlot root, const std::vector<std::vector<NodeSlot>>& children,
                                  std::string& out) const {
  struct Pending {
    NodeSlot slot;
    std::size_t depth;
  };
  std::vector<Pending> pending;
  const auto add_children = [&](NodeSlot slot, std::size_t depth) {
    const auto& list = children[slot.index()];
    for (auto child = list.rbegin(); child != list.rend(); ++child)
      pending.push_back({*child, depth});
  };
  add_children(root, 1);
  while (!pending.empty()) {
    const Pending here = pending.back();
    pending.pop_back();
    const RadixNode& node = tree_.node(here.slot);
    std::vector<PageId> ids(static_cast<std::size_t>(node.chain.pages));
    tree_.arena().copy_ids(node.chain, 0, ids);
    out += std::string(here.depth * 2, ' ');
    out.append("[").append(drawn_tokens(tree_.tokens_of(here.slot), page_size()));
    out.append("] @").append(drawn_ids(ids));
    if (node.lock_count > 0) out.append(" locks ").append(std::to_string(node.lock_count));
    if (node.unlinked) out.append(" quarantined");
    out += "\n";
    add_children(here.slot, here.depth + 1);
  }
}

}  // namespace stemma
