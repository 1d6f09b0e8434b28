// Sparse attention, decode: double sparsity against dense attention over the same pages, in one
// run, by turns, at contexts of 2k to 32k tokens, with 1 of 8 tokens kept, bf16, head_dim 128 and 8
// heavy channels. Bound: the ratio of the bytes that the two read.
//
// Thread:     one, and the threads it measures.
// Memory:     a pool of 16 times the last-level cache, at most 1 GiB.
// Cost:       about half a minute.
// Not here:   dense attention against the machine (attention_bench), printing (cli/bench_command).
#pragma once

#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

Result<std::vector<BenchLine>> bench_sparse_attention();

}  // namespace stemma
