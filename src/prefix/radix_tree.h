// RadixTree: texts that share prefixes, path-compressed, in whole pages.
//
// Each node holds a stretch of pages; children of one node differ in their first page. The tree
// knows structure alone: nodes, children, tokens, pages. Uses, locks and eviction are its owner's.
//
// Thread:     engine thread only.               Invariants: I4, I5, I7 (docs/INVARIANTS.md).
// Memory:     that of its parts, reserved at construction: radix_node, page_arena, child_table.
// Cost:       a walk is one hash look-up a node and one comparison of tokens; splitting, adding and
//             removing O(1) besides the pages themselves.
// Not here:   which leaf goes first (eviction_index), namespaces and locks (radix_prefix_cache).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prefix/child_table.h"
#include "prefix/page_arena.h"
#include "prefix/radix_node.h"
#include "prefix/walk_end.h"

namespace stemma {

class RadixTree {
 public:
  struct Limits {
    std::int64_t pages_max = 0;
    std::int64_t roots_max = 0;
    std::int64_t page_size = 1;
    int hash_bits = 32;           // of the look-up hash; fewer only to test collisions
    std::uint64_t hash_seed = 0;  // secret where texts are not trusted
  };

  explicit RadixTree(const Limits& limits);

  // A root without pages. REQUIRES: fewer than roots_max exist.
  NodeSlot add_root(std::int64_t now);

  // The root loses its id and gets another, in the same slot: what was noted of it means nothing
  // any more. REQUIRES: it is a root without children.
  void renew_root(NodeSlot root, std::int64_t now);

  // The descent from a node along tokens, node by node. Between two calls of next() the tree may
  // change anything but the nodes not yet reached.
  class Walk {
   public:
    // `tokens` are those after `from`; only their whole pages count. They must outlive the walk.
    Walk(const RadixTree& tree, NodeSlot from, std::span<const TokenId> tokens);

    // Steps to the child that shares at least one page with the tokens that are left. False, and
    // nothing changes, if there is none or if the last step ended inside its node.
    bool next();

    NodeSlot node() const noexcept { return node_; }
    // Of node(): how many of its pages agree, from its first; all of them, or the walk ends here.
    std::int64_t pages() const noexcept { return pages_; }
    bool covers_node() const noexcept { return covers_node_; }
    // Agreed on so far, over all nodes.
    std::int64_t total_pages() const noexcept { return total_pages_; }

   private:
    bool try_child(NodeSlot child);
    std::uint32_t look_ahead(NodeSlot node, std::span<const TokenId> left) const;

    const RadixTree& tree_;
    NodeSlot node_;
    std::span<const TokenId> left_;  // not agreed on yet
    std::uint32_t hash_ = 0;         // of (node_, the first page of left_)
    std::int64_t pages_ = 0;
    std::int64_t total_pages_ = 0;
    bool covers_node_ = true;
  };

  // Walks along `tokens` from a node, unless `end` says where that ended before and it would end
  // there again. REQUIRES: `end` was never used, or for the same tokens.
  void walk_again(NodeSlot from, std::span<const TokenId> tokens, WalkEnd& end) const;

  // Cuts a node after its first `pages`: a new node takes them and goes above (I4), with the same
  // parent, use, lock count, priority and birth time; the old node keeps its identity, its end and
  // its children. Returns the new node. REQUIRES: 0 < pages < the node's.
  NodeSlot split(NodeSlot slot, std::int64_t pages);

  // A new child. REQUIRES: pages is not empty; tokens are theirs; no child begins with their first
  // page.
  NodeSlot add_leaf(NodeSlot parent, std::span<const TokenId> tokens, OwnedPages pages,
                    std::int64_t now);
  // Lengthens a leaf in place. REQUIRES: it has no children and is no root.
  void grow(NodeSlot leaf, std::span<const TokenId> tokens, OwnedPages pages);
  // Takes the last ids.size() pages of a leaf out and writes their ids, in token order: the caller
  // owes them to their allocator. REQUIRES: it has no children and as many pages.
  void shrink(NodeSlot leaf, std::span<PageId> ids);
  // Removes a leaf that has no pages left.
  void remove(NodeSlot leaf);
  // No walk finds the node any more, nor what is added below it from now on; it keeps its parent
  // and its children. REQUIRES: it is no root and was not unlinked before.
  void unlink(NodeSlot slot);

  RadixNode& node(NodeSlot slot) noexcept { return nodes_[slot]; }
  const RadixNode& node(NodeSlot slot) const noexcept { return nodes_[slot]; }
  const NodeSlab& nodes() const noexcept { return nodes_; }
  PageArena& arena() noexcept { return arena_; }
  const PageArena& arena() const noexcept { return arena_; }
  std::int64_t page_size() const noexcept { return arena_.page_size(); }
  std::int64_t reserved_bytes() const noexcept;

  // Begins loading what removing this leaf will touch. Always inlined, as all that only prefetches:
  // GCC 12 takes such a function for one without effect, and drops calls of it.
  [[gnu::always_inline]] void prefetch_removal(NodeSlot leaf) const noexcept {
    const RadixNode& node = nodes_[leaf];
    table_.prefetch(node.hash);
    arena_.prefetch_back(node.chain);
    __builtin_prefetch(&nodes_[node.parent]);
    __builtin_prefetch(&nodes_.history(leaf));
  }
  [[gnu::always_inline]] void prefetch_node(NodeSlot slot) const noexcept {
    __builtin_prefetch(&nodes_[slot]);
  }

  // All tokens of a node, for people and checks. Allocates.
  std::vector<TokenId> tokens_of(NodeSlot slot) const;
  void append_tokens(NodeSlot slot, std::vector<TokenId>& tokens) const;
  // The children of one node, by their slots. Allocates for them. O(nodes), a look at each.
  std::vector<NodeSlot> children_of(NodeSlot parent) const;
  // The same of every node, by their slots: of each node its first child, and its next sibling.
  struct ChildLists {
    std::vector<NodeSlot> first_child;
    std::vector<NodeSlot> next_sibling;
  };
  ChildLists child_lists() const;
  // How many nodes that has looked at since construction.
  std::int64_t listed_nodes() const noexcept { return listed_nodes_; }
  // Slots of the children of every node, by parent, each list by its tokens. Allocates for each:
  // for checks, and what is seldom asked.
  std::vector<std::vector<NodeSlot>> children() const;

  // Structure alone: chains, table, counts of children, starts. A description of the first
  // contradiction, or nullopt. O(nodes + tokens).
  std::optional<std::string> audit() const;

 private:
  std::span<const TokenId> first_page(NodeSlot slot) const noexcept {
    return arena_.tokens_of(nodes_[slot].chain.first, 1);
  }
  bool still_ends(WalkEnd& end, std::span<const TokenId> tokens) const;
  std::optional<std::string> audit_node(NodeSlot slot) const;

  NodeSlab nodes_;
  PageArena arena_;
  ChildTable table_;
  ChildHash hash_;
  mutable std::int64_t listed_nodes_ = 0;
};

}  // namespace stemma
