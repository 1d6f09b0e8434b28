#include "cache/host_tier.h"

#include <utility>

#include "base/check.h"

namespace stemma {

Result<std::unique_ptr<HostTier>> HostTier::open(const KvCacheOptions& options,
                                                 const Extent& extent, const Clock& clock) {
  auto tier = std::make_unique<HostTier>(Key(), extent.pages, extent.windowed_pages);
  PrefixCacheOptions tree{tier->allocator_};
  tree.page_size = options.page_size;
  tree.eviction = options.tiers.host_eviction;
  tree.namespaces_max = options.namespaces_max;
  tree.clock = &clock;
  tree.creditors = extent.creditors;
  STEMMA_ASSIGN_OR_RETURN(tier->tree_, RadixPrefixCache::open(tree));
  tier->space_ = std::make_unique<PageSpace>(tier->allocator_, *tier->tree_);
  return tier;
}

HostTier::HostTier(Key, std::int64_t pages, std::int64_t windowed_pages) : allocator_(pages) {
  if (windowed_pages == 0) return;
  windowed_ = std::make_unique<WindowedPages>(
      WindowedPages::Extent{.pages = windowed_pages, .carriers = pages});
  allocator_.carry(*windowed_);
}

void HostTier::open_namespace(NamespaceId device_ns, const NamespaceDigest& digest) {
  if (device_ns.index() >= names_.size()) names_.resize(device_ns.index() + 1);
  Name& name = names_[device_ns.index()];
  STEMMA_CHECK(name.opens == 0 || name.digest == digest,
               "an open name does not change its meaning");
  if (++name.opens > 1) return;
  name.digest = digest;
  const std::optional<NamespaceId> host = space_->try_open_namespace(digest);
  name.host = host.value_or(NamespaceId());
  name.open_here = host.has_value();
}

void HostTier::close_namespace(NamespaceId device_ns) {
  Name& name = names_[device_ns.index()];
  STEMMA_CHECK_GT(name.opens, 0);
  if (--name.opens > 0) return;
  if (std::exchange(name.open_here, false)) tree_->close_namespace(name.host);
}

NamespaceId HostTier::namespace_of(NamespaceId device_ns) const {
  if (device_ns.index() >= names_.size()) return {};
  const Name& name = names_[device_ns.index()];
  const bool is_still = name.host.valid() && tree_->digest(name.host) == name.digest;
  return is_still ? name.host : NamespaceId();
}

NamespaceId HostTier::name_namespace(NamespaceId device_ns) {
  const NamespaceId host = namespace_of(device_ns);
  if (host.valid() || device_ns.index() >= names_.size()) return host;
  Name& name = names_[device_ns.index()];
  name.host = space_->try_open_namespace(name.digest).value_or(NamespaceId());
  if (name.host.valid()) tree_->close_namespace(name.host);
  return name.host;
}

}  // namespace stemma
