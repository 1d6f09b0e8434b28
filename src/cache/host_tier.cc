#include "cache/host_tier.h"

#include "base/check.h"

namespace stemma {

Result<std::unique_ptr<HostTier>> HostTier::open(const KvCacheOptions& options, std::int64_t pages,
                                                 const Clock& clock) {
  auto tier = std::make_unique<HostTier>(Key(), pages);
  PrefixCacheOptions tree{tier->allocator_};
  tree.page_size = options.page_size;
  tree.eviction = options.tiers.host_eviction;
  tree.clock = &clock;
  STEMMA_ASSIGN_OR_RETURN(tier->tree_, RadixPrefixCache::open(tree));
  tier->space_ = std::make_unique<PageSpace>(tier->allocator_, *tier->tree_);
  return tier;
}

// A name that the device gave to another namespace meanwhile is closed on both sides.
void HostTier::open_namespace(NamespaceId device_ns, const NamespaceDigest& digest) {
  if (device_ns.index() >= names_.size()) names_.resize(device_ns.index() + 1);
  Name& name = names_[device_ns.index()];
  STEMMA_CHECK(name.opens == 0 || name.digest == digest,
               "an open name does not change its meaning");
  if (++name.opens > 1) return;
  name.digest = digest;
  name.host = tree_->try_open_namespace(digest).value_or(NamespaceId());
}

void HostTier::close_namespace(NamespaceId device_ns) {
  Name& name = names_[device_ns.index()];
  STEMMA_CHECK_GT(name.opens, 0);
  if (--name.opens > 0) return;
  if (name.host.valid()) tree_->close_namespace(name.host);
  name.host = NamespaceId();
}

NamespaceId HostTier::namespace_of(NamespaceId device_ns) const {
  return device_ns.index() < names_.size() ? names_[device_ns.index()].host : NamespaceId();
}

}  // namespace stemma
