// The pages of a locked text, one behind the other.
//
// Thread:     engine thread only.
// Memory:     the caller's list, which keeps its room.
// Cost:       O(pages + nodes they lie in).
// Not here:   rows of requests (alloc/request_table).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stemma/ids.h"
#include "stemma/prefix_cache.h"

namespace stemma {

// All pages that `held` holds. REQUIRES: held.valid().
inline void copy_row(const PrefixLock& held, std::int64_t page_size, std::vector<PageId>& row) {
  row.resize(static_cast<std::size_t>(held.tokens() / page_size));
  held.copy_pages(0, row);
}

}  // namespace stemma
