#include "prefix/namespace_registry.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

NamespaceRegistry::NamespaceRegistry(std::int64_t namespaces_max)
    : namespaces_max_(namespaces_max) {
  STEMMA_CHECK_GE(namespaces_max, 0);
}

std::optional<NamespaceId> NamespaceRegistry::try_open(const NamespaceDigest& digest) {
  const std::size_t place = place_of(digest);
  if (place < sorted_.size() && this->digest(sorted_[place]) == digest) {
    hold_open(sorted_[place]);
    return sorted_[place];
  }
  if (namespaces() == namespaces_max_) return std::nullopt;
  const NamespaceId ns(static_cast<std::int32_t>(entries_.size()));
  sorted_.insert(sorted_.begin() + static_cast<std::ptrdiff_t>(place), ns);
  entries_.push_back({.digest = digest, .opens = 1, .previous = {}, .next = {}});
  return ns;
}

void NamespaceRegistry::hold_open(NamespaceId ns) {
  STEMMA_CHECK(contains(ns), "a namespace is opened before it is used");
  if (entries_[ns.index()].opens++ == 0) unlink(ns);
}

void NamespaceRegistry::close(NamespaceId ns) {
  STEMMA_CHECK(contains(ns) && entries_[ns.index()].opens > 0,
               "a namespace is closed as often as opened");
  if (--entries_[ns.index()].opens == 0) link(ns, last_closed_, NamespaceId());
}

std::optional<NamespaceId> NamespaceRegistry::find(const NamespaceDigest& digest) const {
  const std::size_t place = place_of(digest);
  if (place == sorted_.size() || this->digest(sorted_[place]) != digest) return std::nullopt;
  return sorted_[place];
}

void NamespaceRegistry::note_empty(NamespaceId ns) {
  if (entries_[ns.index()].opens > 0) return;
  unlink(ns);
  link(ns, NamespaceId(), first_closed_);
}

void NamespaceRegistry::note_used(NamespaceId ns) {
  if (entries_[ns.index()].opens > 0) return;
  unlink(ns);
  link(ns, last_closed_, NamespaceId());
}

void NamespaceRegistry::rename(NamespaceId ns, const NamespaceDigest& digest) {
  STEMMA_CHECK(contains(ns) && entries_[ns.index()].opens == 0, "only a closed one loses its name");
  sorted_.erase(sorted_.begin() + static_cast<std::ptrdiff_t>(place_of(this->digest(ns))));
  sorted_.insert(sorted_.begin() + static_cast<std::ptrdiff_t>(place_of(digest)), ns);
  entries_[ns.index()].digest = digest;
  hold_open(ns);
}

const NamespaceDigest& NamespaceRegistry::digest(NamespaceId ns) const {
  STEMMA_CHECK(contains(ns), "a namespace is opened before it is used");
  return entries_[ns.index()].digest;
}

std::size_t NamespaceRegistry::place_of(const NamespaceDigest& digest) const {
  const auto place = std::lower_bound(
      sorted_.begin(), sorted_.end(), digest,
      [this](NamespaceId ns, const NamespaceDigest& d) { return entries_[ns.index()].digest < d; });
  return static_cast<std::size_t>(place - sorted_.begin());
}

void NamespaceRegistry::link(NamespaceId ns, NamespaceId previous, NamespaceId next) {
  entries_[ns.index()].previous = previous;
  entries_[ns.index()].next = next;
  (previous.valid() ? entries_[previous.index()].next : first_closed_) = ns;
  (next.valid() ? entries_[next.index()].previous : last_closed_) = ns;
}

void NamespaceRegistry::unlink(NamespaceId ns) {
  const Entry& entry = entries_[ns.index()];
  (entry.previous.valid() ? entries_[entry.previous.index()].next : first_closed_) = entry.next;
  (entry.next.valid() ? entries_[entry.next.index()].previous : last_closed_) = entry.previous;
}

}  // namespace stemma
