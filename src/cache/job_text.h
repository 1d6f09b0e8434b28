// Fills in what a job says of the text it moves pages of.
//
// Thread:     engine thread only.
// Memory:     the job's lists.
// Cost:       O(pages moved); keys that were never asked for are computed.
// Not here:   page ids.
#pragma once

#include <cstdint>
#include <span>

#include "prefix/page_key.h"
#include "stemma/prefix_cache.h"
#include "tier/transfer.h"

namespace stemma {

// Pages first_page … of what `held` holds, up to the first `text.size()` tokens, which are its.
// REQUIRES: text is whole pages, not more than is held.
inline void fill_text(Transfer& job, const PrefixLock& held, std::span<const TokenId> text,
                      std::int64_t page_size, std::int64_t first_page) {
  const auto end_page = static_cast<std::int64_t>(text.size()) / page_size;
  const std::int64_t from = first_page == 0 ? 0 : first_page - 1;  // the parent's too
  job.first_page = first_page;
  job.keys.resize(static_cast<std::size_t>(held.tokens() / page_size - from));
  held.copy_page_keys(from, job.keys);
  job.parent = PageKeyHasher::root(job.digest);
  if (first_page > 0) {
    job.parent = job.keys.front();
    job.keys.erase(job.keys.begin());
  }
  job.keys.resize(static_cast<std::size_t>(end_page - first_page));
  const auto tokens = text.subspan(static_cast<std::size_t>(first_page * page_size));
  job.tokens.assign(tokens.begin(), tokens.end());
}

}  // namespace stemma
