// Benchmark of the C ABI beside the C++ calls that it makes.
//
// Thread:     one.
// Memory:     a few MB.
// Cost:       a second.
// Not here:   what the calls themselves cost (prefix/prefix_bench), how lines are printed (cli/).
#pragma once

#include <vector>

#include "base/bench_line.h"

namespace stemma {

// A prompt of which 8,192 tokens are cached, page size 16, is begun and let go: match, lock, page
// ids into the row, unlock. Value: from C. Bound: KvCache::begin on the same cache, each sample
// beside its own; aimed at 100 ns more (allowed_ns). overhead_ns is what it was, as a median.
std::vector<BenchLine> bench_c_abi();

}  // namespace stemma
