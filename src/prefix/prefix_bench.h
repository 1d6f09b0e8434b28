// Benchmarks of the prefix cache, each beside the bound it is measured against in the same run.
//
// Thread:     one.
// Memory:     up to about 300 MB.
// Cost:       a few seconds each.
// Not here:   how lines are printed (cli/).
#pragma once

#include <vector>

#include "base/bench_line.h"

namespace stemma {

// A fully cached prompt of 8,192 tokens in a tree of 100,000 nodes, page size 16: walk, lock, page
// ids into the row, unlock; the same path repeated, and different paths with cold caches. Bound: a
// memcmp of the same bytes; aimed at one and a half times that plus 1 us (param allowed_ns).
std::vector<BenchLine> bench_match();

// One page evicted and freed, of trees with 1,000 and 100,000 leaves touched in random order.
// Bound: the tree of 1,000; aimed at three times that, and 1 us (allowed_ns). Then what policies
// cost beside lru (policy_bench).
std::vector<BenchLine> bench_evict();

// 32,768 tokens published in chunks of 512, at page sizes 1, 16 and 64. Bound: one insert of all of
// them; aimed at 1.5 times that. Then tails of one page and of 32, published behind a locked prompt
// of 8,192 tokens in the tree of bench_match; bound: a memcpy of the tail's tokens; aimed at 3 us.
std::vector<BenchLine> bench_insert();

}  // namespace stemma
