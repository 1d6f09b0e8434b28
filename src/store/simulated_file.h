// SimulatedFile: one file of a simulated disk, and what a loss of power leaves of it.
//
// Thread:     one.
// Memory:     twice the file.
// Cost:       copies.
// Not here:   names, faults (simulated_disk).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/prng.h"

namespace stemma {

struct SimulatedFile {
  std::vector<std::byte> now;      // what a read finds
  std::vector<std::byte> durable;  // what a loss of power leaves
  int opened = 0;                  // so many times: till it is not, it has its room without a name

  // Each piece of `tear_bytes` that was written and not synced is there or not; nobody has it open.
  void lose_power(std::size_t tear_bytes, Prng& prng) {
    const std::size_t longest = std::max(now.size(), durable.size());
    const bool new_size = now.size() != durable.size() && prng.below(2) == 0;
    const std::size_t size = new_size ? now.size() : durable.size();
    now.resize(longest);
    durable.resize(longest);
    for (std::size_t at = 0; at < longest; at += tear_bytes) {
      if (prng.below(2) == 0) continue;
      const std::size_t end = std::min(at + tear_bytes, longest);
      std::copy(now.begin() + static_cast<std::ptrdiff_t>(at),
                now.begin() + static_cast<std::ptrdiff_t>(end),
                durable.begin() + static_cast<std::ptrdiff_t>(at));
    }
    durable.resize(size);
    now = durable;
    opened = 0;
  }
};

}  // namespace stemma
