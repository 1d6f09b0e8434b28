// HeldWindowedPages and TakenWindowedPages: the windowed pages that a copy reads, and those that it
// writes, for as long as it takes.
//
// Thread:     engine thread only.                      Invariants: I1, I6 (docs/INVARIANTS.md).
// Memory:     a list of ids each.
// Cost:       O(1) a page.
// Not here:   who holds the carriers meanwhile (tier/transfer_ticket).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alloc/windowed_pages.h"
#include "stemma/ids.h"

namespace stemma {

// Holds what hangs on some carriers; lets go when destroyed. Move-only; holds nothing by default.
class HeldWindowedPages {
 public:
  HeldWindowedPages() = default;
  // REQUIRES: a page hangs on each carrier, and carriers stay as long as this.
  HeldWindowedPages(WindowedPages& pages, std::vector<PageId> carriers);
  HeldWindowedPages(HeldWindowedPages&& other) noexcept;
  HeldWindowedPages& operator=(HeldWindowedPages&& other) noexcept;
  ~HeldWindowedPages() { reset(); }

  void reset() noexcept;
  std::span<const PageId> carriers() const noexcept { return carriers_; }
  // Whether it holds some of `pages`.
  bool is_of(const WindowedPages& pages) const noexcept {
    return pages_ == &pages && !carriers_.empty();
  }
  // Adds its holds to those of each page, if they are of `pages`: for audits.
  void count(const WindowedPages& pages, std::span<std::int32_t> holders) const;

 private:
  WindowedPages* pages_ = nullptr;
  std::vector<PageId> carriers_;
};

// Owns pages that hang nowhere yet; frees when destroyed what was not hung. Move-only; empty by
// default.
class TakenWindowedPages {
 public:
  TakenWindowedPages() = default;
  // `count` pages, or none where there are too few (WindowedPages::try_take).
  static TakenWindowedPages try_take(WindowedPages& pages, std::int64_t count);
  TakenWindowedPages(TakenWindowedPages&& other) noexcept;
  TakenWindowedPages& operator=(TakenWindowedPages&& other) noexcept;
  ~TakenWindowedPages() { reset(); }

  void reset() noexcept;
  bool empty() const noexcept { return ids_.empty(); }
  // Invalid ids in the places of those that were hung.
  std::span<const PageId> ids() const noexcept { return ids_; }
  // Hangs one on `carrier`, where nobody holds it and others can find it; frees it where a page
  // hangs already. True if it hangs there now. REQUIRES: it is still there.
  bool hang(std::size_t place, PageId carrier);
  // Frees one. REQUIRES: as hang.
  void drop(std::size_t place);
  // As HeldWindowedPages; returns how many it owns.
  std::int64_t count(const WindowedPages& pages, std::span<std::int32_t> holders) const;

 private:
  WindowedPages* pages_ = nullptr;
  std::vector<PageId> ids_;
};

}  // namespace stemma
