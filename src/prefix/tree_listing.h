// TreeListing: the nodes of a prefix tree, as people are shown them.
//
// Thread:     values.
// Memory:     about 100 bytes a node.
// Cost:       none.
// Not here:   who makes it (radix_prefix_cache_explain), JSON (server/).
#pragma once

#include <cstdint>
#include <vector>

#include "stemma/ids.h"
#include "stemma/prefix_cache.h"

namespace stemma {

// One stretch of tokens that every text below it shares.
struct TreeNode {
  NodeId id;
  NodeId parent = {};             // invalid: texts begin with it
  NamespaceDigest digest;         // of its namespace
  std::int64_t start_tokens = 0;  // of its texts, before it
  std::int64_t tokens = 0;
  std::int64_t children = 0;
  std::int64_t hits = 0;        // matches that covered it
  std::int64_t lock_count = 0;  // locks that hold it
  std::int64_t uses_ago = 0;    // uses of anything in the tree since its last one
  bool quarantined = false;     // found to be wrong: no look-up finds it
  // Where another tree is asked too: its first tokens that are there as well, and the node of that
  // tree in which the common text ends; invalid: there is none.
  std::int64_t twin_tokens = 0;
  NodeId twin = {};
};

struct TreeListing {
  std::vector<TreeNode> nodes = {};  // each after its parent
  std::int64_t total_nodes = 0;      // of the tree, those left out included
};

// How much of a text a tree has, and the node in which that ends; invalid: nothing of it.
struct TextEnd {
  std::int64_t matched_tokens = 0;
  NodeId node = {};
};

// The text that a node is the end of.
struct NodeText {
  NamespaceDigest digest;
  std::vector<TokenId> tokens = {};  // from the first one of the text to the node's last
  std::int64_t start_tokens = 0;     // of these, before the node
};

}  // namespace stemma
