// CachedText and AuditHold: what an audit of cached pages remembers, and what it works with.
//
// Thread:     engine thread only.               Invariants: I3 (docs/INVARIANTS.md).
// Memory:     the text's tokens.
// Cost:       none.
// Not here:   who audits (engine/shadow_audit), how pages are found and locked (KvCache).
#pragma once

#include <array>
#include <vector>

#include "stemma/page_allocator.h"
#include "stemma/prefix_cache.h"
#include "stemma/sequence.h"

namespace stemma {

// A text by which published pages are found again.
struct CachedText {
  NamespaceId ns;
  NamespaceDigest digest;  // that `ns` stands for
  std::vector<TokenId> tokens;
  SharedPrefix shared;  // that `ns` goes on from; no tokens: nothing
};

// What an audit of cached pages works with: the pages, and a free one to compute into. Must not
// outlive its KvCache, and should be gone before anybody else wants a page.
struct AuditHold {
  std::array<PrefixLock, 2> locks;  // on what everybody shares, if anything, and on the rest
  OwnedPages scratch;
};

}  // namespace stemma
