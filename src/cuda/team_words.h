// Team words: words of 64 bits, put together over the threads of a team.
//
// Thread:     functions of kernels. All threads of the team call them together.
// Memory:     scratch: shared, one word a warp, free again when they return.
// Cost:       a few shuffles, two barriers.
// Not here:   sums of f32 (team_sum, device/cuda_dialect.h).
#pragma once

#include <cstdint>

#include "device/cuda_dialect.h"

namespace stemma {

STEMMA_ON_DEVICE std::uint64_t smaller(std::uint64_t a, std::uint64_t b) {
  return a < b ? a : b;
}
STEMMA_ON_DEVICE std::uint64_t larger(std::uint64_t a, std::uint64_t b) {
  return a > b ? a : b;
}

// combine(combine(a, b), c) … of what all threads of the team have, in an order that depends on the
// team's size alone.
template <typename Combine>
STEMMA_ON_DEVICE std::uint64_t over_team(std::uint64_t value, std::uint64_t* scratch,
                                         const Combine& combine) {
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    value = combine(value, shuffle_xor(value, mask));
  }
  if (lane_index() == 0) scratch[warp_index()] = value;
  team_barrier();
  std::uint64_t all = scratch[0];
  for (int warp = 1; warp < team_threads() / kWarpThreads; ++warp)
    all = combine(all, scratch[warp]);
  team_barrier();
  return all;
}

// The sum of what the threads before this one have.
STEMMA_ON_DEVICE std::uint64_t sum_before(std::uint64_t value, std::uint64_t* scratch) {
  const int lane = lane_index();
  std::uint64_t sum = value;
  for (int step = 1; step < kWarpThreads; step *= 2) {
    const std::uint64_t other = shuffle(sum, (lane - step) & (kWarpThreads - 1));
    if (lane >= step) sum += other;
  }
  if (lane == kWarpThreads - 1) scratch[warp_index()] = sum;
  team_barrier();
  std::uint64_t before = sum - value;
  for (int warp = 0; warp < warp_index(); ++warp) before += scratch[warp];
  team_barrier();
  return before;
}

// Words that are ordered as the numbers are, and back. Both zeros are one.
STEMMA_ON_DEVICE std::uint32_t ordered_word(float value) {
  const std::uint32_t word = float_as_word(value + 0.0f);
  return word >> 31 != 0 ? ~word : word | 0x80000000u;
}
STEMMA_ON_DEVICE float of_ordered_word(std::uint32_t word) {
  return word_as_float(word >> 31 != 0 ? word & 0x7FFFFFFFu : ~word);
}

}  // namespace stemma
