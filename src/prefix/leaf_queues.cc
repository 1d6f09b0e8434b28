#include "prefix/leaf_queues.h"

#include <cstring>

#include "base/check.h"

namespace stemma {

void* LeafPlaces::take() {
  if (unused_ != nullptr) {
    void* place = unused_;
    std::memcpy(&unused_, place, sizeof unused_);
    return place;
  }
  STEMMA_CHECK(high_water_ < places_.size(), "a leaf is a node, and nodes are counted");
  return &places_[high_water_++];
}

void LeafPlaces::give_back(void* place) noexcept {
  std::memcpy(place, &unused_, sizeof unused_);
  unused_ = place;
}

LeafQueues::LeafQueues(std::int64_t nodes_max, int kinds)
    : places_(nodes_max),
      kinds_(static_cast<std::size_t>(nodes_max), -1),
      queued_(static_cast<std::size_t>(nodes_max)) {
  for (int kind = 0; kind < kinds; ++kind) {
    queues_.emplace_back(std::less<>(), LeafPlaceAllocator<QueuedLeaf>(places_));
  }
}

void LeafQueues::add(int kind, const QueuedLeaf& leaf) {
  STEMMA_CHECK(!contains(leaf.slot), "a leaf is in one queue");
  Queue& queue = queues_[static_cast<std::size_t>(kind)];
  queue.emplace_hint(queue.end(), leaf);
  kinds_[leaf.slot.index()] = static_cast<std::int16_t>(kind);
  queued_[leaf.slot.index()] = leaf;
  ++leaves_;
}

void LeafQueues::remove(NodeSlot slot) {
  STEMMA_CHECK(contains(slot), "only an evictable leaf leaves its queue");
  queues_[static_cast<std::size_t>(kind_of(slot))].erase(queued_[slot.index()]);
  kinds_[slot.index()] = -1;
  --leaves_;
}

}  // namespace stemma
