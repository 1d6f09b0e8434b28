// WantedLeaves: what waiting requests will look up, and the leaves of it, which go after all
// others.
//
// A want marks a node and how many of its first pages are wanted. An unlocked leaf that is wanted
// as a whole waits here instead of in the eviction order; one that is wanted in part loses the rest
// first. Wants lapse together, and are then said again: none needs to be taken back alone.
//
// Thread:     engine thread only.
// Memory:     60 bytes a node the tree may have, touched up to the high-water marks.
// Cost:       marks O(1); a leaf in or out O(log wanted leaves).
// Not here:   which nodes a text covers, and everybody else's order (radix_prefix_cache).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "prefix/eviction_index.h"
#include "prefix/high_water_array.h"
#include "prefix/radix_node.h"

namespace stemma {

// When what is wanted will be used.
struct WantedTurn {
  std::int64_t turn = 0;  // the lowest first,
  bool shared = false;    // and of one turn what others go on from
  bool is_before(const WantedTurn& other) const noexcept {
    return turn != other.turn ? turn < other.turn : shared && !other.shared;
  }
};

class WantedLeaves {
 public:
  explicit WantedLeaves(std::int64_t nodes_max);

  // The node's first `pages` are wanted by the request of that turn. Adds to what is wanted of it
  // already. REQUIRES: not contains(slot).
  void want(NodeSlot slot, std::int32_t pages, const WantedTurn& turn);
  // How many of the node's first pages are wanted.
  std::int64_t wanted_pages(NodeSlot slot) const noexcept {
    if (!any_) return 0;  // most of the time: nothing is touched
    const Want& want = wants_[slot.index()];
    return want.round == round_ ? want.pages : 0;
  }
  // Every want lapses. The leaves that are here stay, to be removed by who put them here.
  void lapse() noexcept {
    ++round_;
    any_ = false;
  }

  // `lower` was cut: its first `pages` are those of `upper`. What was wanted as a whole still is.
  void split(NodeSlot lower, NodeSlot upper, std::int32_t pages);
  // The node is gone. REQUIRES: not contains(slot).
  void forget(NodeSlot slot) noexcept {
    if (any_) wants_.at(slot.index()) = {};
  }

  // REQUIRES: not contains(slot); it is wanted.
  void add_leaf(NodeSlot slot, NodeId id);
  // REQUIRES: contains(slot).
  void remove_leaf(NodeSlot slot) { leaves_.remove(slot); }
  bool contains(NodeSlot slot) const noexcept { return leaves_.contains(slot); }
  std::int64_t leaves() const noexcept { return leaves_.leaves(); }
  // The leaf whose turn comes last. REQUIRES: leaves() > 0.
  NodeSlot last() const noexcept { return leaves_.top(); }

  // As EvictionIndex::audit.
  std::optional<std::string> audit() const { return leaves_.audit(); }

 private:
  struct Want {
    std::uint32_t round = 0;  // 0: never
    std::int32_t pages = 0;
    WantedTurn turn;
  };

  std::uint32_t round_ = 1;
  bool any_ = false;            // whether anything is wanted in this round
  HighWaterArray<Want> wants_;  // by node
  EvictionIndex leaves_;        // by turn, the last first
};

}  // namespace stemma
