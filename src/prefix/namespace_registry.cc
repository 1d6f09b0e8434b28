#include "prefix/namespace_registry.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

NamespaceRegistry::NamespaceRegistry(std::int64_t namespaces_max)
    : namespaces_max_(namespaces_max) {
  STEMMA_CHECK_GE(namespaces_max, 0);
}

std::optional<NamespaceId> NamespaceRegistry::try_open(const NamespaceDigest& digest) {
  const auto place = std::lower_bound(
      sorted_.begin(), sorted_.end(), digest,
      [this](NamespaceId ns, const NamespaceDigest& d) { return digests_[ns.index()] < d; });
  if (place != sorted_.end() && digests_[place->index()] == digest) return *place;
  if (namespaces() == namespaces_max_) return std::nullopt;
  const NamespaceId ns(static_cast<std::int32_t>(digests_.size()));
  digests_.push_back(digest);
  sorted_.insert(place, ns);
  return ns;
}

const NamespaceDigest& NamespaceRegistry::digest(NamespaceId ns) const {
  STEMMA_CHECK(contains(ns), "a namespace is opened before it is used");
  return digests_[ns.index()];
}

}  // namespace stemma
