// Store bench: KvPool::store into random pages against one memcpy of the same bytes.
//
// Thread:     one thread at a time.
// Memory:     a pool of twice the last-level cache, at most 1 GiB, and its sources.
// Cost:       a few seconds.
// Not here:   how lines are printed (cli/).
#pragma once

#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

// A line for page sizes 1 and 16, rows of 2 KiB of K and of V, and one for rows that are rounded
// from f32. kOutOfMemory.
Result<std::vector<BenchLine>> bench_store();

}  // namespace stemma
