// Benchmarks of serving: what HTTP, JSON and the server's threads add to computing.
//
// Thread:     the caller's, those of an engine and a server, and one a client.
// Memory:     the model twice.
// Cost:       about a minute.
// Not here:   how lines are printed (cli/), what computing costs by itself.
#pragma once

#include <string>
#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

// With the model in `directory`, over the loopback interface; bounds are the same prompts given to
// an engine directly, taken in turns with them:
//   a request alone     microseconds more than directly, at the median; bound: 1,000
//   32 prompts that share prefixes, 16 at a time     seconds; bound: directly
//   64 prompts of 128 tokens, 16 at a time           output tokens a second; bound: directly
Result<std::vector<BenchLine>> bench_server(const std::string& directory);

}  // namespace stemma
