// PrefixCache: which token prefixes already have KV pages, and which of those pages may be freed.
//
// Thread:     engine thread only.        Invariants: I1, I3, I4, I5, I7 (docs/INVARIANTS.md).
// Memory:     reserved at construction for one node a page, touched up to the high-water mark; no
//             allocation in match, insert and evict.
// Cost:       match and insert O(tokens looked at + nodes to the root); evict O(pages freed + log
//             leaves) however many nodes there are; probe as match.
// Not here:   KV bytes (pool/), copies between tiers (tier/), who runs next (sched/).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stemma/ids.h"
#include "stemma/page_allocator.h"

namespace stemma {

class PrefixCache;

// Everything that makes pages valid, as one SHA-256: model, formats, adapter, tenant, salt
// (docs/ARCHITECTURE.md).
struct NamespaceDigest {
  std::array<std::uint8_t, 32> bytes = {};
  friend auto operator<=>(const NamespaceDigest&, const NamespaceDigest&) = default;
};

// The first bytes of a digest: namespaces of one owner have them in common, so that all that is an
// owner's can be named (docs/decisions/0006). Two owners who share them lose pages together, which
// is never wrong.
struct NamespaceFamily {
  std::array<std::uint8_t, 8> bytes = {};
  friend auto operator<=>(const NamespaceFamily&, const NamespaceFamily&) = default;
};

inline NamespaceFamily family_of(const NamespaceDigest& digest) noexcept {
  NamespaceFamily family;
  std::copy_n(digest.bytes.begin(), family.bytes.size(), family.bytes.begin());
  return family;
}

// Whether the namespace is of one of these families, of which none means all.
inline bool is_of_any(const NamespaceDigest& digest, std::span<const NamespaceFamily> families) {
  return families.empty() ||
         std::find(families.begin(), families.end(), family_of(digest)) != families.end();
}

// How many pages the namespaces of a family are sure of while others want pages, and how many they
// have.
struct TenantQuota {
  NamespaceFamily family;
  std::int64_t quota_pages = 0;
  std::int64_t pages = 0;
};

// What a look without holding finds.
struct PrefixProbe {
  std::int64_t matched_tokens = 0;    // a multiple of page_size
  std::int64_t evictable_tokens = 0;  // of them, that nobody holds
};

// Why a look-up found no more than it did.
enum class PrefixEnd : std::uint8_t {
  kTail,     // nothing is missing but what is less than a page, or the last token
  kCold,     // the next page was never cached here, or that is forgotten
  kEvicted,  // the next page was cached and had to go
  kWindow,   // more is cached, but no window to go on from it (KvCacheOptions::window_tokens)
};

// The end of what a look-up finds.
struct PrefixEndReport {
  std::int64_t matched_tokens = 0;  // a multiple of page_size
  PrefixEnd end = PrefixEnd::kCold;
  std::int64_t evicted_us = 0;  // on the cache's clock, where end is kEvicted
};

// The cached text that agrees longest with another.
struct NearestText {
  std::int64_t common_tokens = 0;         // to the token where the two part
  std::vector<TokenId> cached_next = {};  // what the cached text goes on with there
};

// Tokens in the tree by whether eviction may take them.
struct PrefixUsage {
  std::int64_t evictable_tokens = 0;
  std::int64_t locked_tokens = 0;
  std::int64_t total_tokens() const noexcept { return evictable_tokens + locked_tokens; }
};

// Holds a matched prefix: while it lives, none of its pages is evicted or moved. Move-only; unlocks
// when destroyed. Must not outlive the PrefixCache it came from. A lock of no tokens holds nothing
// but knows its namespace.
class [[nodiscard]] PrefixLock {
 public:
  PrefixLock() noexcept = default;
  PrefixLock(PrefixLock&& other) noexcept
      : cache_(std::exchange(other.cache_, nullptr)),
        node_(other.node_),
        tokens_(std::exchange(other.tokens_, 0)),
        namespace_id_(std::exchange(other.namespace_id_, NamespaceId())) {}
  PrefixLock& operator=(PrefixLock&& other) noexcept {
    if (this == &other) return *this;
    if (valid()) reset();
    cache_ = std::exchange(other.cache_, nullptr);
    node_ = other.node_;
    tokens_ = std::exchange(other.tokens_, 0);
    namespace_id_ = std::exchange(other.namespace_id_, NamespaceId());
    return *this;
  }
  PrefixLock(const PrefixLock&) = delete;
  PrefixLock& operator=(const PrefixLock&) = delete;
  ~PrefixLock() {
    if (valid()) reset();
  }

  // Whether it came from a cache (and was not moved from).
  bool valid() const noexcept { return cache_ != nullptr; }
  // The tokens held: a multiple of page_size.
  std::int64_t tokens() const noexcept { return tokens_; }
  NamespaceId namespace_id() const noexcept { return namespace_id_; }

  // Writes the ids of pages first_page … of the held prefix, in token order, up to its end; returns
  // how many. O(pages written + nodes they lie in). REQUIRES: valid(); out has room for them.
  std::int64_t copy_pages(std::int64_t first_page, std::span<PageId> out) const;

  // As copy_pages, with the pages' keys. Keys are computed when they are first asked for, then
  // kept.
  std::int64_t copy_page_keys(std::int64_t first_page, std::span<PageKey> out) const;

  // Unlocks now.
  void reset() noexcept;

 private:
  friend class PrefixCache;
  PrefixLock(PrefixCache* cache, void* node, std::int64_t tokens, NamespaceId ns) noexcept
      : cache_(cache), node_(node), tokens_(tokens), namespace_id_(ns) {}

  PrefixCache* cache_ = nullptr;
  void* node_ = nullptr;  // the cache's own; the prefix ends at or inside it
  std::int64_t tokens_ = 0;
  NamespaceId namespace_id_;
};

// What a caller may say about the pages it publishes.
struct InsertOptions {
  std::int32_t priority =
      0;  // for the priority order: higher stays longer; a path keeps the highest it was given
};

// How long a client expects to come back to what it sent: a bias, never a promise.
enum class Retention : std::uint8_t { kShort, kDefault, kLong };

// What is known of a request when it ends. Eviction policies that learn use it; no field holds or
// frees a page.
struct RequestEnd {
  std::int64_t prompt_tokens = 0;  // of the text, what was computed after it left out
  std::int64_t output_tokens = 0;  // computed after the prompt
  std::optional<std::int64_t> begun_us = std::nullopt;  // on the cache's clock; absent: now
  std::int32_t priority = 0;                            // above 0: worth more than others
  Retention retention = Retention::kDefault;
  bool session_closed = false;  // its client will not continue it
};

// One change of what a cache finds. What it points to lives as long as the call that hands it over.
struct PrefixEvent {
  enum class Kind : std::uint8_t {
    kCleared,  // nothing is found any more
    kStored,   // a run of pages, each continuing the one before, is found from now on
    kRemoved,  // pages are found no more, each before those that it continues
  };
  Kind kind = Kind::kCleared;
  std::span<const PageKey> keys;

  // Of what was stored alone.
  NamespaceDigest digest;
  std::optional<PageKey> parent;    // of the first page; nullopt: the text begins with it
  std::span<const TokenId> tokens;  // of all the pages, as many each
  std::string_view adapter = {};    // it was computed with, where an Engine tells; empty: none
};

// Takes the changes of a cache, in their order. Whoever applies each of them finds what the cache
// finds: no page is stored before the one that it continues.
class PrefixEventSink {
 public:
  virtual ~PrefixEventSink() = default;
  virtual void take(const PrefixEvent& event) = 0;
};

class PrefixCache {
 public:
  virtual ~PrefixCache() = default;

  // "radix" or "none".
  virtual std::string_view name() const = 0;
  virtual std::int64_t page_size() const = 0;

  // Whether pages can be published at all. Where not ("none"), sequences keep their pages to the
  // end: match finds nothing, evict has nothing to give, and insert takes no pages.
  virtual bool shares() const = 0;

  // The short name of a namespace; the same digest gives the same id while it is open. Prefixes of
  // different namespaces never meet. What it caches outlives closing it until all names are taken:
  // then one that has nothing gives its name; if there is none, the least lately used ones, one in
  // 64, lose all (to `evicted_or_null`), tenants within their quotas last. nullopt: all are held.
  virtual std::optional<NamespaceId> try_open_namespace(const NamespaceDigest& digest,
                                                        OwnedPages* evicted_or_null) = 0;
  std::optional<NamespaceId> try_open_namespace(const NamespaceDigest& digest) {
    return try_open_namespace(digest, nullptr);
  }

  // Ends one try_open_namespace: an id is good until it was closed as often as it was opened. Who
  // never closes keeps it for the life of the cache. REQUIRES: ns is open.
  virtual void close_namespace(NamespaceId ns) = 0;

  // Longest cached prefix of `tokens`, in whole pages, without holding it. Changes nothing, not
  // even recency.
  virtual PrefixProbe probe(NamespaceId ns, std::span<const TokenId> tokens) const = 0;

  // As probe, and locks what it found. Counts as a use of every node it covers. May split a node
  // (I4): the upper part is refreshed, what lies below the match is not.
  virtual PrefixLock match(NamespaceId ns, std::span<const TokenId> tokens) = 0;

  // As match, going on from where `held` ends: what others have published of `tokens` since. A use
  // of what it adds, but not a hit. Gives `held` back as it was if there is nothing. O(new tokens).
  // REQUIRES: held came from this cache and holds the first held.tokens() of `tokens`.
  virtual PrefixLock extend(PrefixLock held, std::span<const TokenId> tokens) = 0;

  // Publishes `pages`, which continue `held` up to the end of `tokens` (all tokens from the start
  // of the sequence; the first held.tokens() are not looked at again). Pages whose tokens are
  // already cached are duplicates and are freed. Returns a lock on all of `tokens`: rewrite the
  // request's row from it, from held.tokens() on (I2). A use of what it covers, but not a hit.
  // O(tokens of `pages`), however long `held` is.
  // REQUIRES: held came from this cache; tokens.size() is a multiple of page_size and equals
  // held.tokens() plus the tokens of `pages`; the pages hold valid KV for exactly these tokens;
  // shares(), or `pages` is empty.
  virtual PrefixLock insert(std::span<const TokenId> tokens, PrefixLock held, OwnedPages pages,
                            const InsertOptions& options) = 0;

  // Says that the request which holds `held` is done, before it lets go. Without it nothing is
  // lost but what the eviction policy would have learned. O(pages held) for policies that learn,
  // nothing for others. REQUIRES: held came from this cache.
  virtual void complete(const PrefixLock& held, const RequestEnd& end) = 0;

  // Says that a waiting request will match `tokens`: what of them is cached now goes after all that
  // nobody waits for, and of several such prefixes the one of the highest turn first. Holds nothing
  // and is no use. A want lasts until forget_wants.
  virtual void want(NamespaceId ns, std::span<const TokenId> tokens, std::int64_t turn) = 0;
  // Every want lapses. O(wanted leaves x log leaves).
  virtual void forget_wants() = 0;

  // Gives up unlocked pages, coldest leaf first by the eviction order, from the end of each leaf,
  // until `wanted_pages` are out or none is left; what is wanted last of all. Returns them.
  virtual OwnedPages evict(std::int64_t wanted_pages) = 0;

  // Drops everything. REQUIRES: no PrefixLock is alive.
  virtual void reset() = 0;

  virtual PrefixUsage usage() const = 0;

  // Raised by every change that can alter a match (insert of new pages, eviction, reset): equal
  // epochs mean that an earlier probe still holds.
  virtual std::uint64_t epoch() const = 0;

  // Checks every invariant of the structure; a description of the first contradiction, or nullopt.
  // O(nodes + tokens).
  virtual std::optional<std::string> audit() const = 0;

  // The tree as text, one node a line, for tests and people.
  virtual std::string draw() const = 0;

 protected:
  friend class PrefixLock;
  static PrefixLock make_lock(PrefixCache& cache, void* node, std::int64_t tokens,
                              NamespaceId ns) noexcept {
    return {&cache, node, tokens, ns};
  }
  static const PrefixCache* cache_of(const PrefixLock& lock) noexcept { return lock.cache_; }
  static void* node_of(const PrefixLock& lock) noexcept { return lock.node_; }
  // Empties `lock` without ending its hold: whoever asks goes on with it.
  static void take_hold(PrefixLock& lock) noexcept {
    PrefixLock taken = std::move(lock);
    taken.cache_ = nullptr;
  }

  // Ends the hold that make_lock began.
  virtual void unlock(void* node, std::int64_t tokens, NamespaceId ns) noexcept = 0;
  virtual std::int64_t copy_pages(const void* node, std::int64_t tokens, std::int64_t first_page,
                                  std::span<PageId> out) const = 0;
  virtual std::int64_t copy_page_keys(void* node, std::int64_t tokens, std::int64_t first_page,
                                      std::span<PageKey> out) = 0;
};

}  // namespace stemma
