// PageDebts: which pages of a tree are still owed to somebody who could not take them yet, such as
// a page store, and whose turn is next.
//
// Of each node and creditor one stretch of pages is owed; what lies between two stretches of a node
// is owed too. Each creditor has a queue of nodes, the oldest first. A page that leaves the tree is
// written off: nobody gets it any more.
//
// Thread:     engine thread only.
// Memory:     16 bytes a node the tree may have and a creditor, touched up to the high-water mark.
// Cost:       O(1) for one creditor; O(creditors) where a node is split or cut.
// Not here:   texts and locks (radix_prefix_cache_debts), who the creditors are (cache/backups).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prefix/high_water_array.h"
#include "prefix/radix_node.h"

namespace stemma {

// Pages from `first` to before `end`, of a text or a node.
struct PageStretch {
  std::int64_t first = 0;
  std::int64_t end = 0;

  std::int64_t pages() const noexcept { return std::max<std::int64_t>(end - first, 0); }
  bool empty() const noexcept { return end <= first; }
  friend bool operator==(const PageStretch&, const PageStretch&) = default;
};

class PageDebts {
 public:
  // Creditors are named 0 … creditors - 1.
  PageDebts(std::int64_t nodes_max, std::int64_t creditors);

  // Whether anything is owed to anybody. Else nothing below is to be told.
  bool any() const noexcept { return owed_pages_ > 0; }
  std::int64_t creditors() const noexcept { return std::ssize(queues_); }
  std::int64_t owed_pages() const noexcept { return owed_pages_; }
  std::int64_t owed_pages(std::int64_t creditor) const { return queue(creditor).pages; }
  // Pages that were owed and went, once a creditor; since construction.
  std::int64_t written_off_pages() const noexcept { return written_off_pages_; }

  // These pages of the node are owed too. REQUIRES: they are not none.
  void owe(NodeSlot node, std::int64_t creditor, const PageStretch& pages);
  // What is owed of the node, maybe nothing.
  PageStretch of(NodeSlot node, std::int64_t creditor) const;
  // Whose turn is next, and who comes after; invalid: nobody.
  NodeSlot oldest_or_none(std::int64_t creditor) const { return queue(creditor).oldest; }
  NodeSlot newer_or_none(NodeSlot node, std::int64_t creditor) const {
    return queue(creditor).debts[node.index()].newer;
  }
  // The creditor takes what it is owed of the node. REQUIRES: that is not nothing.
  PageStretch take(NodeSlot node, std::int64_t creditor);

  // `lower` was cut: its first `pages` are those of `upper`.
  void split(NodeSlot lower, NodeSlot upper, std::int64_t pages);
  // The node keeps its first `pages` alone.
  void cut(NodeSlot node, std::int64_t pages);
  // Of pages that will not come at all.
  void write_off(std::int64_t pages) noexcept { written_off_pages_ += pages; }

  // The first contradiction between queues and counts; nullopt if there is none. O(nodes).
  std::optional<std::string> audit() const;

 private:
  struct Debt {
    std::int32_t first = 0;  // pages of the node; in no queue where there are none
    std::int32_t end = 0;
    NodeSlot older;
    NodeSlot newer;
  };
  struct Queue {
    HighWaterArray<Debt> debts;  // by node
    NodeSlot oldest;
    NodeSlot newest;
    std::int64_t pages = 0;
  };

  const Queue& queue(std::int64_t creditor) const {
    return queues_[static_cast<std::size_t>(creditor)];
  }
  void set(Queue& queue, NodeSlot node, const PageStretch& pages);
  static void link(Queue& queue, NodeSlot node);
  static void unlink(Queue& queue, NodeSlot node);

  std::vector<Queue> queues_;  // by creditor
  std::int64_t owed_pages_ = 0;
  std::int64_t written_off_pages_ = 0;
};

}  // namespace stemma
