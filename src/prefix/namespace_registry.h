// NamespaceRegistry: short ids for namespace digests, compared whole (I7). The id of a namespace
// that nobody holds open can be given to another digest.
//
// Closed namespaces are in a row: those that are said to have nothing first, then the others, the
// least lately used one first.
//
// Thread:     engine thread only.
// Memory:     about 100 bytes an id that was ever given, at most `namespaces_max` of them.
// Cost:       opening is a binary search, and a shift of the sorted list where it is new; the rest
//             O(1), but for renaming, which is two searches and shifts.
// Not here:   what a digest is made of (namespace_digest), the tree's roots and what becomes of
//             pages (radix_prefix_cache).
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
  // nullopt if it is new and all ids are taken.
  std::optional<NamespaceId> try_open(const NamespaceDigest& digest);
  // Opens it once more. REQUIRES: contains(ns).
  void hold_open(NamespaceId ns);
  // REQUIRES: ns was opened more often than closed.
  void close(NamespaceId ns);
  // The id of `digest`, which stays as it is, open or closed; nullopt if it has none.
  std::optional<NamespaceId> find(const NamespaceDigest& digest) const;

  // The row of closed namespaces; invalid: there is none.
  NamespaceId first_closed_or_none() const noexcept { return first_closed_; }
  // REQUIRES: ns is closed.
  NamespaceId next_closed_or_none(NamespaceId ns) const { return entries_[ns.index()].next; }
  // It has nothing: where it is closed, it goes to the front of the row.
  void note_empty(NamespaceId ns);
  // It was used: where it is closed, it goes to the end of the row.
  void note_used(NamespaceId ns);
  // Opens `digest`, which has no id, with the id of a namespace that is closed.
  void rename(NamespaceId ns, const NamespaceDigest& digest);

  bool contains(NamespaceId ns) const noexcept { return ns.valid() && ns.value() < namespaces(); }
  // REQUIRES: contains(ns).
  const NamespaceDigest& digest(NamespaceId ns) const;
  std::int64_t namespaces() const noexcept { return static_cast<std::int64_t>(entries_.size()); }
  std::int64_t namespaces_max() const noexcept { return namespaces_max_; }

 private:
  struct Entry {
    NamespaceDigest digest;
    std::int64_t opens = 0;
    NamespaceId previous;  // in the row, of closed ones
    NamespaceId next;
  };

  // Where it is in sorted_, or would be.
  std::size_t place_of(const NamespaceDigest& digest) const;
  void link(NamespaceId ns, NamespaceId previous, NamespaceId next);
  void unlink(NamespaceId ns);

  std::int64_t namespaces_max_;
  std::vector<Entry> entries_;       // by id
  std::vector<NamespaceId> sorted_;  // by digest
  NamespaceId first_closed_;
  NamespaceId last_closed_;
};

}  // namespace stemma
