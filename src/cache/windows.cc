#include "cache/windows.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "cache/page_row.h"

namespace stemma {

Windows::Windows(const KvCacheOptions& options, PageAllocator& carriers)
    : span_{.window_tokens = options.window_tokens, .page_size = options.page_size},
      pages_({.pages = options.windowed_pages, .carriers = options.pages}),
      found_(static_cast<std::size_t>(row_pages_max(options))) {
  taken_.reserve(found_.size());
  carriers.carry(pages_);
}

std::int64_t Windows::usable_pages(std::span<const PageId> row) const {
  return span_.usable_end(std::ssize(row), [&](std::int64_t page) {
    return pages_.of(row[static_cast<std::size_t>(page)]).valid();
  });
}

void Windows::enter(SequenceWindow& window, std::span<const PageId> row,
                    std::int64_t computed_tokens) {
  window.begin_page = span_.first_page(computed_tokens);
  for (const PageId page : row.subspan(static_cast<std::size_t>(window.begin_page))) {
    pages_.hold(page);
  }
}

bool Windows::can_enter(std::span<const PageId> row, std::int64_t computed_tokens) const {
  const auto reached = row.subspan(static_cast<std::size_t>(span_.first_page(computed_tokens)));
  return std::all_of(reached.begin(), reached.end(),
                     [&](PageId page) { return pages_.of(page).valid(); });
}

void Windows::advance(SequenceWindow& window, std::span<const PageId> row, std::int64_t published,
                      std::int64_t computed_tokens) {
  const std::int64_t end = std::min(span_.first_page(computed_tokens), std::ssize(row));
  for (; window.begin_page < end; ++window.begin_page) {
    const PageId page = row[static_cast<std::size_t>(window.begin_page)];
    if (window.begin_page < published) {
      pages_.let_go(page, likely(window, window.begin_page));
    } else {
      pages_.give_up(page);
    }
  }
}

void Windows::leave(SequenceWindow& window, std::span<const PageId> row, std::int64_t published) {
  for (std::int64_t page = window.begin_page; page < std::ssize(row); ++page) {
    const PageId carrier = row[static_cast<std::size_t>(page)];
    if (page < published) {
      pages_.let_go(carrier, WindowedPages::Return::kLikely);
    } else {
      pages_.give_up(carrier);
    }
  }
  window.begin_page = std::ssize(row);
}

void Windows::take_off(std::span<const PageId> unpublished) {
  taken_.clear();
  for (const PageId page : unpublished) taken_.push_back(pages_.take_off(page));
}

void Windows::put_back(const SequenceWindow& window, std::span<const PageId> row,
                       std::int64_t first_page) {
  for (std::int64_t i = 0; i < std::ssize(taken_); ++i) {
    const PageId carrier = row[static_cast<std::size_t>(first_page + i)];
    const PageId taken = taken_[static_cast<std::size_t>(i)];
    if (!taken.valid()) continue;
    STEMMA_CHECK(first_page + i >= window.begin_page, "what hung there was in the window");
    if (pages_.of(carrier).valid()) {
      pages_.give_up_taken(taken);
      pages_.hold(carrier);
    } else {
      pages_.hang(carrier, taken);
    }
  }
}

void Windows::copy_held(const SequenceWindow& window, std::span<const PageId> row,
                        std::int64_t first_token, std::span<PageId> out) const {
  const std::int64_t first_page = std::max(window.begin_page, span_.first_page(first_token));
  const auto begin = std::min(static_cast<std::size_t>(first_page), row.size());
  std::fill_n(out.begin(), begin, PageId());
  for (std::size_t i = begin; i < row.size(); ++i) out[i] = pages_.of(row[i]);
}

std::int64_t Windows::copy_last(std::span<const PageId> row, std::vector<PageId>& out) const {
  out.assign(row.size(), PageId());
  std::int64_t begin = std::ssize(row);
  for (; begin > 0; --begin) {
    const auto page = static_cast<std::size_t>(begin - 1);
    out[page] = pages_.of(row[page]);
    if (!out[page].valid()) break;
  }
  const std::int64_t end_token = std::ssize(row) * span_.page_size;
  const std::int64_t read_whole =
      begin == 0 ? 0 : begin * span_.page_size + span_.window_tokens - 1;
  return std::clamp(read_whole, end_token - span_.page_size, end_token);
}

// Texts are gone on from where prompts end, and where they part from others. Whoever asks a prompt
// again goes on from before its last token.
WindowedPages::Return Windows::likely(const SequenceWindow& window, std::int64_t page) const {
  for (const std::int64_t end_tokens : window.ends) {
    const std::int64_t end_page = ceil_div(end_tokens, span_.page_size);
    const std::int64_t again_tokens = std::max<std::int64_t>(end_tokens - 1, 0);
    const std::int64_t first = span_.first_page(round_down(again_tokens, span_.page_size));
    if (first <= page && page < end_page) {
      return WindowedPages::Return::kLikely;
    }
  }
  return WindowedPages::Return::kUnlikely;
}

}  // namespace stemma
