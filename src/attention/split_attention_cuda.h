// Split attention: items of at most 16 or 64 pairs on tensor cores, a team at a time, over the
// partitions that each has; and the merge of what partitions gave.
//
// Thread:     as CudaStream.
// Memory:     of the device, named by the parameters; shared memory of the team.
// Cost:       reading each item's keys and values once a KV head.
// Not here:   how a batch is cut.
#pragma once

#include <cstdint>

#include "attention/attention_work_cuda.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// The items of kSinglePairs or kSharedPairs, or those of kChosenPairs of a wave, by `teams` teams.
// kUnsupported names a pool's type or a row that there is no kernel for; codes and latent rows have
// no kChosenPairs.
Status split_attention(CudaStream& stream, const AttentionParams& params, AttentionList list,
                       std::int64_t teams);

// Teams of that kernel that a multiprocessor holds at once, one team being allowed so much shared
// memory; 0 if it needs more.
std::int64_t split_attention_residents(DType dtype, std::int64_t head_dim, AttentionList list,
                                       std::int64_t team_shared_bytes_max);

// The outputs of rows that have several sums. `rows`: at least as many as the image has.
Status merge_sums(CudaStream& stream, const AttentionParams& params, std::int64_t rows);

}  // namespace stemma
