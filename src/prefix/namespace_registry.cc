#include "prefix/namespace_registry.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

NamespaceRegistry::NamespaceRegistry(std::int64_t namespaces_max)
    : namespaces_max_(namespaces_max) {
  STEMMA_CHECK_GE(namespaces_max, 0);
}

std::vector<NamespaceId>::iterator NamespaceRegistry::place_of(const NamespaceDigest& digest) {
  return std::lower_bound(
      sorted_.begin(), sorted_.end(), digest,
      [this](NamespaceId ns, const NamespaceDigest& d) { return digests_[ns.index()] < d; });
}

void NamespaceRegistry::hold_open(NamespaceId ns) {
  if (opens_[ns.index()]++ == 0) ++open_namespaces_;
}

std::optional<NamespaceId> NamespaceRegistry::try_open(const NamespaceDigest& digest) {
  const auto place = place_of(digest);
  if (place != sorted_.end() && digests_[place->index()] == digest) {
    hold_open(*place);
    return *place;
  }
  if (namespaces() == namespaces_max_) return std::nullopt;
  const NamespaceId ns(static_cast<std::int32_t>(digests_.size()));
  sorted_.insert(place, ns);
  digests_.push_back(digest);
  opens_.push_back(0);
  hold_open(ns);
  return ns;
}

std::optional<NamespaceId> NamespaceRegistry::try_rename(const NamespaceDigest& digest,
                                                         FunctionRef<bool(NamespaceId)> is_empty) {
  for (std::size_t tried = 0; tried < digests_.size(); ++tried) {
    const NamespaceId ns(static_cast<std::int32_t>(next_rename_));
    next_rename_ = (next_rename_ + 1) % digests_.size();
    if (opens_[ns.index()] != 0 || !is_empty(ns)) continue;
    sorted_.erase(place_of(digests_[ns.index()]));
    sorted_.insert(place_of(digest), ns);
    digests_[ns.index()] = digest;
    hold_open(ns);
    return ns;
  }
  return std::nullopt;
}

void NamespaceRegistry::close(NamespaceId ns) {
  STEMMA_CHECK(contains(ns) && opens_[ns.index()] > 0, "a namespace is closed as often as opened");
  if (--opens_[ns.index()] == 0) --open_namespaces_;
}

const NamespaceDigest& NamespaceRegistry::digest(NamespaceId ns) const {
  STEMMA_CHECK(contains(ns), "a namespace is opened before it is used");
  return digests_[ns.index()];
}

}  // namespace stemma
