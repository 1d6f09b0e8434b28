// HazardPolicy: the eviction policy "hazard": what goes is the leaf page least worth its place.
//
// When a request ends, each page it used gets a class (page_class) from what the request was. How
// soon pages of a class are used again, and whether at all, is learned while running
// (hazard_table), from pages that went too early as well: they stay known as ghosts, eight times
// the capacity. The leaf goes whose last page has the least index for its class and age, of equal
// ones the one used longer ago; but only if that is less than 0.7 of the index of the leaf used
// longest ago of all, which goes otherwise: small differences are chance. Within a class only the
// oldest and the youngest leaf are looked at: an index rises to one peak with age and falls from
// there. Where lru did better of late, its order is used for a while (lru_duel).
//
// A node has pages of several classes, the last page of a request at most at its end; a leaf is
// ranked by the page that would go first, and anew when that is gone. Hints weigh: they multiply
// the index by 4 or a quarter, so that nothing hinted at is kept for ever.
//
// Thread:     engine thread only.
// Memory:     about 600 bytes a page: 40 for what is known of it, 8 x 56 to 72 for ghosts, 60 for
//             the queues; and 2.5 MB.
// Cost:       completed about 50 ns a page; next_victim O(classes); other methods O(1) to O(log
//             leaves).
// Not here:   the tree (radix_prefix_cache).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "prefix/hazard_table.h"
#include "prefix/leaf_queues.h"
#include "prefix/lru_duel.h"
#include "prefix/page_policy.h"
#include "prefix/page_record.h"

namespace stemma {

class HazardPolicy final : public PagePolicy {
 public:
  static constexpr std::int64_t kGhostsPerPage = 8;
  static constexpr std::int64_t kPagesMax =
      (std::int64_t{1} << 27) - 1;  // that places of ghosts can name

  // REQUIRES: options.clock; 0 <= pages < kPagesMax.
  explicit HazardPolicy(const PagePolicyOptions& options);

  void published(const Published& what) override;
  void completed(std::span<const PageId> path, const PathPlaces& places,
                 const RequestEnd& end) override;
  void add_leaf(const Leaf& leaf) override;
  void remove_leaf(NodeSlot slot) override;
  bool contains(NodeSlot slot) const override { return queues_.contains(slot); }
  std::int64_t leaves() const override { return queues_.leaves(); }
  void begin_eviction() override;
  Victim next_victim() override;
  void evicted(std::span<const PageId> pages) override;
  std::optional<std::string> audit() const override;

  // What is known of a page, for tests and tools. REQUIRES: it was published.
  const PageRecord& record(PageId page) const noexcept { return records_[page.index()]; }
  // The worth of a page at the time of the last begin_eviction.
  double index(PageId page) const noexcept;
  bool lru_leads() const noexcept { return duel_.lru_leads(); }

 private:
  static constexpr int kBiases = 3;
  static constexpr double kClearlyLess = 0.7;
  static constexpr int kKinds = (PageClass::kClasses + 1) * kBiases;
  static constexpr std::size_t kWords = (kKinds + 63) / 64;

  struct Candidate {
    double index = 0;
    QueuedLeaf leaf;
    bool before(const Candidate& other) const noexcept {
      return index != other.index ? index < other.index : leaf < other.leaf;
    }
  };
  // Of a kind's queue.
  struct Ends {
    Candidate oldest;
    Candidate worst;  // the oldest or the youngest
  };
  // What is known of the request that ends, from the pages it found.
  struct Ending {
    PathPlaces places;  // of the path's pages
    std::int64_t begun_us = 0;
    std::int64_t known_pages = 0;  // of the path
    std::int64_t continued = -1;   // the request it continues
    std::int64_t prompt_pages = 0;
    PageClass::Turn turn;
    std::int8_t bias = 0;
  };

  void advance_time() noexcept;
  static int kind_of(const PageRecord& page) noexcept {
    return page.page_class * kBiases + page.bias + 1;
  }
  Ending look_at(std::span<const PageId> path, const PathPlaces& places,
                 const RequestEnd& end) const;
  std::int64_t find_continued(std::span<const PageId> path, Ending& ending) const;
  void leave_classes(std::span<const PageId> path, const Ending& ending);
  void enter_classes(std::span<const PageId> path, const Ending& ending);
  void depart(const HazardTable::Departure& departure);
  void flush_departures();
  int class_of(const PageRecord& page, bool last, const Ending& ending) const noexcept;
  Candidate end_of(const QueuedLeaf& leaf) const noexcept;
  const Ends& ends_of(int kind);
  Victim victim_of(NodeSlot slot) const noexcept;
  template <typename Visit>
  void for_each_kind(Visit&& visit) const;

  const Clock& clock_;
  std::int64_t page_size_;
  std::int64_t pages_;
  std::int64_t now_us_ = 0;
  std::uint32_t requests_ = 0;
  HazardTable table_;
  HazardTable::Departure departing_;  // pages alike that left one after another
  LruDuel duel_;
  double round_requests_ = 0;  // of the duel's present round
  GhostPages ghosts_;
  UntouchedArray<PageRecord> records_;  // by page
  LeafQueues queues_;
  UntouchedArray<PageId> last_pages_;              // by node, of leaves in a queue
  std::array<std::uint64_t, kWords> filled_ = {};  // kinds that have leaves
  std::array<std::uint64_t, kWords> stale_ = {};   // kinds whose ends are not known
  std::vector<Ends> ends_;                         // by kind
  std::array<std::int64_t, PageClass::kClasses> group_pages_ = {};  // of the request that ends
};

}  // namespace stemma
