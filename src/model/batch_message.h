// Batch messages: a KvBatch as one run of words, which other ranks read again. Ranks are programs
// of one build on machines of one kind, so that words need no other form than memory's.
//
// Thread:     one thread at a time.
// Memory:     the message; grows to that of the largest batch and stays.
// Cost:       one copy when it is written; what is read borrows.
// Not here:   how messages get to other ranks (leading_runner).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stemma/kv_batch.h"
#include "stemma/result.h"

namespace stemma {

// Writes `batch` to `words`, in the place of what was there. What arrives by layers cannot be told:
// REQUIRES: batch.arriving is null.
void write_batch(const KvBatch& batch, std::vector<std::int64_t>& words);

// The batch that `words` holds, which it borrows. kCorrupt if they hold none.
Result<KvBatch> read_batch(std::span<const std::int64_t> words);

}  // namespace stemma
