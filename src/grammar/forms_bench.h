// Benchmark of what it costs to know which tokens may come next where an output has a form, with
// 128,000 tokens.
//
// Thread:     one.
// Memory:     30 MB.
// Cost:       a second.
// Not here:   outputs that were in a state before: a look-up (grammar_book).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bench_line.h"

namespace stemma {

struct FormsBenchOptions {
  std::int64_t vocab_tokens = 128'000;  // at least 1,000
  int tokens = 200;                     // of an output: samples
};

// Microseconds a token, of which each comes in a state that no output was in before: within a
// string of bounded length, of unbounded length, and between the members of an object. Bound:
// drawing a token out of the logits (`draw`), which is done for each anyway; ratio 1.0 is as much
// again.
std::vector<BenchLine> bench_forms(const FormsBenchOptions& options = {});

}  // namespace stemma
