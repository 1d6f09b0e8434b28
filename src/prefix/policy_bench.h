// What eviction policies cost beside lru, in a full cache of 1,000,000 pages. Part of
// `stemma bench evict`.
//
// Thread:     one.
// Memory:     about 1 GB.
// Cost:       some seconds.
// Not here:   how eviction by key scales (prefix_bench).
#pragma once

#include <vector>

#include "base/bench_line.h"

namespace stemma {

// Chats of 32 to 64 pages of 16 tokens that go on in random order; each request touches its whole
// path and evicts what is short. A line for a page touched (matched, published, completed, let go)
// and one for a page evicted, by policy. Bound: lru in the same run; aimed at no more than 150 ns
// a page touched and 1 us a page evicted above it (param allowed_ns).
std::vector<BenchLine> bench_policies();

}  // namespace stemma
