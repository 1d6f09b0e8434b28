// WalkEnd: where a walk along a text ended, kept so that asking again costs a look at one node.
//
// A walk ends where it did as long as the pages of its last node stand and no child of that node
// has come that may agree with the text's next page: the nodes above cannot go before it does.
//
// Thread:     engine thread only.
// Memory:     40 bytes.
// Cost:       none.
// Not here:   walking, and whether an end still stands (radix_tree).
#pragma once

#include <cstdint>

#include "prefix/radix_node.h"

namespace stemma {

struct WalkEnd {
  NodeSlot from;             // invalid: nothing was walked yet
  NodeSlot node;             // the last one,
  NodeId id;                 // which has this id,
  std::int64_t changes = 0;  // and had changed so often
  std::uint32_t hash = 0;    // of (node, the page behind the end),
  bool is_hashed = false;    // once it was asked for
  bool covers_node = true;
  std::int64_t total_pages = 0;
};

}  // namespace stemma
