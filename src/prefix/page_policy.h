// PagePolicy: an eviction policy that is told, page by page, what happens, and names what goes.
//
// For policies that a key of the leaf cannot express (eviction_order can where one can): those that
// learn, or that change their mind about a leaf while it waits.
//
// Thread:     engine thread only.
// Memory:     reserved at construction; no method allocates.
// Cost:       said by each policy.
// Not here:   the tree, locks (radix_prefix_cache): a policy knows pages and leaves by id alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "prefix/radix_node.h"
#include "stemma/ids.h"
#include "stemma/prefix_cache.h"

namespace stemma {

// The cache that a policy is for.
struct PagePolicyOptions {
  std::int64_t pages = 0;
  std::int64_t nodes_max = 0;
  std::int64_t page_size = 1;    // in tokens
  const Clock* clock = nullptr;  // outlives the policy; for those that go by time
};

// Where in a request's text the pages of its path stand.
struct PathPlaces {
  std::int64_t text_pages = 0;
  // Ascending, where the cache has a sample of the pages (ghost/); empty: it has them all.
  std::span<const std::int64_t> sampled = {};

  std::int64_t of(std::size_t page) const noexcept {
    return sampled.empty() ? static_cast<std::int64_t>(page) : sampled[page];
  }
};

class PagePolicy {
 public:
  virtual ~PagePolicy() = default;

  struct Published {
    std::uint64_t namespace_seed = 0;  // the same for the same namespace
    PageId above;                      // the page they continue; invalid: at a root
    std::span<const TokenId> tokens;   // of the pages
    std::span<const PageId> pages;     // in order
  };
  // New pages lie in the tree, held by a request.
  virtual void published(const Published& what) = 0;

  // A request is done that used exactly these pages, from the root on; it still holds them.
  virtual void completed(std::span<const PageId> path, const PathPlaces& places,
                         const RequestEnd& end) = 0;

  struct Leaf {
    NodeSlot slot;
    NodeId id;
    PageId last_page;
  };
  // A leaf may go from now on. REQUIRES: not contains(leaf.slot).
  virtual void add_leaf(const Leaf& leaf) = 0;
  // It may not, or it is not the leaf it was. REQUIRES: contains(slot).
  virtual void remove_leaf(NodeSlot slot) = 0;
  virtual bool contains(NodeSlot slot) const = 0;
  virtual std::int64_t leaves() const = 0;

  // Time stands still for the policy until this is called again.
  virtual void begin_eviction() = 0;
  struct Victim {
    NodeSlot slot;
    std::int64_t pages_max = 0;  // how many pages, from its end, are alike: at least 1
  };
  // The leaf that goes next. Changes nothing that is asked for. REQUIRES: leaves() > 0.
  virtual Victim next_victim() = 0;
  // Pages that are gone from the tree, in token order.
  virtual void evicted(std::span<const PageId> pages) = 0;

  // Checks what it keeps about leaves; a description of the first contradiction, or nullopt.
  virtual std::optional<std::string> audit() const = 0;
};

}  // namespace stemma
