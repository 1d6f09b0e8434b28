// KeptProbe: what KvCache::probe and probe_host say of a text that waits, kept as long as it
// stands.
//
// A step that publishes or evicts changes what some of the texts that wait would find. Each
// remembers where its last look at a tree ended, and is looked up anew only if something changed
// there; where layers have a window, whenever anything changed.
//
// Thread:     engine thread only.
// Memory:     200 bytes.
// Cost:       O(1) while the cache's epoch stands or nothing changed on the text's way; else as
//             probe.
// Not here:   page stores, which are asked once (sched/prefix_leader).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "prefix/walk_end.h"
#include "stemma/kv_cache.h"

namespace stemma {

class KeptProbe {
 public:
  // REQUIRES: `ns` and `tokens` are those of the last call; none was before, or forget was called.
  void look(const KvCache& kv, NamespaceId ns, std::span<const TokenId> tokens);
  void forget() { *this = KeptProbe(); }

  // As of the last look: what begin would find, and what host memory has.
  std::int64_t device_tokens() const noexcept { return device_tokens_; }
  std::int64_t host_tokens() const noexcept { return host_tokens_; }

 private:
  // Of what everybody shares, and of what goes on from it or is all there is.
  struct Ends {
    WalkEnd shared;
    WalkEnd own;

    WalkEnd& of(bool is_shared) { return is_shared ? shared : own; }
  };

  void look_again(const KvCache& kv, NamespaceId ns, std::span<const TokenId> tokens);

  Ends device_;
  Ends host_;
  std::optional<std::uint64_t> epoch_;  // of the cache at the last look
  std::int64_t device_tokens_ = 0;
  std::int64_t host_tokens_ = 0;
};

}  // namespace stemma
