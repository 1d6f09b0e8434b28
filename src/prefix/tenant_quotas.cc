#include "prefix/tenant_quotas.h"

#include "base/check.h"

namespace stemma {

bool TenantQuotas::set(const NamespaceFamily& family, std::int64_t pages) {
  STEMMA_CHECK_GE(pages, 0);
  const TenantId known = find(family);
  if (known.valid()) {
    quotas_[known.index()].quota_pages = pages;
    return false;
  }
  if (!any()) tenants_ = UntouchedArray<TenantId>(static_cast<std::size_t>(nodes_max_));
  any_ = true;
  by_family_.emplace(family, TenantId(static_cast<std::int32_t>(quotas_.size())));
  quotas_.push_back({.family = family, .quota_pages = pages});
  return true;
}

TenantId TenantQuotas::find(const NamespaceFamily& family) const {
  const auto found = by_family_.find(family);
  return found == by_family_.end() ? TenantId() : found->second;
}

}  // namespace stemma
