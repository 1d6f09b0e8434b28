// TextReporter: what a KvCache has of a text, for people, whether or not its namespace is open.
//
// Thread:     engine thread only.
// Memory:     none; reports allocate.
// Cost:       O(nodes) a report; why_ends and find_below as a look-up.
// Not here:   requests (engine/engine_explain), nodes (kv_cache_listing).
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "cache/grafts.h"
#include "stemma/kv_cache.h"

namespace stemma {

// What each tier has of a text.
struct TextReport {
  PrefixEndReport end;
  NearestText nearest;
  std::int64_t host_tokens = 0;   // from the first one on, in host memory
  std::int64_t store_tokens = 0;  // and in page stores that know without asking
};

class TextReporter {
 public:
  // REQUIRES: it outlives this, and shares.
  explicit TextReporter(const KvCache& kv) : kv_(kv) {}

  // Of `tokens` in the namespace that KvCache::try_open_namespace would open, which this does not;
  // with at most `next_tokens_max` tokens of what the nearest text goes on with. Page stores count
  // it as a use. REQUIRES: tokens not empty.
  TextReport report(const NamespaceDigest& digest, const SharedPrefix* shared_or_null,
                    std::span<const TokenId> tokens, std::int64_t next_tokens_max) const;

  // A namespace that has no name has nothing: its id in `graft` is invalid.

  // See KvCache.
  PrefixEndReport why_ends(const Graft& graft, std::span<const TokenId> tokens) const;
  // What a lower tier has of all `tokens` but the last, `probe` telling of each part whether it is
  // the shared one. What goes on from a shared part counts where that is whole, here or below.
  using Probe = FunctionRef<std::int64_t(bool shared, std::span<const TokenId> part)>;
  std::int64_t find_below(const Graft& graft, std::span<const TokenId> tokens, Probe probe) const;

 private:
  PrefixEndReport why_match_ends(const Graft& graft, std::span<const TokenId> tokens) const;
  PrefixEndReport why_part_ends(NamespaceId ns, std::span<const TokenId> part) const;
  bool has_shared(const Graft& graft, std::span<const TokenId> shared) const;
  NearestText nearest(const Graft& graft, std::span<const TokenId> tokens,
                      std::int64_t next_tokens_max) const;

  const KvCache& kv_;
};

}  // namespace stemma
