// ParkedLeaves: leaves whose turn to go came while their tenant was within its quota. They wait
// here, each tenant's in the order in which they came, which is its own order: the coldest first.
//
// A leaf that somebody holds leaves; where it was not used meanwhile it comes back to its place.
//
// Thread:     engine thread only.
// Memory:     32 bytes a node the tree may have, from the first queue on, all touched then; 16 a
//             tenant.
// Cost:       O(log tenants); coming back O(leaves of the tenant that are parked before it, and
//             were held and came back too), at worst O(leaves of the tenant).
// Not here:   who is within a quota (tenant_quotas), everybody's order (eviction_index,
//             page_policy).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prefix/radix_node.h"
#include "prefix/tenant_heap.h"
#include "prefix/tenant_quotas.h"
#include "prefix/untouched_array.h"

namespace stemma {

class ParkedLeaves {
 public:
  // `quotas` must outlive it, and say which tenants are fuller than others.
  ParkedLeaves(std::int64_t nodes_max, const TenantQuotas& quotas)
      : nodes_max_(nodes_max), quotas_(quotas) {}

  // For one tenant more.
  void add_queue();

  // The leaf's turn came. `last_use` is that of its node. REQUIRES: not contains(slot).
  void park(NodeSlot slot, TenantId tenant, std::int64_t last_use);
  // Back to its place, if it was here since it came to be and was not used after that.
  // REQUIRES: not contains(slot); there is a queue.
  bool try_return(NodeSlot slot, std::int64_t last_use);
  // REQUIRES: contains(slot).
  void remove(NodeSlot slot);
  // The tenant has more pages or fewer, or another quota. Invalid: nobody's.
  void recount(TenantId tenant);
  // The node is gone. REQUIRES: not contains(slot); there is a queue.
  void forget(NodeSlot slot) noexcept { places_[slot.index()] = {}; }

  bool contains(NodeSlot slot) const noexcept {
    return leaves_ > 0 && places_[slot.index()].parked;  // most of the time: nothing is touched
  }
  std::int64_t leaves() const noexcept { return leaves_; }
  // Of a tenant, the one that came first; invalid: it has none here.
  NodeSlot first(TenantId tenant) const noexcept { return queues_[tenant.index()].first; }
  // Of all tenants, the leaf that came first, and the tenant that has most of its quota among those
  // who have leaves here; invalid: there are none.
  NodeSlot oldest() const { return by_turn_.empty() ? NodeSlot() : first(by_turn_.first()); }
  TenantId fullest() const { return by_fill_.empty() ? TenantId() : by_fill_.first(); }
  // Leaves have turns in the order in which they came, whosever they are. REQUIRES: contains(slot).
  std::int64_t turn(NodeSlot slot) const noexcept { return places_[slot.index()].turn; }
  // REQUIRES: contains(slot).
  TenantId tenant_of(NodeSlot slot) const noexcept { return places_[slot.index()].tenant; }

  // The queues' links and order; a description of the first contradiction. O(leaves + nodes_max).
  std::optional<std::string> audit() const;

 private:
  struct Place {
    std::int64_t turn = 0;  // 0: it was never here
    std::int64_t last_use = 0;
    NodeSlot before;
    NodeSlot after;
    TenantId tenant;
    bool parked = false;
  };
  struct Queue {
    NodeSlot first;
    NodeSlot last;
  };

  void link(NodeSlot slot, NodeSlot before);
  void rank(TenantId tenant);
  bool is_older(TenantId a, TenantId b) const { return turn(first(a)) < turn(first(b)); }
  bool is_fuller(TenantId a, TenantId b) const;
  std::optional<std::string> audit_ranks() const;

  std::int64_t nodes_max_;
  const TenantQuotas& quotas_;
  std::int64_t turns_ = 0;
  std::int64_t leaves_ = 0;
  std::vector<Queue> queues_;     // by tenant
  TenantHeap by_turn_;            // of tenants that have leaves here
  TenantHeap by_fill_;            // the same
  UntouchedArray<Place> places_;  // by node
};

}  // namespace stemma
