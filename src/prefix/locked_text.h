// ColdLeaf and OwedText: texts that a tree locked because their turn has come.
//
// Thread:     engine thread only.
// Memory:     a lock.
// Cost:       none.
// Not here:   whose turn it is (radix_prefix_cache).
#pragma once

#include <cstdint>

#include "prefix/page_debts.h"
#include "stemma/ids.h"
#include "stemma/prefix_cache.h"

namespace stemma {

// The leaf that goes next, with all that it continues.
struct ColdLeaf {
  PrefixLock lock;
  NodeId id;
  std::int64_t own_tokens = 0;  // of what is held, at its end: those that no other text has
};

// Pages that somebody is owed.
struct OwedText {
  PrefixLock lock;    // to the end of the node where the pages end
  PageStretch pages;  // of the text; at least one
};

}  // namespace stemma
