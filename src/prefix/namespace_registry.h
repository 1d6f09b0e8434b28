// NamespaceRegistry: short ids for 256-bit namespace digests, first come first named; an id that
// nobody holds open can be given to another digest.
//
// Thread:     engine thread only.
// Memory:     about 90 bytes an id that was ever given, at most `namespaces_max` of them.
// Cost:       opening is a binary search, and a shift of the sorted list where it is new; giving an
//             id to another digest looks at ids until one is free.
// Not here:   what a digest is made of (namespace_digest), the tree's roots (radix_prefix_cache).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class NamespaceRegistry {
 public:
  // REQUIRES: namespaces_max >= 0.
  explicit NamespaceRegistry(std::int64_t namespaces_max);

  // The id of `digest`: 0 for the first digest ever opened, 1 for the next one that differs, ….
  // nullopt if it is new and all ids are taken.
  std::optional<NamespaceId> try_open(const NamespaceDigest& digest);

  // Gives `digest`, which has none, the id of a namespace that is not open and of which `is_empty`
  // is true; nullopt if there is none. O(namespaces) at worst.
  std::optional<NamespaceId> try_rename(const NamespaceDigest& digest,
                                        FunctionRef<bool(NamespaceId)> is_empty);

  // REQUIRES: ns was opened more often than closed.
  void close(NamespaceId ns);
  // Whether every id is held open.
  bool all_open() const noexcept { return open_namespaces_ == namespaces_max_; }

  bool contains(NamespaceId ns) const noexcept { return ns.valid() && ns.value() < namespaces(); }
  // REQUIRES: contains(ns).
  const NamespaceDigest& digest(NamespaceId ns) const;
  std::int64_t namespaces() const noexcept { return static_cast<std::int64_t>(digests_.size()); }

 private:
  std::vector<NamespaceId>::iterator place_of(const NamespaceDigest& digest);
  void hold_open(NamespaceId ns);

  std::int64_t namespaces_max_;
  std::int64_t open_namespaces_ = 0;
  std::size_t next_rename_ = 0;           // where the search goes on, so that all have their turn
  std::vector<NamespaceDigest> digests_;  // by id
  std::vector<std::int64_t> opens_;       // by id
  std::vector<NamespaceId> sorted_;       // by digest
};

}  // namespace stemma
