// Windows: which pages of the windowed layers a sequence holds as it goes along its text.
//
//   computed so far        ┌───────────── C ─────────────┐ next
//   pages of a row         ┌─0─┬─1─┬─2─┬─3─┬─4─┬─5─┬─6─┬─7─┐
//   windowed pages held                    └─4───5───6───7─┘    from WindowSpan::first_page(C)
//
// Computing the token at position C reads the KV of the window_tokens - 1 tokens before it: pages
// before those are let go as C moves on, and need not be there where a request begins with C cached
// tokens. So a text of which the full layers are cached can be gone on from where the windowed
// pages of one window before are cached too: at its legal ends.
//
// Thread:     engine thread only.                      Invariants: I1, I2 (docs/INVARIANTS.md).
// Memory:     WindowedPages, and 8 bytes a page of the longest context.
// Cost:       O(pages entered, passed or published).
// Not here:   what hangs where (alloc/windowed_pages), which pages the full layers have (KvCache).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "alloc/windowed_pages.h"
#include "cache/window_span.h"
#include "stemma/options.h"
#include "stemma/sequence.h"

namespace stemma {

class Windows {
 public:
  // REQUIRES: the options are valid and have a window; `carriers` lives as long.
  Windows(const KvCacheOptions& options, PageAllocator& carriers);

  WindowedPages& pages() noexcept { return pages_; }
  const WindowedPages& pages() const noexcept { return pages_; }

  const WindowSpan& span() const noexcept { return span_; }

  // Of a cached text in the pages `row`: how many of them, from the first on, can be gone on from.
  std::int64_t usable_pages(std::span<const PageId> row) const;

  // Below, `row` are all pages of a sequence, the first `published` of which others can find.

  // Holds the window before `computed_tokens`, up to the end of the row.
  // REQUIRES: nothing is held; these pages are there.
  void enter(SequenceWindow& window, std::span<const PageId> row, std::int64_t computed_tokens);
  // Whether enter would find its pages.
  bool can_enter(std::span<const PageId> row, std::int64_t computed_tokens) const;
  // Lets go what the window before `computed_tokens` does not reach.
  void advance(SequenceWindow& window, std::span<const PageId> row, std::int64_t published,
               std::int64_t computed_tokens);
  // Lets go everything.
  void leave(SequenceWindow& window, std::span<const PageId> row, std::int64_t published);

  // Around the publication of some pages of a row: takes off what hangs on them; then, the row
  // naming the pages of the tree, hangs it there, or gives it up where something hangs already.
  void take_off(std::span<const PageId> unpublished);
  void put_back(const SequenceWindow& window, std::span<const PageId> row, std::int64_t first_page);

  // The windowed pages of a row as a page table has them, for tokens from `first_token` on: an
  // invalid id where none is held, or looked back to.
  void copy_held(const SequenceWindow& window, std::span<const PageId> row,
                 std::int64_t first_token, std::span<PageId> out) const;

  // Of a cached text in the pages `row`: writes the windowed pages at its end that are there
  // without a gap, invalid ids before them, and returns the first token of its last page that can
  // be computed again from them; the text's end if none can. Holds nothing. REQUIRES: the row is
  // not empty.
  std::int64_t copy_last(std::span<const PageId> row, std::vector<PageId>& out) const;

  // Room for the pages of the longest text.
  std::span<PageId> row_scratch() noexcept { return found_; }

 private:
  WindowedPages::Return likely(const SequenceWindow& window, std::int64_t page) const;

  WindowSpan span_;
  WindowedPages pages_;
  std::vector<PageId> taken_;  // by take_off
  std::vector<PageId> found_;
};

}  // namespace stemma
