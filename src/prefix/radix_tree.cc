// A node is found by (parent, first page) in one table for the whole tree. A split gives the table
// entry to the new upper node, whose parent and first page are the old ones, and enters the lower
// node under its new parent; what lies below the lower node is found as before.
#include "prefix/radix_tree.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace stemma {

RadixTree::RadixTree(const Limits& limits)
    : nodes_(limits.pages_max + limits.roots_max),
      arena_(limits.pages_max, limits.page_size),
      table_(limits.pages_max),
      hash_(limits.hash_seed, limits.hash_bits) {}

NodeSlot RadixTree::add_root(std::int64_t now) {
  return nodes_.make(now);
}

void RadixTree::renew_root(NodeSlot root, std::int64_t now) {
  STEMMA_CHECK(nodes_[root].is_root() && nodes_[root].children == 0,
               "only an empty root is renewed");
  nodes_.drop(root);
  STEMMA_CHECK(nodes_.make(now) == root, "what was dropped last is taken first");
}

RadixTree::Walk::Walk(const RadixTree& tree, NodeSlot from, std::span<const TokenId> tokens)
    : tree_(tree), node_(from), left_(tokens), hash_(look_ahead(from, tokens)) {}

bool RadixTree::Walk::next() {
  if (!covers_node_ || tree_.nodes_[node_].children == 0) return false;
  if (left_.size() < static_cast<std::size_t>(tree_.page_size())) return false;
  return tree_.table_.find(hash_, [this](NodeSlot child) { return try_child(child); }).valid();
}

// Whether `child` is node_'s and agrees in at least one page; steps to it if so. What the next step
// needs begins loading before tokens are compared.
bool RadixTree::Walk::try_child(NodeSlot child) {
  const RadixNode& node = tree_.nodes_[child];
  if (node.parent != node_) return false;
  tree_.arena_.prefetch(node.chain);
  const auto node_tokens = static_cast<std::size_t>(node.chain.pages * tree_.page_size());
  const auto below = left_.subspan(std::min(node_tokens, left_.size()));
  const std::uint32_t hash_below = look_ahead(child, below);
  const std::int64_t common = tree_.arena_.common_pages(node.chain, left_);
  if (common == 0) return false;
  node_ = child;
  left_ = below;
  hash_ = hash_below;
  pages_ = common;
  total_pages_ += common;
  covers_node_ = common == node.chain.pages;
  return true;
}

// Hashes the page that the next step looks for, and begins loading where it would be found. Where
// there is nothing to look for, the hash is not needed: a leaf that only grows costs no hashing.
std::uint32_t RadixTree::Walk::look_ahead(NodeSlot node, std::span<const TokenId> left) const {
  const auto page_size = static_cast<std::size_t>(tree_.page_size());
  if (left.size() < page_size || tree_.nodes_[node].children == 0) return 0;
  const std::uint32_t hash = tree_.hash_(node, left.first(page_size));
  tree_.table_.prefetch(hash);
  return hash;
}

void RadixTree::walk_again(NodeSlot from, std::span<const TokenId> tokens, WalkEnd& end) const {
  if (end.from == from && still_ends(end, tokens)) return;
  Walk walk(*this, from, tokens);
  while (walk.next()) {
  }
  const NodeHistory& history = nodes_.history(walk.node());
  end = {.from = from,
         .node = walk.node(),
         .id = history.id,
         .changes = history.changes,
         .covers_node = walk.covers_node(),
         .total_pages = walk.total_pages()};
}

// Two children may have one hash: then the walk is done again for nothing.
bool RadixTree::still_ends(WalkEnd& end, std::span<const TokenId> tokens) const {
  const NodeHistory& history = nodes_.history(end.node);
  if (history.id != end.id || history.changes != end.changes) return false;
  const auto size = static_cast<std::size_t>(page_size());
  const auto left = tokens.subspan(static_cast<std::size_t>(end.total_pages) * size);
  if (!end.covers_node || left.size() < size || nodes_[end.node].children == 0) return true;
  if (!std::exchange(end.is_hashed, true)) end.hash = hash_(end.node, left.first(size));
  const auto is_child = [&](NodeSlot child) { return nodes_[child].parent == end.node; };
  return !table_.find(end.hash, is_child).valid();
}

NodeSlot RadixTree::split(NodeSlot slot, std::int64_t pages) {
  STEMMA_CHECK(!nodes_[slot].is_root(), "a root has nothing to split");
  STEMMA_CHECK(!nodes_[slot].unlinked, "only a walk ends inside a node");
  const NodeSlot upper_slot = nodes_.make(nodes_.history(slot).created);
  RadixNode& lower = nodes_[slot];
  RadixNode& upper = nodes_[upper_slot];
  upper = lower;
  upper.chain = arena_.take_front(lower.chain, pages);
  upper.children = 1;
  upper.keyed_pages = std::min(lower.keyed_pages, upper.chain.pages);
  table_.replace(lower.hash, slot, upper_slot);
  nodes_.note_change(slot);
  lower.parent = upper_slot;
  lower.start_pages += upper.chain.pages;
  lower.keyed_pages -= upper.keyed_pages;
  lower.hash = hash_(upper_slot, first_page(slot));
  table_.insert(lower.hash, slot);
  return upper_slot;
}

NodeSlot RadixTree::add_leaf(NodeSlot parent, std::span<const TokenId> tokens, OwnedPages pages,
                             std::int64_t now) {
  STEMMA_CHECK(!pages.empty(), "a node holds at least one page");
  const NodeSlot slot = nodes_.make(now);
  RadixNode& leaf = nodes_[slot];
  leaf.parent = parent;
  leaf.start_pages = static_cast<std::int32_t>(nodes_[parent].end_pages());
  leaf.last_use = now;
  arena_.append(leaf.chain, tokens, std::move(pages));
  leaf.hash = hash_(parent, first_page(slot));
  leaf.unlinked = nodes_[parent].unlinked;
  if (!leaf.unlinked) table_.insert(leaf.hash, slot);
  ++nodes_[parent].children;
  return slot;
}

void RadixTree::grow(NodeSlot leaf, std::span<const TokenId> tokens, OwnedPages pages) {
  RadixNode& node = nodes_[leaf];
  STEMMA_CHECK(node.children == 0 && !node.is_root(), "only a leaf grows in place (I4)");
  nodes_.note_change(leaf);
  arena_.append(node.chain, tokens, std::move(pages));
}

void RadixTree::shrink(NodeSlot leaf, std::span<PageId> ids) {
  RadixNode& node = nodes_[leaf];
  STEMMA_CHECK(node.children == 0, "pages leave from the end of a leaf");
  nodes_.note_change(leaf);
  arena_.take_back(node.chain, ids);
  node.keyed_pages = std::min(node.keyed_pages, node.chain.pages);
}

void RadixTree::remove(NodeSlot leaf) {
  const RadixNode& node = nodes_[leaf];
  STEMMA_CHECK(node.children == 0 && node.chain.pages == 0 && !node.is_root(),
               "only an empty leaf is removed");
  if (!node.unlinked) table_.erase(node.hash, leaf);
  --nodes_[node.parent].children;
  nodes_.drop(leaf);
}

void RadixTree::unlink(NodeSlot slot) {
  RadixNode& node = nodes_[slot];
  STEMMA_CHECK(!node.is_root() && !node.unlinked, "a node is unlinked once");
  table_.erase(node.hash, slot);
  nodes_.note_change(slot);
  node.unlinked = true;
}

std::int64_t RadixTree::reserved_bytes() const noexcept {
  return nodes_.nodes_max() * static_cast<std::int64_t>(sizeof(RadixNode) + sizeof(NodeHistory)) +
         arena_.reserved_bytes() + table_.reserved_bytes();
}

std::vector<TokenId> RadixTree::tokens_of(NodeSlot slot) const {
  std::vector<TokenId> tokens;
  append_tokens(slot, tokens);
  return tokens;
}

void RadixTree::append_tokens(NodeSlot slot, std::vector<TokenId>& tokens) const {
  arena_.for_each_run(nodes_[slot].chain, [&](UnitId first, std::int64_t pages) {
    const auto here = arena_.tokens_of(first, pages);
    tokens.insert(tokens.end(), here.begin(), here.end());
  });
}

std::vector<NodeSlot> RadixTree::children_of(NodeSlot parent) const {
  std::vector<NodeSlot> found;
  if (nodes_[parent].children == 0) return found;
  for (const NodeSlot slot : id_range(NodeSlot(0), nodes_.high_water())) {
    if (nodes_.exists(slot) && nodes_[slot].parent == parent) found.push_back(slot);
  }
  return found;
}

RadixTree::ChildLists RadixTree::child_lists() const {
  listed_nodes_ += nodes_.high_water();
  const auto slots = static_cast<std::size_t>(nodes_.high_water());
  ChildLists lists = {std::vector<NodeSlot>(slots), std::vector<NodeSlot>(slots)};
  for (std::int32_t i = nodes_.high_water() - 1; i >= 0; --i) {
    const NodeSlot slot(i);
    if (!nodes_.exists(slot) || nodes_[slot].is_root()) continue;
    NodeSlot& first = lists.first_child[nodes_[slot].parent.index()];
    lists.next_sibling[slot.index()] = std::exchange(first, slot);
  }
  return lists;
}

std::vector<std::vector<NodeSlot>> RadixTree::children() const {
  std::vector<std::vector<NodeSlot>> lists(static_cast<std::size_t>(nodes_.high_water()));
  for (const NodeSlot slot : id_range(NodeSlot(0), nodes_.high_water())) {
    if (!nodes_.exists(slot) || nodes_[slot].is_root()) continue;
    lists[nodes_[slot].parent.index()].push_back(slot);
  }
  for (auto& list : lists) {
    std::sort(list.begin(), list.end(), [this](NodeSlot a, NodeSlot b) {
      return std::ranges::lexicographical_compare(first_page(a), first_page(b));
    });
  }
  return lists;
}

std::optional<std::string> RadixTree::audit() const {
  if (auto fault = arena_.audit()) return fault;
  std::vector<std::int32_t> children(static_cast<std::size_t>(nodes_.high_water()), 0);
  std::int64_t pages = 0;
  std::int64_t roots = 0;
  std::int64_t unlinked = 0;
  for (const NodeSlot slot : id_range(NodeSlot(0), nodes_.high_water())) {
    if (!nodes_.exists(slot)) continue;
    const RadixNode& node = nodes_[slot];
    pages += node.chain.pages;
    if (node.is_root()) {
      ++roots;
      if (node.chain.pages != 0 || node.start_pages != 0) return "a root has pages";
      continue;
    }
    if (auto fault = audit_node(slot)) {
      return std::string("node ") + std::to_string(nodes_.history(slot).id.value()) + ": " + *fault;
    }
    ++children[node.parent.index()];
    unlinked += node.unlinked ? 1 : 0;
  }
  for (const NodeSlot slot : id_range(NodeSlot(0), nodes_.high_water())) {
    if (nodes_.exists(slot) && nodes_[slot].children != children[slot.index()]) {
      return std::string("node ") + std::to_string(nodes_.history(slot).id.value()) +
             ": wrong count of children";
    }
  }
  if (pages != arena_.used_pages()) return "the arena holds pages that no node has";
  if (table_.entries() + roots + unlinked != nodes_.nodes())
    return "the table has entries of no node";
  return std::nullopt;
}

std::optional<std::string> RadixTree::audit_node(NodeSlot slot) const {
  const RadixNode& node = nodes_[slot];
  if (node.chain.pages < 1) return "it has no pages";
  if (!nodes_.exists(node.parent)) return "its parent is gone";
  if (auto fault = arena_.audit_chain(node.chain)) return fault;
  if (node.start_pages != nodes_[node.parent].end_pages()) return "it starts in the wrong place";
  if (node.hash != hash_(node.parent, first_page(slot))) return "its hash is not that of its page";
  if (node.keyed_pages < 0 || node.keyed_pages > node.chain.pages) return "keys of no pages";
  if (nodes_[node.parent].unlinked && !node.unlinked) return "it is below what no walk finds";
  if (node.unlinked) {
    const auto is_it = [slot](NodeSlot other) { return other == slot; };
    if (table_.find(node.hash, is_it).valid()) return "the table finds what is unlinked";
    return std::nullopt;
  }
  std::int64_t found = 0;
  const NodeSlot same_page = table_.find(node.hash, [&](NodeSlot other) {
    if (other == slot) ++found;
    return other != slot && nodes_[other].parent == node.parent &&
           std::ranges::equal(first_page(other), first_page(slot));
  });
  if (same_page.valid()) return "a sibling begins with the same page";
  if (found != 1) return std::string("the table finds it ") + std::to_string(found) + " times";
  return std::nullopt;
}

}  // namespace stemma
