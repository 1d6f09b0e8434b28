// Where what copies under way bring of a text ends.
//
// Thread:     engine thread only.
// Memory:     none.
// Cost:       O(pages brought + jobs under way) for each job that goes on from another.
// Not here:   what has landed already (the trees).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "stemma/ids.h"
#include "tier/transfer_ticket.h"

namespace stemma {

// The first page, from `first_page` on, that no job brings for which is_meant(ticket); `keys` are
// those of the text's pages from there on. A job begins where the one before it ends, and those of
// another text bring what both have in common: the key of a page names all before it too.
template <typename IsMeant>
std::int64_t underway_end(const TransferEngine& transfers, std::span<const PageKey> keys,
                          std::int64_t first_page, IsMeant&& is_meant) {
  auto next = keys.begin();
  for (bool found = true; found && next != keys.end();) {
    found = false;
    transfers.for_each_underway([&](const TransferTicket& ticket) {
      const Transfer& job = ticket.job();
      const std::int64_t skipped = first_page + (next - keys.begin()) - job.first_page;
      if (skipped < 0 || skipped >= job.pages() || !is_meant(ticket)) return;
      const auto common =
          std::mismatch(next, keys.end(), job.keys.begin() + skipped, job.keys.end());
      found = found || common.first != next;
      next = common.first;
    });
  }
  return first_page + (next - keys.begin());
}

}  // namespace stemma
