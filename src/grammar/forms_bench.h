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

// Microseconds a token: within a string of bounded length, of unbounded length and of a pattern,
// between the members of an object, and in a free text; `first` where nothing of the form was found
// before, as where a text comes to such a place, `next` where it goes on there: its tokens before
// have found some of it, all of it where they come back to the same state. Bound: drawing a token
// out of the logits (`draw`), which is done for each anyway; ratio 1.0 is as much again.
std::vector<BenchLine> bench_forms(const FormsBenchOptions& options = {});

}  // namespace stemma
