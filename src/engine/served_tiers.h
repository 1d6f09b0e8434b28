// ServedTiers: the tiers below a served model's pool, as flags name them.
//
// Thread:     values; open by the thread that opens the model.
// Memory:     the host pool, staging frames and what the stores keep in memory.
// Cost:       touching the host pool; reading a disk tier's index.
// Not here:   what moves when (KvCacheOptions::tiers).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "stemma/kv_pool.h"
#include "stemma/lower_tiers.h"
#include "stemma/result.h"

namespace stemma {

struct ServedTierOptions {
  // Host memory for pages. 0: none, unless a store is named, which needs some to pass through.
  std::int64_t host_bytes = 0;
  std::string host_layout = "page_first";
  // File that host memory survives in from a clean end to the next start; empty: none.
  std::string host_file;

  // "plain", or "int8", "int4": pages below the device take half or a quarter of the room, and come
  // back a little different. What is answered then depends on what was cached where (page_codec).
  std::string codec = "plain";

  // Directory of the disk tier; empty: none.
  std::string disk_directory;
  std::int64_t disk_bytes = std::int64_t{16} << 30;

  // "redis://host:6379", ...; empty: none (store/redis_url.h).
  std::string remote_url;
  // Values in the remote store are sealed with it; empty: they are not.
  std::string remote_secret;

  // File in which purges and removals that stores have not confirmed outlive the process. Empty:
  // "purges" in the directory of the disk tier; none where there is no such tier.
  std::string purge_file;

  // Which of how many ranks keeps its part of each page here. In stores every rank's frames lie by
  // themselves, on disk in a directory "rank1of2" below that one; a rank's host_file ends in
  // ".rank1of2".
  int rank = 0;
  int ranks = 1;
};

// What pages pass through on their way to stores where no host memory was asked for.
inline constexpr std::int64_t kPassThroughBytes = std::int64_t{64} << 20;

// nullptr where no tier is asked for. `windowed_or_null`: the pool of layers with a window. Errors
// name the flag.
Result<std::unique_ptr<LowerTiers>> open_served_tiers(const ServedTierOptions& options,
                                                      KvPool& device, KvPool* windowed_or_null,
                                                      ThreadPool& threads, const Clock& clock);

}  // namespace stemma
