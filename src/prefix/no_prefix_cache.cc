#include "prefix/no_prefix_cache.h"

#include <utility>

#include "base/check.h"

namespace stemma {

NoPrefixCache::NoPrefixCache(const PrefixCacheOptions& options)
    : page_size_(options.page_size), namespaces_(options.namespaces_max) {}

NoPrefixCache::~NoPrefixCache() {
  reset();
}

std::optional<NamespaceId> NoPrefixCache::try_open_namespace(const NamespaceDigest& digest,
                                                             OwnedPages*) {
  const std::optional<NamespaceId> ns = namespaces_.try_open(digest);
  const NamespaceId closed = namespaces_.first_closed_or_none();
  if (ns.has_value() || !closed.valid()) return ns;
  namespaces_.rename(closed, digest);
  return closed;
}

void NoPrefixCache::close_namespace(NamespaceId ns) {
  namespaces_.close(ns);
}

PrefixProbe NoPrefixCache::probe(NamespaceId ns, std::span<const TokenId>) const {
  STEMMA_CHECK(namespaces_.contains(ns), "a namespace is opened before it is used");
  return {};
}

// Its name is not another's as long as somebody holds something of it.
PrefixLock NoPrefixCache::match(NamespaceId ns, std::span<const TokenId>) {
  namespaces_.hold_open(ns);
  ++locks_;
  return make_lock(*this, nullptr, 0, ns);
}

PrefixLock NoPrefixCache::insert(std::span<const TokenId> tokens, PrefixLock held, OwnedPages pages,
                                 const InsertOptions&) {
  STEMMA_CHECK(cache_of(held) == this, "an insert continues a lock of the same cache");
  STEMMA_CHECK(pages.empty() && tokens.empty(), "a cache that does not share takes no pages");
  return held;
}

OwnedPages NoPrefixCache::evict(std::int64_t wanted_pages) {
  STEMMA_CHECK_GE(wanted_pages, 0);
  return {};
}

void NoPrefixCache::reset() {
  STEMMA_CHECK(locks_ == 0, "nothing is dropped while a lock holds it (I3)");
}

void NoPrefixCache::unlock(void*, std::int64_t, NamespaceId ns) noexcept {
  --locks_;
  namespaces_.close(ns);
}

std::int64_t NoPrefixCache::copy_pages(const void*, std::int64_t, std::int64_t first_page,
                                       std::span<PageId>) const {
  STEMMA_CHECK_EQ(first_page, 0);
  return 0;
}

std::int64_t NoPrefixCache::copy_page_keys(void*, std::int64_t, std::int64_t first_page,
                                           std::span<PageKey>) {
  STEMMA_CHECK_EQ(first_page, 0);
  return 0;
}

}  // namespace stemma
