// What tests of tiers below a StampHarness do again and again.
//
// Thread:     one.
// Memory:     none.
// Cost:       settle steps a thousand times.
// Not here:   the engine and its tiers (stamp_harness, simulated_tiers).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/stamp_harness.h"

namespace stemma {

// A small engine, which writes through.
inline EngineOptions tiered_options(std::int64_t page_size, std::int64_t pool_tokens) {
  EngineOptions options;
  options.kv.page_size = page_size;
  options.kv.pages = pool_tokens / page_size;
  options.kv.requests_max = 4;
  options.kv.context_tokens_max = 160;
  options.kv.tiers.write_policy = WritePolicy::kWriteThrough;
  options.kv.tiers.load_pages_max = 4;
  options.scheduler.step_tokens_max = 48;
  options.scheduler.chunk_tokens_max = 20;
  options.inbox_max = 64;
  return options;
}

inline SimulatedTierOptions tiers_of(std::int64_t host_pages, std::vector<Tier> stores = {}) {
  SimulatedTierOptions tiers;
  tiers.host_pages = host_pages;
  tiers.stores = std::move(stores);
  return tiers;
}

// Runs one request to its end; what it cost.
inline RequestStats answer(StampHarness& harness, std::uint64_t seed, std::int64_t tokens) {
  const RequestId id = harness.submit(some_tokens(seed, tokens), 4);
  harness.run();
  harness.expect_closed_form();
  return harness.outcome(id).stats;
}

// Steps while copies to host memory end, not those of a store that takes far longer.
inline void settle_host(StampHarness& harness) {
  for (int i = 0; i < 10; ++i) {
    harness.clock().advance_us(400);
    harness.engine().step();
  }
}

// Steps until copies in flight have ended.
inline void settle(StampHarness& harness) {
  for (int i = 0; i < 1000; ++i) {
    harness.clock().advance_us(1000);
    harness.engine().step();
  }
}

}  // namespace stemma
