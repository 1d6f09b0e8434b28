// Attention bench: decode against the tighter of read bandwidth and multiply-add peak, prefill
// against the peak, all measured in the same run.
//
// Thread:     one thread at a time.
// Memory:     keys and values of twice the last-level cache, at most 1 GiB, and the machine
// probe's. Cost:       about half a minute. Not here:   how lines are printed (cli/).
#pragma once

#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

// Decode: context 8,192, four query heads a KV head, bf16, head_dim 128 and 64, pages of 1 and 64
// tokens, 1 and 2 threads. Prefill: a chunk of 512 at context 4,096. Then latent rows
// (latent_attention_bench). kOutOfMemory.
Result<std::vector<BenchLine>> bench_attention();

}  // namespace stemma
