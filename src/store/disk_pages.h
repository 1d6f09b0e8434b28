// DiskPages: which pages the disk holds, by key, and which of them goes first.
//
// Each size of slot has an order of its own, since only a page of the same size leaves a place that
// can be used. In it, coldest first: pages of namespaces that nobody has named since the store was
// opened (another model's), then the other pages that lay there at opening and were not used since,
// then the used ones. A use of a chain of pages touches the last key first, so that a page is
// colder than the pages before it, without which it is worth nothing.
//
// Thread:     one at a time (the store holds a mutex).
// Memory:     about 220 bytes a page, 8 a slot, and 50 for each slab that a namespace has pages in.
// Cost:       O(log slabs) an operation, and the slabs of a namespace when it becomes current;
//             pages_of_slab: its slots; slabs_of: O(log namespaces) a family, and what it finds.
// Not here:   files (disk_slabs, disk_index).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "stemma/prefix_cache.h"
#include "store/disk_index.h"

namespace stemma {

class DiskPages {
 public:
  struct Namespace {
    NamespaceDigest digest;
    std::string description;
    std::int64_t pages = 0;
    bool current = false;  // named since the store was opened
    bool description_stored = false;
    std::map<std::int32_t, std::int64_t> pages_of_slab = {};  // of those that have some
  };

  // How recently a page was used, coarsely; the order inside each is exact.
  enum class Warmth : std::uint8_t { kLoaded, kOld, kUsed };
  static constexpr std::size_t kWarmths = 3;

  struct Page {
    PageKey key;
    SlotRef slot;
    std::int64_t slot_bytes = 0;
    std::uint64_t generation = 0;
    std::int64_t stored_at_s = 0;
    std::int64_t ordinal = -1;
    bool unread = false;      // as IndexedPage says
    std::uint64_t stamp = 0;  // no two pages of a store's life have the same
    Namespace* owner = nullptr;
    Warmth warmth = Warmth::kUsed;
    std::uint64_t linked = 0;  // when it came to its place among those of its warmth
    Page* colder = nullptr;
    Page* warmer = nullptr;
  };
  // The least of a size goes first.
  using Rank = std::pair<Warmth, std::uint64_t>;
  static Rank rank_of(const Page& page) { return {page.warmth, page.linked}; }

  DiskPages() = default;
  DiskPages(const DiskPages&) = delete;
  DiskPages& operator=(const DiskPages&) = delete;

  Page* find_or_null(const PageKey& key);
  Page* find_in_slot_or_null(SlotRef slot);
  std::int64_t pages() const noexcept { return std::ssize(pages_); }
  std::int64_t pages_of_size(std::int64_t slot_bytes) const;

  // Warmest of its size. REQUIRES: its key is not there.
  void insert(const IndexedPage& page, std::int64_t slot_bytes, Warmth warmth);
  void touch(Page& page);
  void erase(Page& page);

  // The page of this size that goes first; null if there is none. Pages that lay there at opening
  // are looked through for those of others first, once: of many that may take a while, unless
  // pass_over_some has said that there is nothing more to pass over.
  Page* coldest_or_null(std::int64_t slot_bytes);
  // So many pages of that looking through. Whether there are more.
  bool pass_over_some(std::int64_t slot_bytes, std::int64_t pages_max);

  // The namespace is of use now: its pages are nobody else's.
  Namespace& make_current(const NamespaceDigest& digest);
  // Bounded: where as many are known, a new one without pages is not.
  Namespace* describe_or_null(const NamespaceDigest& digest, std::string_view description);
  const std::map<NamespaceDigest, Namespace>& namespaces() const noexcept { return namespaces_; }
  std::map<NamespaceDigest, Namespace>& namespaces() noexcept { return namespaces_; }

  // Whether the slab holds a page of a namespace that is current.
  bool slab_is_in_use(std::int32_t slab) const;
  std::vector<Page*> pages_of_slab(std::int32_t slab);

  // The slabs that hold pages of these families of namespaces; of any where none is named.
  std::set<std::int32_t> slabs_of(std::span<const NamespaceFamily> families) const;
  // Calls visitor, which must not erase, with the pages that lie in so many slots of a slab, from
  // `first_slot` on. The slot to go on from; 0 at the end.
  std::int32_t visit_slots(std::int32_t slab, std::int32_t first_slot, std::int32_t slots_max,
                           FunctionRef<void(Page&)> visitor);

  // Calls visitor with pages, in no order, with about `pages_max` at most. It goes through buckets
  // of the map from `first_bucket` on; returns the bucket to go on from, 0 at the end. Until then
  // nothing may be inserted; visitor must not erase.
  std::size_t visit_some(std::size_t first_bucket, std::int64_t pages_max,
                         FunctionRef<void(const Page&)> visitor) const;

  // The coldest of a size, of the smallest that has any, for which `suits` says true; null if there
  // is none.
  const Page* find_coldest_or_null(FunctionRef<bool(const Page&)> suits) const;

 private:
  struct Queue {
    Page* coldest = nullptr;
    Page* warmest = nullptr;
  };
  struct Size {
    std::array<Queue, kWarmths> queues;
    std::int64_t pages = 0;
  };
  struct Slab {
    std::vector<Page*> by_slot;  // null: no page
    std::int64_t pages = 0;
    std::int64_t current_pages = 0;  // of namespaces that are
  };

  void set_current(Namespace& named);
  void add_to_slab(Page& page);
  void take_from_slab(const Page& page);
  Queue& queue_of(const Page& page);
  void link(Page& page);
  void unlink(Page& page);

  std::unordered_map<PageKey, Page, PageKeyHash> pages_;
  std::map<std::int64_t, Size> sizes_;  // by slot_bytes
  std::map<std::int32_t, Slab> slabs_;  // that hold pages
  std::map<NamespaceDigest, Namespace> namespaces_;
  std::uint64_t next_stamp_ = 1;
  std::uint64_t links_ = 0;
};

}  // namespace stemma
