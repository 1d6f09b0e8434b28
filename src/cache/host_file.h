// HostFile: the file that host memory survives in, as a cache uses it: read when it opens, removed
// when something is in it that is not to be found any more, written anew when it settles.
//
// A file that could neither be removed nor emptied is tried again, less and less often, for as long
// as the cache lives.
//
// Thread:     engine thread only.                     Invariants: I9 (docs/INVARIANTS.md).
// Memory:     a few words.
// Cost:       load, save: as host_image_pages; forget: that of removing a file; of several ranks a
//             message and an answer.
// Not here:   its pages (host_image_pages), its bytes (tier/host_image_file).
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "cache/host_tier.h"
#include "cache/tier_counters.h"
#include "stemma/options.h"
#include "tier/host_image_file.h"
#include "tier/host_image_ranks.h"

namespace stemma {

class HostFile {
 public:
  // Everything must outlive it. Where there is no file nothing below does anything.
  struct Parts {
    HostTier& host;
    HostImages images;
    HostImageRanks* ranks_or_null;  // nullptr: there are no others
    const Clock& clock;
    const TierOptions& options;
    TierCounters& counters;
  };
  explicit HostFile(const Parts& parts) : parts_(parts) {}

  // REQUIRES: nobody has used host memory yet.
  void load();
  // Nothing is in it afterwards that host memory's tree does not have. `held`: what copies that do
  // not end hold there still.
  void save(std::span<const PrefixLock> held);
  // What it has of an earlier life is not to be found again.
  void forget();
  // Tries again what forget could not do. Once a poll.
  void advance();
  // Whether the file still has what was to be forgotten.
  bool stays() const noexcept { return stays_; }

 private:
  void remove();

  Parts parts_;
  bool stays_ = false;
  int failures_ = 0;  // in a row
  std::int64_t again_us_ = 0;
};

}  // namespace stemma
