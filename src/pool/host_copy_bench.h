// Host copy bench: backups to a host pool and promotions from it, checks included, against memcpy
// of as many bytes; and the checksum alone.
//
// Thread:     one thread at a time.
// Memory:     two pools and two working sets of memcpy.
// Cost:       about ten seconds.
// Not here:   how lines are printed (cli/), what goes on to disks and remote stores (tier/).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

// How much is measured; the defaults are far beyond caches.
struct HostCopyBenchOptions {
  std::int64_t pool_bytes = std::int64_t{288} << 20;   // of each pool and working set, about
  std::int64_t moved_bytes = std::int64_t{512} << 20;  // in one case, all samples together
  int threads_max = 2;                                 // 1 or 2
};

// A line for each shape (Qwen2.5-0.5B, and one with 8 KV heads of 128), layout of the device pool,
// direction and number of threads; pages of 16 tokens at random places, calls of 1 MiB. Lines of
// two threads say how much two cores gave at the time. kOutOfMemory.
Result<std::vector<BenchLine>> bench_host_copies(const HostCopyBenchOptions& options);

}  // namespace stemma
