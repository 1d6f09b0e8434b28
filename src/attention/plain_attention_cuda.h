// Plain attention: items of up to 16 pairs over pools of f32, in f32 throughout, without tensor
// cores. For small models and for comparing.
//
// Thread:     as CudaStream.
// Memory:     of the device, named by the parameters; shared memory of the team.
// Cost:       2 × head_dim multiplications a pair and key, on CUDA cores.
// Not here:   narrower pools (split_attention_cuda, chunk_attention_cuda), the merge of what
//             partitions gave (split_attention_cuda), how a batch is cut.
#pragma once

#include <cstdint>

#include "attention/attention_work_cuda.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// The items of kSinglePairs, or those of kChosenPairs of a wave, by `teams` teams. kUnsupported
// names rows that there is no kernel for.
Status plain_attention(CudaStream& stream, const AttentionParams& params, AttentionList list,
                       std::int64_t teams);

// Teams of either that a multiprocessor holds at once, one team being allowed so much shared
// memory; 0 if it needs more.
std::int64_t plain_attention_residents(std::int64_t head_dim, std::int64_t team_shared_bytes_max);

}  // namespace stemma
