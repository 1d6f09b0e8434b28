// TlruPolicy: the eviction policy "tlru": of each conversation only so much is kept that its next
// turn starts soon enough, after Tail-Optimized LRU (arXiv 2510.15152).
//
// A conversation of L tokens whose next turn brings Q needs max(0, L + Q − xi) of them cached to
// compute no more than xi then. What lies beyond can go without harm to the slowest answers. So
// when a request of n pages ends, its page i, counted from 0, is spare if
//   L x (n − i) / n + Q <= xi,
// where L is its prompt with its answer (not less than its pages hold): what is to be computed if
// the page and all that follow it are gone. Spare leaf pages go first, then all others; either by
// the last request that used them, the earliest first. A page is judged by that request alone, and
// not spare while none has ended with it.
//
// Q and xi are constants here: what the next turn brings is not known, and a time that is soon
// enough is a number of tokens only for one model on one machine.
//
// Thread:     engine thread only.
// Memory:     68 bytes a page: 16 for what is known of it, 52 for the order.
// Cost:       completed a few ns a page; next_victim O(1); other methods O(1) to O(log leaves).
// Not here:   the tree (radix_prefix_cache).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "prefix/eviction_index.h"
#include "prefix/page_policy.h"
#include "prefix/untouched_array.h"

namespace stemma {

class TlruPolicy final : public PagePolicy {
 public:
  static constexpr std::int64_t kComputedTokensMax = 8'192;  // xi
  static constexpr std::int64_t kNextTurnTokens = 1'024;     // Q

  // REQUIRES: 0 <= pages < 2^31.
  explicit TlruPolicy(const PagePolicyOptions& options);

  void published(const Published& what) override;
  void completed(std::span<const PageId> path, const PathPlaces& places,
                 const RequestEnd& end) override;
  void add_leaf(const Leaf& leaf) override;
  void remove_leaf(NodeSlot slot) override { index_.remove(slot); }
  bool contains(NodeSlot slot) const override { return index_.contains(slot); }
  std::int64_t leaves() const override { return index_.leaves(); }
  void begin_eviction() override {}
  Victim next_victim() override;
  void evicted(std::span<const PageId>) override {}
  std::optional<std::string> audit() const override;

 private:
  struct Page {
    std::int64_t request = 0;  // the number of the last request that used it
    bool spare = false;
  };

  EvictionKey key(PageId page) const noexcept;

  std::int64_t page_size_;
  std::int64_t requests_ = 0;
  UntouchedArray<Page> pages_;         // by page
  EvictionIndex index_;                // leaves by what is known of their last pages
  UntouchedArray<PageId> last_pages_;  // by node, of leaves in the index
};

}  // namespace stemma
