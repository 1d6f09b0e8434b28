// EngineGhosts: what the engine's own requests would have hit with more pages, with fewer, and
// under another policy, watched while they are served.
//
// Watched are lru at any capacity up to four times the engine's, and slru at the engine's. Minutes
// that are gone count less and less: half of it after about half an hour.
//
// Thread:     engine thread.
// Memory:     that of a GhostPanel: at one page in 20, some 20 bytes a page of the pool, of which
//             each has thousands. Nothing is allocated while requests run.
// Cost:       10 ns a page of 16 tokens to hash and some 40 ns to watch, of prompts once and of
//             whole texts at their end.
// Not here:   the estimates (ghost/).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ghost/ghost_panel.h"
#include "stemma/metrics.h"
#include "stemma/options.h"
#include "stemma/result.h"

namespace stemma {

class EngineGhosts {
 public:
  // nullptr where options.ghost_pages_per_sample is 0. `page_bytes` are those of the pool.
  static Result<std::unique_ptr<EngineGhosts>> open(const EngineOptions& options,
                                                    std::int64_t page_bytes);

  // A request looks its prompt up; `space` differs for texts that may not meet.
  void look_up(std::int64_t space, std::span<const TokenId> prompt, std::int64_t now_us);
  // A request has ended and leaves the KV of `computed` behind.
  void insert(std::int64_t space, std::span<const TokenId> computed);

  // Gauges in pages, over as many look-ups as still count: stemma_ghost_lookup_pages and, of them,
  // stemma_ghost_hit_pages_half, _same, _double, _quadruple capacity and _slru.
  void visit_metrics(MetricVisitor& visitor) const;

  // "device +2 GiB: +6.1 points", "policy slru: -3.4 points"; empty before the first look-up.
  std::vector<std::string> advice() const;

 private:
  EngineGhosts(const EngineOptions& options, std::int64_t page_bytes);
  void fade(std::int64_t now_us);

  KvCacheOptions kv_;
  std::int64_t page_bytes_;
  std::unique_ptr<GhostPanel> panel_;
  std::vector<std::int64_t> hashes_;  // scratch, of one text
  std::int64_t faded_us_ = -1;        // when it was done last; -1: never
};

}  // namespace stemma
