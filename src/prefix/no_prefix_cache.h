// NoPrefixCache: the prefix cache that shares nothing: every sequence computes and keeps its own
// pages.
//
// Thread:     engine thread only.                     Invariants: I1 (docs/INVARIANTS.md).
// Memory:     its namespaces.
// Cost:       none.
// Not here:   pages: they stay in their sequences' tails, and finishing frees them all.
#pragma once

#include <string>

#include "prefix/namespace_registry.h"
#include "prefix/prefix_cache_options.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class NoPrefixCache final : public PrefixCache {
 public:
  explicit NoPrefixCache(const PrefixCacheOptions& options);
  // REQUIRES: no PrefixLock is alive.
  ~NoPrefixCache() override;
  NoPrefixCache(const NoPrefixCache&) = delete;
  NoPrefixCache& operator=(const NoPrefixCache&) = delete;

  std::string_view name() const override { return "none"; }
  std::int64_t page_size() const override { return page_size_; }
  bool shares() const override { return false; }
  using PrefixCache::try_open_namespace;
  std::optional<NamespaceId> try_open_namespace(const NamespaceDigest& digest,
                                                OwnedPages* evicted_or_null) override;
  void close_namespace(NamespaceId ns) override;
  PrefixProbe probe(NamespaceId ns, std::span<const TokenId> tokens) const override;
  PrefixLock match(NamespaceId ns, std::span<const TokenId> tokens) override;
  PrefixLock extend(PrefixLock held, std::span<const TokenId>) override { return held; }
  PrefixLock insert(std::span<const TokenId> tokens, PrefixLock held, OwnedPages pages,
                    const InsertOptions& options) override;
  void complete(const PrefixLock&, const RequestEnd&) override {}
  void want(NamespaceId, std::span<const TokenId>, std::int64_t) override {}
  void forget_wants() override {}
  OwnedPages evict(std::int64_t wanted_pages) override;
  void reset() override;
  PrefixUsage usage() const override { return {}; }
  std::uint64_t epoch() const override { return 0; }
  std::optional<std::string> audit() const override { return std::nullopt; }
  std::string draw() const override { return "shares nothing\n"; }

 private:
  void unlock(void* node, std::int64_t tokens, NamespaceId ns) noexcept override;
  std::int64_t copy_pages(const void* node, std::int64_t tokens, std::int64_t first_page,
                          std::span<PageId> out) const override;
  std::int64_t copy_page_keys(void* node, std::int64_t tokens, std::int64_t first_page,
                              std::span<PageKey> out) override;

  std::int64_t page_size_;
  NamespaceRegistry namespaces_;  // each is open once more for each lock on it
  std::int64_t locks_ = 0;
};

}  // namespace stemma
