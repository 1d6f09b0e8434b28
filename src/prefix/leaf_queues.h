// LeafQueues: evictable leaves by kind, each kind in the order of last use, with both ends at hand.
//
// Thread:     engine thread only.
// Memory:     60 bytes a node the tree may have, reserved at construction, touched up to the
//             high-water mark.
// Cost:       adding and removing O(log leaves of the kind), O(1) at the young end; the ends O(1).
// Not here:   what a kind is worth (hazard_policy).
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "prefix/radix_node.h"
#include "prefix/untouched_array.h"

namespace stemma {

// Where a leaf stands in the order of last use.
struct QueuedLeaf {
  std::uint32_t request = 0;  // the number of the request that used it last
  NodeId id;                  // of equal ones the older node first
  NodeSlot slot;
  friend bool operator<(const QueuedLeaf& a, const QueuedLeaf& b) noexcept {
    return a.request != b.request ? a.request < b.request : a.id < b.id;
  }
};

// Hands out places of one size from memory that is reserved once.
class LeafPlaces {
 public:
  static constexpr std::size_t kPlaceBytes = 56;

  explicit LeafPlaces(std::int64_t places) : places_(static_cast<std::size_t>(places)) {}
  void* take();
  void give_back(void* place) noexcept;

 private:
  struct alignas(8) Place {
    std::byte bytes[kPlaceBytes];
  };
  UntouchedArray<Place> places_;
  std::size_t high_water_ = 0;
  void* unused_ = nullptr;  // linked through the places' first bytes
};

// Lets a std::set live in LeafPlaces.
template <typename T>
struct LeafPlaceAllocator {
  using value_type = T;
  explicit LeafPlaceAllocator(LeafPlaces& from) noexcept : places(&from) {}
  template <typename U>
  explicit(false) LeafPlaceAllocator(const LeafPlaceAllocator<U>& other) noexcept
      : places(other.places) {}
  T* allocate(std::size_t) {
    static_assert(sizeof(T) <= LeafPlaces::kPlaceBytes);
    return static_cast<T*>(places->take());
  }
  void deallocate(T* place, std::size_t) noexcept { places->give_back(place); }
  friend bool operator==(const LeafPlaceAllocator&, const LeafPlaceAllocator&) = default;
  LeafPlaces* places;
};

class LeafQueues {
 public:
  // REQUIRES: 0 <= nodes_max < 2^31, kinds >= 1.
  LeafQueues(std::int64_t nodes_max, int kinds);

  // REQUIRES: not contains(leaf.slot).
  void add(int kind, const QueuedLeaf& leaf);
  // REQUIRES: contains(slot).
  void remove(NodeSlot slot);

  bool contains(NodeSlot slot) const noexcept { return kinds_[slot.index()] >= 0; }
  // REQUIRES: contains(slot).
  int kind_of(NodeSlot slot) const noexcept { return kinds_[slot.index()]; }
  std::int64_t leaves() const noexcept { return leaves_; }
  std::int64_t leaves_of(int kind) const noexcept {
    return static_cast<std::int64_t>(queue(kind).size());
  }
  bool empty(int kind) const noexcept { return queue(kind).empty(); }
  // REQUIRES: not empty(kind).
  const QueuedLeaf& oldest(int kind) const noexcept { return *queue(kind).begin(); }
  const QueuedLeaf& youngest(int kind) const noexcept { return *queue(kind).rbegin(); }

 private:
  using Queue = std::set<QueuedLeaf, std::less<>, LeafPlaceAllocator<QueuedLeaf>>;
  const Queue& queue(int kind) const noexcept { return queues_[static_cast<std::size_t>(kind)]; }

  LeafPlaces places_;
  std::vector<Queue> queues_;
  std::int64_t leaves_ = 0;
  UntouchedArray<std::int16_t> kinds_;  // by slot; −1: not here
  UntouchedArray<QueuedLeaf> queued_;   // by slot
};

}  // namespace stemma
