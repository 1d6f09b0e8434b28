// TenantQuotas: how many pages of a tree each tenant is sure of, and how many it has.
//
// A tenant is a family of namespaces. Within its quota it keeps what it has while others want
// pages; beyond it, and without a quota, its pages go in everybody's order.
//
// Thread:     engine thread only.
// Memory:     4 bytes a node the tree may have, from the first quota on; about 80 bytes a tenant
//             that has one.
// Cost:       O(1).
// Not here:   which pages go (radix_prefix_cache), leaves that are spared (parked_leaves).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <vector>

#include "base/prng.h"
#include "prefix/radix_node.h"
#include "prefix/untouched_array.h"
#include "stemma/ids.h"
#include "stemma/prefix_cache.h"

namespace stemma {

// A tenant with a quota, by its place in the order in which quotas were first given.
using TenantId = StrongId<struct TenantTag>;

class TenantQuotas {
 public:
  explicit TenantQuotas(std::int64_t nodes_max) : nodes_max_(nodes_max) {}

  // Whether any tenant has a quota. Else nothing below is to be asked or told, but for
  // over_pages of a node.
  bool any() const noexcept { return any_; }
  std::int64_t tenants() const noexcept { return std::ssize(quotas_); }
  const TenantQuota& quota(TenantId tenant) const { return quotas_[tenant.index()]; }

  // True where the tenant had none: then its roots are to be named, and its nodes to be placed and
  // counted; where nobody had any, those of everybody. REQUIRES: pages >= 0.
  bool set(const NamespaceFamily& family, std::int64_t pages);

  // Invalid: the family has no quota.
  TenantId find(const NamespaceFamily& family) const;
  // Whose the namespace below `root` is from now on.
  void name_root(NodeSlot root, const NamespaceFamily& family) {
    tenants_[root.index()] = find(family);
  }
  // `node` is whose `other` is: a node below it, or a part of it.
  void place(NodeSlot node, NodeSlot other) { tenants_[node.index()] = tenants_[other.index()]; }
  // Whose a node is; invalid: one's who has no quota.
  TenantId tenant_of(NodeSlot node) const { return tenants_[node.index()]; }

  // So many pages of the node came, or went if negative. Whose they are.
  TenantId count(NodeSlot node, std::int64_t pages) {
    const TenantId tenant = tenant_of(node);
    if (tenant.valid()) quotas_[tenant.index()].pages += pages;
    return tenant;
  }

  // Pages that its tenant has beyond its quota; as many as one likes where it has none.
  std::int64_t over_pages(NodeSlot node) const {
    const TenantId tenant = any_ ? tenant_of(node) : TenantId();
    return tenant.valid() ? over_pages(tenant) : std::numeric_limits<std::int64_t>::max();
  }
  std::int64_t over_pages(TenantId tenant) const {
    return std::max<std::int64_t>(quota(tenant).pages - quota(tenant).quota_pages, 0);
  }
  // Whether `a` has more of its quota than `b` of its own.
  bool fuller(TenantId a, TenantId b) const {
    return quota(a).pages * quota(b).quota_pages > quota(b).pages * quota(a).quota_pages;
  }

 private:
  struct FamilyHash {
    std::size_t operator()(const NamespaceFamily& family) const noexcept {
      std::uint64_t bits = 0;
      static_assert(sizeof bits == sizeof family.bytes);
      std::memcpy(&bits, family.bytes.data(), sizeof bits);
      return static_cast<std::size_t>(mix64(bits));
    }
  };

  bool any_ = false;  // asked several times a leaf that goes
  std::int64_t nodes_max_;
  std::vector<TenantQuota> quotas_;  // by tenant
  std::unordered_map<NamespaceFamily, TenantId, FamilyHash> by_family_;
  UntouchedArray<TenantId> tenants_;  // by node
};

}  // namespace stemma
