// Redis bench: pages read through RedisPageStore against redis-benchmark's GET of the same sizes.
//
// Thread:     one thread at a time, which the server's life hangs on.
// Memory:     a pipeline of pages, and as many again in the server.
// Cost:       a few seconds; needs the package redis-server.
// Not here:   how lines are printed (cli/).
#pragma once

#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

// Starts a redis-server of its own. Lines for pages of 64 KiB, 256 KiB and 1 MiB, one connection,
// the same pipeline on both sides, over a Unix socket. kNotFound: redis-server cannot be run.
Result<std::vector<BenchLine>> bench_redis();

}  // namespace stemma
