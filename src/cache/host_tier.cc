#include "cache/host_tier.h"

#include <algorithm>
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
  if (name.digest != digest) forget_shared(name);
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

void HostTier::set_shared(NamespaceId device_ns, const NamespaceDigest& digest,
                          std::span<const TokenId> text) {
  Name& name = names_[device_ns.index()];
  if (name.goes_on_from != kNone) return;
  name.goes_on_from = place_of(digest, text);
  ++shared_texts_[name.goes_on_from].names;
}

void HostTier::forget_shared(Name& name) {
  if (name.goes_on_from == kNone) return;
  SharedText& shared = shared_texts_[std::exchange(name.goes_on_from, kNone)];
  if (--shared.names == 0) shared = SharedText();
}

// Where it is, or is put now.
std::size_t HostTier::place_of(const NamespaceDigest& digest, std::span<const TokenId> text) {
  std::size_t free = shared_texts_.size();
  for (std::size_t i = 0; i < shared_texts_.size(); ++i) {
    const SharedText& shared = shared_texts_[i];
    if (shared.names == 0) free = i;
    const bool used = shared.names > 0 && shared.digest == digest;
    if (used && std::ranges::equal(shared.tokens, text)) return i;
  }
  if (free == shared_texts_.size()) shared_texts_.emplace_back();
  shared_texts_[free] = {.digest = digest, .tokens = {text.begin(), text.end()}};
  return free;
}

void HostTier::use_shared(NamespaceId device_ns) {
  if (device_ns.index() >= names_.size()) return;
  const std::size_t place = names_[device_ns.index()].goes_on_from;
  if (place == kNone) return;
  const SharedText& shared = shared_texts_[place];
  const std::optional<NamespaceId> ns = tree_->find_namespace(shared.digest);
  if (ns.has_value()) tree_->extend(tree_->match(*ns, {}), shared.tokens).reset();
}

}  // namespace stemma
