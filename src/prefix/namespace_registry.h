// NamespaceRegistry: short ids for 256-bit namespace digests, first come first named.
//
// Thread:     engine thread only.
// Memory:     about 80 bytes a namespace that was ever opened, at most `namespaces_max`.
// Cost:       opening is a binary search, and a shift of the sorted list where it is new.
// Not here:   what a digest is made of (namespace_digest), the tree's roots (radix_prefix_cache).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stemma/prefix_cache.h"

namespace stemma {

class NamespaceRegistry {
 public:
  // REQUIRES: namespaces_max >= 0.
  explicit NamespaceRegistry(std::int64_t namespaces_max);

  // The id of `digest`: 0 for the first digest ever opened, 1 for the next one that differs, ….
  // nullopt if it is new and as many are open as there may be.
  std::optional<NamespaceId> try_open(const NamespaceDigest& digest);

  bool contains(NamespaceId ns) const noexcept { return ns.valid() && ns.value() < namespaces(); }
  // REQUIRES: contains(ns).
  const NamespaceDigest& digest(NamespaceId ns) const;
  std::int64_t namespaces() const noexcept { return static_cast<std::int64_t>(digests_.size()); }

 private:
  std::int64_t namespaces_max_;
  std::vector<NamespaceDigest> digests_;  // by id
  std::vector<NamespaceId> sorted_;       // by digest
};

}  // namespace stemma
