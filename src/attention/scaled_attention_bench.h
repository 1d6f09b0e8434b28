// Scaled attention bench: attention over pools of fp8 and int8 against the same over bf16, keys for
// keys, taking turns in one run.
//
// Thread:     one thread at a time.
// Memory:     two pools of twice the last-level cache, at most 1 GiB each.
// Cost:       about half a minute.
// Not here:   how lines are printed (cli/), bf16 against the machine's bounds (attention_bench).
#pragma once

#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

// Lines "attention" whose bound is "bf16": keys a second of all query heads. Decode at context
// 8,192 with one and with four query heads a KV head, prefill of a chunk of 512 at context 4,096;
// head_dim 128 and 64, 1 thread. kOutOfMemory.
Result<std::vector<BenchLine>> bench_scaled_attention();

}  // namespace stemma
