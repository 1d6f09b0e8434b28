// Latent attention bench: attention over latent rows (MLA) against the tighter of read bandwidth
// and multiply-add peak, both measured between its samples.
//
// Thread:     one thread at a time.
// Memory:     latent rows of twice the last-level cache, at most 1 GiB.
// Cost:       about half a minute.
// Not here:   how lines are printed (cli/).
#pragma once

#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

// Adds lines "attention": rank 512 and 64 more dimensions, as DeepSeek-V2 and V3 have them with 128
// query heads and V2-Lite with 16, 1 and 2 threads. Phase "mla_decode": one request of 16,384
// tokens and four of 4,096, bf16 and f32; "mla_prefill": the last rows of 4,096 tokens.
// kOutOfMemory.
Status bench_latent_attention(std::vector<BenchLine>& lines);

}  // namespace stemma
