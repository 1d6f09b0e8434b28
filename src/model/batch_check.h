// Batch check: whether a runner can compute a batch, asked before anything of it is stored.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       one look at each row.
// Not here:   who computes it (model_runner, and runners of other devices).
#pragma once

#include <cstdint>

#include "model/adapter_book.h"
#include "model/loaded_runner.h"
#include "stemma/kv_batch.h"
#include "stemma/result.h"
#include "stemma/runner.h"

namespace stemma {

// The largest batch that a runner can be given, and what may stand in it.
struct BatchLimits {
  std::int64_t rows_max = 0;
  std::int64_t outputs_max = 0;
  std::int64_t requests_max = 0;
  std::int64_t context_tokens_max = 0;
  std::int64_t vocab_tokens = 0;
  const AdapterBook* adapters = nullptr;  // nullptr: there are none
  std::int64_t sampled_tokens = 0;  // a token -(i + 1) with i below it stands for one not yet known
};

// kTooLarge for more rows, outputs or requests than fit, and for positions beyond the context;
// kInvalidArgument for tokens outside the vocabulary and adapters that there are not.
// REQUIRES: the batch's arrays have the lengths that KvBatch says.
Status check_batch(const KvBatch& batch, const BatchLimits& limits);

// kInvalidArgument, naming the pool, unless the pools have the extents that `runner` says, with the
// page_size of the batch's tables; how many pages of which dtype is their own affair.
// REQUIRES: a model with windows has a pool for them, and the batch a slot there for each row.
Status check_pools(const KvBatch& batch, const KvPools& pools, const LoadedRunner& runner);

}  // namespace stemma
