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
  quotas_.push_back({.family = family, .quota_pages = pages});
  for (TenantQuota& quota : quotas_) quota.pages = 0;  // all are counted anew
  return true;
}

TenantId TenantQuotas::find(const NamespaceFamily& family) const {
  const auto found = std::find_if(quotas_.begin(), quotas_.end(),
                                  [&](const TenantQuota& quota) { return quota.family == family; });
  if (found == quotas_.end()) return TenantId();
  return TenantId(static_cast<std::int32_t>(found - quotas_.begin()));
}

}  // namespace stemma
