// WindowedPages: the pages of those layers that look back over a window of tokens only, and what
// hangs where. A windowed page has the KV of the same tokens as the full page that carries it, in
// other layers and another pool; it can go long before its carrier does.
//
//   full pages    ┌─0─┬─1─┬─2─┬─3─┬─4─┬─5─┐    of a text, in rows, tails and the tree
//   windowed        .   .   .   7   2   9      hang on the last ones: the window
//
// A windowed page is held by the sequences whose window it is in. One that nobody holds stays with
// its carrier as long as there is room, for others that find the same text, and is evicted first
// where its text is unlikely to be gone on from (kUnlikely), then in the order in which they were
// let go. It is freed with its carrier at the latest (PageAllocator::carry).
//
// Thread:     engine thread only.                      Invariants: I1, I2 (docs/INVARIANTS.md).
// Memory:     4 bytes a full page, about 22 a windowed one, fixed at construction.
// Cost:       O(1) a page.
// Not here:   which pages a sequence's window covers (cache/), KV bytes (pool/).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stemma/ids.h"
#include "stemma/page_allocator.h"

namespace stemma {

class WindowedPages {
 public:
  // How likely a text is gone on from a page that is let go.
  enum class Return : std::uint8_t { kUnlikely, kLikely };

  struct Extent {
    std::int64_t pages = 0;     // windowed ones
    std::int64_t carriers = 0;  // full ones
  };
  explicit WindowedPages(const Extent& extent);
  WindowedPages(const WindowedPages&) = delete;
  WindowedPages& operator=(const WindowedPages&) = delete;

  // The page that hangs on `carrier`; invalid if none does.
  PageId of(PageId carrier) const { return of_[carrier.index()]; }

  // Pages that try_hang could hand out now: free ones, and while no step is in flight those that
  // nobody holds.
  std::int64_t available_pages() const;
  std::int64_t free_pages() const noexcept { return allocator_.free_pages(); }
  std::int64_t total_pages() const noexcept { return allocator_.total_pages(); }

  // Hangs a page on each of `carriers`, held once; exactly as many as are short are evicted. All or
  // none: false if there are too few. REQUIRES: nothing hangs on them.
  [[nodiscard]] bool try_hang(std::span<const PageId> carriers);

  // Pages that hang nowhere yet, held once: to be hung, or freed with give_up_taken. As many are
  // evicted, all or none as in try_hang.
  [[nodiscard]] bool try_take(std::span<PageId> pages);

  // Evicts what nobody holds until as many pages are free, or will be once the steps in flight have
  // retired; as many as there are.
  void keep_free(std::int64_t pages);

  // One more holder. REQUIRES: a page hangs on `carrier`.
  void hold(PageId carrier);
  // One less. Without `likely` it stays as likely as it was. REQUIRES: it is held.
  void let_go(PageId carrier, Return likely);
  void let_go(PageId carrier);
  // Frees what hangs on `carrier`, if anything does and nobody holds it.
  void forget(PageId carrier);
  // As let_go, and frees the page. REQUIRES: it is held once.
  void give_up(PageId carrier);

  // Takes the page off its carrier, holders and all, to be hung on another or freed with
  // give_up_taken; invalid if none hangs there.
  PageId take_off(PageId carrier);
  void hang(PageId carrier, PageId page);
  // REQUIRES: nobody but the caller holds it.
  void give_up_taken(PageId page);

  // `carrier` is freed: so is what hangs on it. REQUIRES: nobody holds that.
  void carrier_freed(PageId carrier);

  // See PageAllocator.
  void begin_step();
  void retire_step();

  // Raised by whatever can change how much of a text is usable.
  std::uint64_t epoch() const noexcept { return epoch_; }
  std::int64_t evicted_pages() const noexcept { return evicted_pages_; }

  // Compares carriers, lists and counts, and the holders of each page with `holders`
  // [total_pages], of which `taken_pages` hang nowhere; a description of the first contradiction,
  // or nullopt. O(pages).
  std::optional<std::string> audit(std::span<const std::int32_t> holders,
                                   std::int64_t taken_pages = 0) const;

 private:
  struct Links {
    PageId before;
    PageId behind;
  };
  // Pages that nobody holds, the one that was let go first in front.
  struct IdleList {
    PageId front;
    PageId back;
    std::int64_t count = 0;
  };

  IdleList& list_of(PageId page) { return idle_[static_cast<std::size_t>(likely_[page.index()])]; }
  OwnedPages make_room(std::int64_t pages);
  PageId take_one(OwnedPages& taken);
  void push_idle(PageId page);
  void remove_idle(PageId page);
  void evict_one();
  void give_back(PageId page);

  PageAllocator allocator_;
  std::vector<PageId> of_;             // by carrier
  std::vector<PageId> carrier_;        // by page; invalid: free, or taken off
  std::vector<std::int32_t> holders_;  // by page
  std::vector<Return> likely_;         // by page: whose list it is in, if idle
  std::vector<Links> links_;           // by page
  std::array<IdleList, 2> idle_;       // by Return
  std::int64_t steps_in_flight_ = 0;
  std::int64_t first_step_ = 0;  // in flight
  std::uint64_t epoch_ = 0;
  std::int64_t evicted_pages_ = 0;
};

}  // namespace stemma
