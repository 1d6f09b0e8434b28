// EvictionIndex: the unlocked leaves, coldest first, kept up to date instead of built when needed.
//
// A 4-ary heap over (key, node id): shallow, and the four children of an entry lie in two cache
// lines. Places are kept per slot, outside the nodes, so that sifting touches two dense arrays.
//
// Thread:     engine thread only.
// Memory:     36 bytes a node the tree may have; entries are touched up to the high-water mark.
// Cost:       push, remove and pop O(log leaves).
// Not here:   keys (eviction_order), which nodes are unlocked leaves (radix_prefix_cache).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prefix/eviction_order.h"
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
  NodeSlot top() const noexcept { return entries_[0].slot; }
  bool contains(NodeSlot slot) const noexcept { return places_[slot.index()] >= 0; }
  // REQUIRES: contains(slot).
  const EvictionKey& key(NodeSlot slot) const;

  // Calls visit(slot) for each leaf that can be next after top().
  template <typename Visit>
  void for_each_next(Visit&& visit) const {
    for (std::int64_t i = 1; i < count_ && i <= kArity; ++i) visit(entries_[place(i)].slot);
  }

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

  static std::size_t place(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }
  void put(std::int64_t i, const Entry& entry) noexcept;
  void sift_up(std::int64_t i, const Entry& entry) noexcept;
  void sift_down(std::int64_t i, const Entry& entry) noexcept;

  std::int64_t count_ = 0;
  UntouchedArray<Entry> entries_;
  std::vector<std::int32_t> places_;  // by slot; −1: not in the index
};

}  // namespace stemma
