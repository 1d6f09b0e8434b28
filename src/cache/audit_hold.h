// CachedText and AuditHold: what an audit of cached pages remembers, and what it works with.
//
// Thread:     engine thread only.               Invariants: I3 (docs/INVARIANTS.md).
// Memory:     the text's tokens; 8 bytes a page.
// Cost:       none.
// Not here:   who audits (engine/shadow_audit), how pages are found and locked (KvCache).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "alloc/windowed_holds.h"
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

// The pages of a text, and where layers look back over a window those of theirs at its end, [pages]
// too: invalid ids before. Empty: there are no such layers.
struct AuditRow {
  std::vector<PageId> full;
  std::vector<PageId> windowed;
  std::int64_t first_token = 0;  // of the last page, that what is there allows to compute again
};

// What an audit of cached pages works with: the pages, and a free one to compute into. Windowed
// pages are not held: their order of eviction stays as it was. Must not outlive its KvCache, and
// should be gone before anybody else wants a page.
struct AuditHold {
  std::array<PrefixLock, 2> locks;  // on what everybody shares, if anything, and on the rest
  OwnedPages scratch;
  TakenWindowedPages windowed_scratch;
};

}  // namespace stemma
