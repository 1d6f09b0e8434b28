// EvictionIndex: the unlocked leaves, coldest first, kept up to date instead of built when needed.
//
// A 4-ary heap over (key, node id): shallow, and the four children of an entry fill two cache
// lines. Places are kept per slot, outside the nodes, so that sifting touches two dense arrays.
//
// Thread:     engine thread only.
// Memory:     36 bytes a node the tree may have, touched up to the high-water marks.
// Cost:       push, remove and pop O(log leaves).
// Not here:   keys (eviction_order), which nodes are unlocked leaves (radix_prefix_cache).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "prefix/eviction_order.h"
#include "prefix/high_water_array.h"
#include "prefix/radix_node.h"
#include "prefix/untouched_array.h"

namespace stemma {

class EvictionIndex {
 public:
  // REQUIRES: 0 <= nodes_max < 2^31.
  explicit EvictionIndex(std::int64_t nodes_max);

  // REQUIRES: not contains(slot).
  void push(NodeSlot slot, const EvictionKey& key, NodeId id);
  // REQUIRES: contains(slot).
  void remove(NodeSlot slot);

  bool empty() const noexcept { return count_ == 0; }
  std::int64_t leaves() const noexcept { return count_; }
  // The coldest leaf. REQUIRES: not empty().
  NodeSlot top() const noexcept { return entries_[place(0)].slot; }
  bool contains(NodeSlot slot) const noexcept { return places_[slot.index()] >= 0; }
  // REQUIRES: contains(slot).
  const EvictionKey& key(NodeSlot slot) const;

  // The leaves at most two steps below top(), those one step below first: the next ones to go, and
  // more. REQUIRES: 0 <= i < near_top_leaves().
  NodeSlot near_top(std::int64_t i) const noexcept { return entries_[place(i)].slot; }
  std::int64_t near_top_leaves() const noexcept {
    return std::min(count_, 1 + kArity + kArity * kArity);
  }

  // The leaf that rose to `depth` steps below the top when top() was last removed; invalid if none
  // did, or it has left since. It is the one leaf there whose turn came nearer: what to load ahead.
  // REQUIRES: 0 < depth < kRisenDepths.
  NodeSlot risen(int depth) const noexcept {
    const NodeSlot slot = risen_[static_cast<std::size_t>(depth)];
    return slot.valid() && contains(slot) ? slot : NodeSlot();
  }
  static constexpr int kRisenDepths = 4;

  // The order and the places; a description of the first contradiction. O(leaves).
  std::optional<std::string> audit() const;

 private:
  static constexpr std::int64_t kArity = 4;

  struct Entry {
    EvictionKey key;
    NodeId id;
    NodeSlot slot;

    bool colder_than(const Entry& other) const noexcept {
      if (key.first != other.key.first) return key.first < other.key.first;
      if (key.second != other.key.second) return key.second < other.key.second;
      return id < other.id;
    }
  };

  // Where entry i lies: the children of an entry fill two cache lines exactly.
  static std::size_t place(std::int64_t i) noexcept { return static_cast<std::size_t>(i) + 3; }
  void put(std::int64_t i, const Entry& entry) noexcept;
  void sift_up(std::int64_t i, const Entry& entry) noexcept;
  void sift_down(std::int64_t i, const Entry& entry) noexcept;

  std::int64_t count_ = 0;
  std::array<NodeSlot, kRisenDepths> risen_ = {};
  UntouchedArray<Entry> entries_;
  HighWaterArray<std::int32_t> places_;  // by slot; −1: not in the index
};

}  // namespace stemma
