// TenantHeap: some tenants in an order that changes, of which the first is at hand.
//
// Thread:     engine thread only.
// Memory:     8 bytes a tenant.
// Cost:       first O(1); whatever changes the order O(log tenants).
// Not here:   what the order is (parked_leaves).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "prefix/tenant_quotas.h"

namespace stemma {

class TenantHeap {
 public:
  // There may be one tenant more.
  void add_tenant() {
    places_.push_back(kNowhere);
    heap_.reserve(places_.capacity());
  }
  bool contains(TenantId tenant) const { return places_[tenant.index()] != kNowhere; }
  bool empty() const noexcept { return heap_.empty(); }
  // REQUIRES: not empty().
  TenantId first() const noexcept { return heap_.front(); }

  // The tenant comes, or has another place now. `before(a, b)`: whether a goes before b.
  template <typename Before>
  void put(TenantId tenant, Before&& before) {
    if (!contains(tenant)) {
      places_[tenant.index()] = static_cast<std::int32_t>(heap_.size());
      heap_.push_back(tenant);
    }
    settle(at(tenant), before);
  }
  // REQUIRES: contains(tenant).
  template <typename Before>
  void remove(TenantId tenant, Before&& before) {
    STEMMA_CHECK(contains(tenant), "only who is here leaves");
    const std::size_t hole = at(tenant);
    places_[tenant.index()] = kNowhere;
    const TenantId last = heap_.back();
    heap_.pop_back();
    if (hole == heap_.size()) return;
    set(hole, last);
    settle(hole, before);
  }

 private:
  static constexpr std::int32_t kNowhere = -1;

  std::size_t at(TenantId tenant) const {
    return static_cast<std::size_t>(places_[tenant.index()]);
  }
  void set(std::size_t i, TenantId tenant) {
    heap_[i] = tenant;
    places_[tenant.index()] = static_cast<std::int32_t>(i);
  }
  void swap(std::size_t i, std::size_t j) {
    const TenantId first = heap_[i];
    set(i, heap_[j]);
    set(j, first);
  }
  // The one at place i goes up, or down, to where it belongs.
  template <typename Before>
  void settle(std::size_t i, Before&& before) {
    for (; i > 0 && before(heap_[i], heap_[(i - 1) / 2]); i = (i - 1) / 2) swap(i, (i - 1) / 2);
    for (;;) {
      std::size_t next = i;
      for (std::size_t child = 2 * i + 1; child <= 2 * i + 2 && child < heap_.size(); ++child) {
        if (before(heap_[child], heap_[next])) next = child;
      }
      if (next == i) return;
      swap(i, next);
      i = next;
    }
  }

  std::vector<TenantId> heap_;
  std::vector<std::int32_t> places_;  // by tenant
};

}  // namespace stemma
