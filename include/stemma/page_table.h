// PageTableView: where a batch's keys and values lie, as kernels read it.
//
// The triple that FlashInfer made the field's convention (indptr, pages, last_page_tokens).
//
// Thread:     a view; valid until its owner changes what it points to (the next step).
// Memory:     none of its own.
// Cost:       none.
// Not here:   who owns the pages (PageAllocator), rows over the life of a request
// (alloc/request_table).
#pragma once

#include <cstdint>
#include <span>

#include "stemma/ids.h"

namespace stemma {

struct PageTableView {
  // Where each request's pages begin in `pages`; the last entry is their total.   [requests + 1]
  std::span<const std::int32_t> indptr;
  // The pages of all requests, in token order.                                    [indptr.back()]
  std::span<const PageId> pages;
  // Tokens in each request's last page, 1 … page_size (0 for a request without pages).   [requests]
  std::span<const std::int32_t> last_page_tokens;
  std::int64_t page_size = 0;

  std::int64_t requests() const noexcept {
    return static_cast<std::int64_t>(last_page_tokens.size());
  }

  // The pages of request `r`. REQUIRES: 0 <= r < requests().
  std::span<const PageId> pages_of(std::int64_t r) const {
    const auto i = static_cast<std::size_t>(r);
    return pages.subspan(static_cast<std::size_t>(indptr[i]),
                         static_cast<std::size_t>(indptr[i + 1] - indptr[i]));
  }

  // Tokens of request `r` that have a place, those of this step included.
  std::int64_t tokens_of(std::int64_t r) const {
    const auto i = static_cast<std::size_t>(r);
    const std::int64_t pages_held = indptr[i + 1] - indptr[i];
    return pages_held == 0 ? 0 : (pages_held - 1) * page_size + last_page_tokens[i];
  }

  // The slot of the token at `position` of request `r`. REQUIRES: 0 <= position < tokens_of(r).
  SlotId slot(std::int64_t r, std::int64_t position) const {
    const PageId page = pages_of(r)[static_cast<std::size_t>(position / page_size)];
    return SlotId(page.value() * page_size + position % page_size);
  }
};

}  // namespace stemma
