// WindowSpan: how far the layers with a window look back, in pages.
//
// Thread:     a value.
// Memory:     none.
// Cost:       none.
// Not here:   which pages are there (alloc/windowed_pages), who holds them (windows).
#pragma once

#include <algorithm>
#include <cstdint>

namespace stemma {

struct WindowSpan {
  std::int64_t window_tokens = 0;
  std::int64_t page_size = 1;

  // The first page that computing the token at `position` reads.
  std::int64_t first_page(std::int64_t position) const noexcept {
    return std::max<std::int64_t>(position - window_tokens + 1, 0) / page_size;
  }
  // The same of the token behind `end_page` pages.
  std::int64_t first_page_before(std::int64_t end_page) const noexcept {
    return first_page(end_page * page_size);
  }
  // The last end up to there that can be gone on from, where has_window(page) says which windowed
  // pages there are. 0: none. O(end_page).
  template <typename HasWindow>
  std::int64_t usable_end(std::int64_t end_page, HasWindow&& has_window) const {
    std::int64_t usable = 0;
    std::int64_t run_begin = 0;  // of the pages before `end` that have windowed ones without a gap
    for (std::int64_t end = 1; end <= end_page; ++end) {
      if (!has_window(end - 1)) run_begin = end;
      if (run_begin <= first_page_before(end)) usable = end;
    }
    return usable;
  }
};

}  // namespace stemma
