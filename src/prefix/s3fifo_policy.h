// S3FifoPolicy: the eviction policy "s3fifo": two queues in the order of arrival, after S3-FIFO
// (Yang et al., SOSP 2023), over the leaves of a tree.
//
// Every page is in one of two queues. New ones enter the small one. While that holds a tenth of the
// capacity or more, its oldest leaf page is up, else the main queue's; a queue without leaves
// passes the turn on. What is up in the small queue goes if no request used it again; else it moves
// to the end of the main queue, its uses forgotten. What is up in the main queue goes if it has no
// uses; else it loses one and moves to the end. Uses count up to 3: the first request that ends
// with a page is taken for the one that computed it, each later one uses it. A page that went from
// the small queue stays known as a ghost, as many of them as the main queue's share of the
// capacity; if it comes back it enters the main queue.
//
// Only leaves can go, so a page takes the pages it continues along into the main queue: they were
// used at least as often, and would fill the small queue although they cannot leave it.
//
// Thread:     engine thread only.
// Memory:     about 150 bytes a page: 32 for what is known of it, 50 to 60 for its ghost, 70 to 90
//             for the queues.
// Cost:       completed a few ns a page; next_victim O(log leaves) for each page that is up, at
//             most 4 turns of a page for each of its uses; other methods O(1) to O(log leaves).
// Not here:   the tree (radix_prefix_cache).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "prefix/eviction_index.h"
#include "prefix/page_policy.h"
#include "prefix/page_record.h"
#include "prefix/untouched_array.h"

namespace stemma {

class S3FifoPolicy final : public PagePolicy {
 public:
  static constexpr std::int64_t kPagesPerSmallPage = 10;
  static constexpr std::uint8_t kUsesMax = 3;

  // REQUIRES: 0 <= pages < 2^30.
  explicit S3FifoPolicy(const PagePolicyOptions& options);

  void published(const Published& what) override;
  void completed(std::span<const PageId> path, const PathPlaces& places,
                 const RequestEnd& end) override;
  void add_leaf(const Leaf& leaf) override;
  void remove_leaf(NodeSlot slot) override;
  bool contains(NodeSlot slot) const override {
    return small_.contains(slot) || main_.contains(slot);
  }
  std::int64_t leaves() const override { return small_.leaves() + main_.leaves(); }
  void begin_eviction() override {}
  Victim next_victim() override;
  void evicted(std::span<const PageId> pages) override;
  std::optional<std::string> audit() const override;

 private:
  struct Page {
    std::uint64_t fingerprint = 0;
    std::int64_t number = 0;  // its place in its queue: smaller ones are up earlier
    PageId above;             // the page it continues; invalid: at a root
    std::uint8_t uses = 0;
    bool computed = false;  // a request that held it has ended
    bool in_main = false;
  };

  Page& page(PageId id) noexcept { return pages_[id.index()]; }
  void enter_main(PageId id) noexcept;
  bool small_is_full() const noexcept { return small_pages_ * kPagesPerSmallPage >= capacity_; }

  std::int64_t capacity_;
  std::size_t page_size_;
  std::int64_t next_number_ = 0;
  std::int64_t small_pages_ = 0;  // leaves and others
  GhostPages ghosts_;
  UntouchedArray<Page> pages_;  // by page
  EvictionIndex small_;         // leaves by the numbers of their last pages
  EvictionIndex main_;
  UntouchedArray<Leaf> leaves_;  // by node, of leaves in a queue
};

}  // namespace stemma
