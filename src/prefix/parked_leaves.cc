#include "prefix/parked_leaves.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

void ParkedLeaves::add_queue() {
  if (queues_.empty()) {
    places_ = UntouchedArray<Place>(static_cast<std::size_t>(nodes_max_), Place());
  }
  queues_.emplace_back();
}

void ParkedLeaves::park(NodeSlot slot, TenantId tenant, std::int64_t last_use) {
  STEMMA_CHECK(!contains(slot), "a leaf is parked once");
  Place& place = places_[slot.index()];
  place.turn = ++turns_;
  place.last_use = last_use;
  place.tenant = tenant;
  link(slot, queues_[tenant.index()].last);
}

// Who copies pages ahead of their eviction holds the first leaves of a queue and lets go of them in
// their order; who does so at the end of a life holds all. Either way its place is near.
bool ParkedLeaves::try_return(NodeSlot slot, std::int64_t last_use) {
  const Place& place = places_[slot.index()];
  STEMMA_CHECK(!place.parked, "a leaf is parked once");
  if (place.turn == 0 || place.last_use != last_use) return false;
  const Queue& queue = queues_[place.tenant.index()];
  if (queue.last.valid() && turn(queue.last) < place.turn) {
    link(slot, queue.last);
    return true;
  }
  NodeSlot before;
  for (NodeSlot at = queue.first; at.valid() && turn(at) < place.turn;
       at = places_[at.index()].after) {
    before = at;
  }
  link(slot, before);
  return true;
}

void ParkedLeaves::remove(NodeSlot slot) {
  STEMMA_CHECK(contains(slot), "only a parked leaf leaves");
  Place& place = places_[slot.index()];
  Queue& queue = queues_[place.tenant.index()];
  (place.before.valid() ? places_[place.before.index()].after : queue.first) = place.after;
  (place.after.valid() ? places_[place.after.index()].before : queue.last) = place.before;
  place.before = place.after = NodeSlot();
  place.parked = false;
  --leaves_;
}

// Behind `before`, of its tenant's queue; invalid: first of all.
void ParkedLeaves::link(NodeSlot slot, NodeSlot before) {
  Place& place = places_[slot.index()];
  Queue& queue = queues_[place.tenant.index()];
  NodeSlot& next = before.valid() ? places_[before.index()].after : queue.first;
  place.before = before;
  place.after = next;
  place.parked = true;
  (next.valid() ? places_[next.index()].before : queue.last) = slot;
  next = slot;
  ++leaves_;
}

std::optional<std::string> ParkedLeaves::audit() const {
  std::int64_t linked = 0;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const TenantId tenant(static_cast<std::int32_t>(i));
    NodeSlot before;
    for (NodeSlot at = queues_[i].first; at.valid(); at = places_[at.index()].after) {
      const Place& place = places_[at.index()];
      if (!place.parked || place.tenant != tenant) return "parked: a leaf is in another's queue";
      if (place.before != before) return "parked: a leaf does not know who is before it";
      if (before.valid() && turn(before) >= place.turn) return "parked: leaves are out of order";
      before = at;
      ++linked;
    }
    if (queues_[i].last != before) return "parked: a queue does not know its last leaf";
  }
  const auto marked = std::count_if(places_.begin(), places_.end(),
                                    [](const Place& place) { return place.parked; });
  if (linked != leaves_ || marked != leaves_) return "parked: leaves are miscounted";
  return std::nullopt;
}

}  // namespace stemma
