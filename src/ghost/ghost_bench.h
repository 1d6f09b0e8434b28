// Benchmarks of ghosts: what a looked-up page costs, beside a full cache fed with the same
// requests.
//
// Thread:     one.
// Memory:     about 200 MB.
// Cost:       a few seconds.
// Not here:   how lines are printed (cli/).
#pragma once

#include <vector>

#include "base/bench_line.h"

namespace stemma {

// Nanoseconds a page of conversations' requests, for a curve and for one slru ghost, both of a
// cache of 1,000,000 pages and with one page in 20 or 100 watched (param bytes_per_page: memory of
// the curve for one page of the cache). Bound: the whole tree and allocator in the ghost's place,
// as replay runs them. Besides, what hashing a page of 16 tokens costs; bound: SHA-256 page keys.
std::vector<BenchLine> bench_ghost();

}  // namespace stemma
