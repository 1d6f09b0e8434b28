// Calls of page movers in tests: pages that go one way and the other, each by a key of its own, and
// what became of them.
//
// Thread: any. Memory: the moves. Cost: none worth noting.
// Not here: pools and their bytes (pool_fixture, cuda_pool_fixture).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pool/host_pool.h"

namespace stemma {

inline constexpr auto kAlways = [] { return true; };

// Another key for each number below 2^16, and none that a page without a key could have.
inline PageKey key_of(std::int64_t number) {
  PageKey key;
  key.bytes[0] = static_cast<std::uint8_t>(number);
  key.bytes[1] = static_cast<std::uint8_t>(number >> 8);
  key.bytes[31] = 9;
  return key;
}

// Page i of `pages` goes to targets[i].
inline std::vector<PageMove> moves_between(const std::vector<std::int32_t>& pages,
                                           const std::vector<std::int32_t>& targets) {
  std::vector<PageMove> moves;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const PageKey key = key_of(static_cast<std::int64_t>(i) + 1);
    moves.push_back({PageId(pages[i]), PageId(targets[i]), key});
  }
  return moves;
}

// What went somewhere by `moves`, on the way to `targets`.
inline std::vector<PageMove> moves_back(std::span<const PageMove> moves,
                                        const std::vector<std::int32_t>& targets) {
  std::vector<PageMove> back;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    back.push_back({moves[i].to, PageId(targets[i]), moves[i].key});
  }
  return back;
}

inline std::vector<MoveVerdict> verdicts(std::span<const PageMove> moves) {
  std::vector<MoveVerdict> all;
  for (const PageMove& move : moves) all.push_back(move.verdict);
  return all;
}

}  // namespace stemma
