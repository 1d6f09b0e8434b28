#include "prefix/parked_leaves.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

void ParkedLeaves::add_queue() {
  if (queues_.empty()) {
    places_ = UntouchedArray<Place>(static_cast<std::size_t>(nodes_max_), Place());
  }
  queues_.emplace_back();
  by_turn_.add_tenant();
  by_fill_.add_tenant();
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
  rank(place.tenant);
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
  rank(place.tenant);
}

// The first leaf of its queue may be another, or there is none any more.
void ParkedLeaves::rank(TenantId tenant) {
  const auto older = [this](TenantId a, TenantId b) { return is_older(a, b); };
  const auto fuller = [this](TenantId a, TenantId b) { return is_fuller(a, b); };
  if (!first(tenant).valid()) {
    by_turn_.remove(tenant, older);
    by_fill_.remove(tenant, fuller);
    return;
  }
  by_turn_.put(tenant, older);
  if (!by_fill_.contains(tenant)) by_fill_.put(tenant, fuller);
}

void ParkedLeaves::recount(TenantId tenant) {
  if (!tenant.valid() || !by_fill_.contains(tenant)) return;
  by_fill_.put(tenant, [this](TenantId a, TenantId b) { return is_fuller(a, b); });
}

// Of two that are as full the one whose quota was given first.
bool ParkedLeaves::is_fuller(TenantId a, TenantId b) const {
  return quotas_.fuller(a, b) || (!quotas_.fuller(b, a) && a < b);
}

// Against a look at every tenant.
std::optional<std::string> ParkedLeaves::audit_ranks() const {
  TenantId oldest;
  TenantId fullest;
  for (const TenantId tenant : id_range(TenantId(0), std::ssize(queues_))) {
    if (!first(tenant).valid()) continue;
    if (!oldest.valid() || is_older(tenant, oldest)) oldest = tenant;
    if (!fullest.valid() || is_fuller(tenant, fullest)) fullest = tenant;
  }
  if (this->oldest() != (oldest.valid() ? first(oldest) : NodeSlot()))
    return "parked: another leaf came first";
  if (this->fullest() != fullest) return "parked: another tenant is the fullest";
  return std::nullopt;
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
  return audit_ranks();
}

}  // namespace stemma
