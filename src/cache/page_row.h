// The pages of a text, one behind the other: how many they can be, and those of a locked one.
//
// Thread:     engine thread only.
// Memory:     the caller's list, which keeps its room.
// Cost:       O(pages + nodes they lie in).
// Not here:   rows of requests (alloc/request_table).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/math.h"
#include "stemma/ids.h"
#include "stemma/options.h"
#include "stemma/prefix_cache.h"

namespace stemma {

// A row has a page of the pool once: the longest text that fits has no more of them than there are.
inline std::int64_t row_pages_max(const KvCacheOptions& options) {
  return std::min(ceil_div(options.context_tokens_max, options.page_size), options.pages);
}

// All pages that `held` holds. REQUIRES: held.valid().
inline void copy_row(const PrefixLock& held, std::int64_t page_size, std::vector<PageId>& row) {
  row.resize(static_cast<std::size_t>(held.tokens() / page_size));
  held.copy_pages(0, row);
}

}  // namespace stemma
