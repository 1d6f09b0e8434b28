// RadixNode and NodeSlab: the nodes of the tree, in a slab that never moves them.
//
// What a walk reads of a node lies in one cache line. Its history, which only eviction orders, ties
// and ends of earlier walks ask for, lies beside the slab's line of nodes.
//
// Thread:     engine thread only.
// Memory:     88 bytes a node; reserved at construction, touched up to the high-water mark.
// Cost:       making and dropping a node O(1).
// Not here:   what nodes mean to each other (radix_tree), tokens and pages (page_arena).
#pragma once

#include <cstdint>

#include "prefix/page_arena.h"
#include "prefix/untouched_array.h"
#include "stemma/ids.h"

namespace stemma {

// The place of a node in its slab. Reused when the node is gone; its NodeId is not.
using NodeSlot = StrongId<struct NodeSlotTag>;

// One node: a stretch of tokens that every text below it shares.
struct alignas(64) RadixNode {
  NodeSlot parent;               // invalid: a namespace's root
  PageChain chain;               // the tokens and pages; none in a root, else at least one
  std::int32_t start_pages = 0;  // pages above it, from the root on
  std::int32_t children = 0;
  std::int32_t lock_count = 0;   // locks that hold it: on it, and on anything below it (I3)
  std::uint32_t hash = 0;        // under which its parent finds it
  std::int32_t hits = 0;         // matches that covered it
  std::int32_t priority = 0;     // the highest given to it or to what was evicted below it
  std::int32_t keyed_pages = 0;  // its first pages, whose keys are known
  bool unlinked = false;         // no walk finds it: it stays only as long as it is locked
  std::int64_t last_use = 0;     // of it, or of what was evicted below it; logical time
  std::int64_t aging = 0;        // at its last use: see NodeUse

  bool is_root() const noexcept { return !parent.valid(); }
  std::int64_t end_pages() const noexcept { return std::int64_t{start_pages} + chain.pages; }
};
static_assert(sizeof(RadixNode) == 64, "a walk touches one cache line of each node");

// When a node came to be, and how often it is another one to walks since.
struct NodeHistory {
  NodeId id;                 // no other node ever has it; invalid: the slot is empty
  std::int64_t created = 0;  // logical time; both parts of a split keep it
  std::int64_t changes = 0;  // of its pages, and of whether it is found
};

class NodeSlab {
 public:
  // REQUIRES: 0 <= nodes_max < 2^31.
  explicit NodeSlab(std::int64_t nodes_max);

  // A blank node with the next id. REQUIRES: fewer than nodes_max exist.
  NodeSlot make(std::int64_t created);
  // Drops it. REQUIRES: it exists.
  void drop(NodeSlot slot);

  RadixNode& operator[](NodeSlot slot) noexcept { return nodes_[slot.index()]; }
  const RadixNode& operator[](NodeSlot slot) const noexcept { return nodes_[slot.index()]; }
  // The slot of a node of this slab.
  NodeSlot slot_of(const RadixNode* node) const noexcept {
    return NodeSlot(static_cast<std::int32_t>(node - nodes_.data()));
  }
  const NodeHistory& history(NodeSlot slot) const noexcept { return histories_[slot.index()]; }
  void note_change(NodeSlot slot) noexcept { ++histories_[slot.index()].changes; }

  bool exists(NodeSlot slot) const noexcept {
    return slot.valid() && slot.value() < high_water_ && histories_[slot.index()].id.valid();
  }
  std::int64_t nodes() const noexcept { return nodes_in_use_; }
  // Every slot ever used lies below it.
  std::int32_t high_water() const noexcept { return high_water_; }
  std::int64_t nodes_max() const noexcept { return nodes_max_; }

 private:
  std::int64_t nodes_max_;
  std::int64_t nodes_in_use_ = 0;
  std::int32_t high_water_ = 0;
  NodeSlot unused_;  // dropped slots, last dropped first, linked through `parent`
  std::int64_t next_id_ = 0;
  UntouchedArray<RadixNode> nodes_;
  UntouchedArray<NodeHistory> histories_;
};

}  // namespace stemma
