// Benchmark of what the control plane's own memory is for each token that is cached.
//
// Thread:     one.
// Memory:     up to about a GB.
// Cost:       a few seconds.
// Not here:   keys and values, which are as large as their shape says (KvShape).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

struct MemoryBenchOptions {
  std::int64_t cached_tokens = 10'000'000;
};

// Bytes of tree, page states and request table a cached token, at page sizes 16 and 1, of a cache
// that is full: conversations of some 1,200 tokens each behind 64 shared beginnings, every fourth
// one gone on from in a second way. Value: bytes that became resident between before the cache was
// opened and when it is full. Bound: what is aimed at, 8 and 24. reserved_bytes is what was asked
// of the heap for each token, touched or not. kIo where the system does not tell what is resident.
Result<std::vector<BenchLine>> bench_memory(const MemoryBenchOptions& options);

}  // namespace stemma
