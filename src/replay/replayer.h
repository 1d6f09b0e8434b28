// Replayer: one request after another through the allocator and the prefix cache, counting what
// hits.
//
// The control plane is the one that serves; only the bytes are missing. Each hash of the trace is
// one whole page, the last one included; a request completes before the next begins; outputs are
// not inserted unless the trace knows their pages (captures); the rule that one token is always
// computed does not apply. The clock of the eviction policy is the trace's.
//
// Thread:     one thread a replayer.
// Memory:     that of a cache of capacity_pages.
// Cost:       under a microsecond a page.
// Not here:   reading traces (trace_reader), printing (cli/).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ghost/hash_cache.h"
#include "replay/trace_reader.h"

namespace stemma {

struct ReplayOptions {
  std::string policy = "lru";       // an eviction order's name
  std::int64_t capacity_pages = 0;  // at least 1
};

struct ReplayReport {
  std::int64_t requests = 0;
  std::int64_t lookup_pages = 0;  // pages of all requests
  std::int64_t hit_pages = 0;     // of them, found
  std::int64_t evicted_pages = 0;
  double hit_rate() const noexcept {
    return lookup_pages == 0 ? 0.0
                             : static_cast<double>(hit_pages) / static_cast<double>(lookup_pages);
  }
};

class Replayer {
 public:
  static constexpr std::int64_t kCapacityPagesMax = (std::int64_t{1} << 30) - 1;  // of a tree

  // kNotFound for an unknown policy, listing the known ones; kInvalidArgument for a capacity
  // below 1.
  static Result<std::unique_ptr<Replayer>> open(const ReplayOptions& options);

  // kInvalidArgument, naming the flag, unless 1 <= capacity_pages <= kCapacityPagesMax.
  static Status check_capacity(std::int64_t capacity_pages);

  // Looks the request's pages up, makes them resident, and completes it. A request longer than the
  // capacity keeps the prefix that fits.
  void feed(const TraceRequest& request);

  const ReplayReport& report() const noexcept { return report_; }

 private:
  FakeClock clock_;  // at the present request's timestamp
  std::unique_ptr<HashCache> cache_;
  ReplayReport report_;
};

}  // namespace stemma
