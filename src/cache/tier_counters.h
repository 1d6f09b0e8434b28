// TierCounters: what happened between the tiers, since the cache was opened.
//
// Thread:     engine thread only.
// Memory:     a few numbers.
// Cost:       none.
// Not here:   what stores count of themselves (PageStore::visit_metrics).
#pragma once

#include <array>
#include <cstdint>

#include "stemma/page_store.h"

namespace stemma {

// Pages, unless said otherwise.
struct TierCounters {
  std::int64_t backed_up = 0;                // device -> host
  std::int64_t unbacked = 0;                 // not copied: no room in host memory, or wrong
  std::int64_t stored = 0;                   // host -> page stores
  std::int64_t unstored = 0;                 // not stored: refused or failed
  std::array<std::int64_t, 4> loaded = {};   // by tier they came from; published above it
  std::array<std::int64_t, 4> missing = {};  // by tier: promised by a lookup, not there
  std::array<std::int64_t, 4> failed = {};   // by tier: errors and deadlines
  std::array<std::int64_t, 4> corrupt = {};  // by tier: found to be wrong; never used
  std::int64_t windowed_backed_up = 0;       // device -> host, of layers with a window
  std::int64_t windowed_loaded = 0;          // from anywhere, of these; published above
  std::int64_t quarantined = 0;              // subtrees that began with a page found to be wrong
  std::array<std::int64_t, 4> purged = {};   // on the device and in host memory
  std::int64_t overtaken = 0;                // loaded, but computed meanwhile
  std::int64_t promotions = 0;               // texts, not pages
  std::int64_t declined = 0;                 // that were cheaper to compute
  std::int64_t lent = 0;                     // named in a step before they were whole
  std::int64_t void_loans = 0;               // loans of which a page did not come, or came wrong
  std::int64_t host_file_loaded = 0;         // from the file of host memory, at opening
  std::int64_t host_file_left_out = 0;       // of it, wrong or without room; never used
  std::int64_t host_file_saved = 0;          // to it, the last time

  std::int64_t& of(std::array<std::int64_t, 4> TierCounters::*counter, Tier tier) noexcept {
    return (this->*counter)[static_cast<std::size_t>(tier)];
  }
};

}  // namespace stemma
