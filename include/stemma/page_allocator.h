// PageAllocator: which pages of a pool are free, and OwnedPages: the pages that one owner holds.
//
// Every page has exactly one owner (I1). OwnedPages is that ownership as a type: it moves, and
// gives its pages back when it is destroyed. A radix node takes pages over with `release` and
// returns them with `adopt`.
//
// Thread:     engine thread only.                      Invariants: I1 (docs/INVARIANTS.md).
// Memory:     about 5 bytes a page, fixed at construction; OwnedPages threads its list through
//             them and allocates nothing.
// Cost:       allocate and free O(pages moved); a free run is searched for at most a bounded
//             number of words.
// Not here:   KV bytes (pool/), which tokens a page holds (prefix/), eviction (cache/).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stemma/ids.h"

namespace stemma {

class PageAllocator;
class WindowedPages;

// Pages held by one owner, in order. Move-only; destroying it frees them. Must not outlive its
// allocator.
class [[nodiscard]] OwnedPages {
 public:
  // Holds nothing.
  OwnedPages() noexcept = default;
  OwnedPages(OwnedPages&& other) noexcept
      : allocator_(std::exchange(other.allocator_, nullptr)),
        first_(other.first_),
        last_(other.last_),
        count_(std::exchange(other.count_, 0)) {}
  OwnedPages& operator=(OwnedPages&& other) noexcept;
  OwnedPages(const OwnedPages&) = delete;
  OwnedPages& operator=(const OwnedPages&) = delete;
  ~OwnedPages() {
    if (count_ != 0) reset();
  }

  std::int64_t pages() const noexcept { return count_; }
  bool empty() const noexcept { return count_ == 0; }

  // Puts `more` behind what is held. O(1). REQUIRES: both from one allocator, or one of them empty.
  void append(OwnedPages more) noexcept;

  // Splits off the first `pages`. O(pages). REQUIRES: 0 <= pages <= pages().
  OwnedPages take_front(std::int64_t pages) noexcept;

  // Writes the ids in order. REQUIRES: out.size() == pages().
  void copy_to(std::span<PageId> out) const noexcept;

  // As copy_to, and gives ownership up: the caller now owes them to PageAllocator::adopt. Leaves
  // this empty. REQUIRES: out.size() == pages().
  void release(std::span<PageId> out) noexcept;

  // Frees what is held now instead of at destruction.
  void reset() noexcept;

 private:
  friend class PageAllocator;
  OwnedPages(PageAllocator* allocator, PageId first, PageId last, std::int64_t count) noexcept
      : allocator_(allocator), first_(first), last_(last), count_(count) {}

  PageAllocator* allocator_ = nullptr;
  PageId first_;
  PageId last_;
  std::int64_t count_ = 0;
};

// Hands out pages 0 … pages−1. Freeing a page twice, or one that was never handed out, stops the
// program, in every build: a page with two owners would serve one user's tokens to another.
class PageAllocator {
 public:
  // REQUIRES: 0 <= pages < 2^31.
  explicit PageAllocator(std::int64_t pages);
  // REQUIRES: every OwnedPages of this allocator is gone.
  ~PageAllocator();
  PageAllocator(const PageAllocator&) = delete;
  PageAllocator& operator=(const PageAllocator&) = delete;

  // `pages` free pages, one contiguous ascending run where one is found, else the lowest free ones
  // in ascending order. All or none: nullopt if fewer are free. Zero pages are an empty OwnedPages.
  std::optional<OwnedPages> try_allocate(std::int64_t pages);

  // From now on `windowed`, which must outlive it, is told of each page that is freed.
  void carry(WindowedPages& windowed) noexcept { windowed_or_null_ = &windowed; }

  // Takes back into ownership pages that `OwnedPages::release` gave up. Checked page by page.
  OwnedPages adopt(std::span<const PageId> pages);

  // Steps in flight. A page freed while steps run may still be read by them: it becomes free only
  // when every step that had begun by then has retired. With no step in flight pages are free at
  // once. Begins a step and returns its number, one higher than the last.
  std::int64_t begin_step();
  // Ends the oldest step in flight. REQUIRES: `step` is that step.
  void retire_step(std::int64_t step);
  std::int64_t steps_in_flight() const noexcept { return last_step_ - retired_step_; }

  std::int64_t total_pages() const noexcept { return static_cast<std::int64_t>(state_.size()); }
  std::int64_t free_pages() const noexcept { return free_pages_; }
  // Freed, but a step in flight may still read them.
  std::int64_t retiring_pages() const noexcept { return retiring_pages_; }
  // Held by an OwnedPages.
  std::int64_t owned_pages() const noexcept { return owned_pages_; }
  // Given up by `release`: the tree's.
  std::int64_t released_pages() const noexcept { return released_pages_; }

  // Recounts every state and compares (I1): a description of the first contradiction, or nullopt.
  // O(pages).
  std::optional<std::string> audit() const;

 private:
  friend class OwnedPages;
  enum class PageState : std::uint8_t { kFree, kOwned, kReleased, kRetiring };
  // A list of pages threaded through next_.
  struct PageList {
    PageId first;
    PageId last;
    std::int64_t count = 0;
  };
  static constexpr std::int64_t kStepsInFlightMax = 16;

  void give_back(PageList pages) noexcept;
  void free_carried(PageList pages) noexcept;
  void make_free(PageList pages, PageState from) noexcept;
  std::int64_t find_run(std::int64_t pages) const noexcept;
  std::int64_t next_free_word(std::int64_t word) const noexcept;
  void take(std::int64_t page, PageList& into) noexcept;
  void push_back(PageId page, PageList& into) noexcept;
  void change(PageId page, PageState from, PageState to, const char* why) noexcept;

  std::vector<PageState> state_;
  std::vector<PageId> next_;              // threads the list of a page's owner
  std::vector<std::uint64_t> free_bits_;  // one bit a page: set while free
  std::vector<std::uint64_t>
      free_words_;  // one bit a word of free_bits_: set while the word is not zero
  std::array<PageList, kStepsInFlightMax> retiring_;  // by step: freed while it was the last begun
  WindowedPages* windowed_or_null_ = nullptr;
  std::int64_t free_pages_ = 0;
  std::int64_t owned_pages_ = 0;
  std::int64_t released_pages_ = 0;
  std::int64_t retiring_pages_ = 0;
  std::int64_t last_step_ = 0;     // begun
  std::int64_t retired_step_ = 0;  // ended
};

}  // namespace stemma
