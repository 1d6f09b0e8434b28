// Chunk attention: items of up to 128 pairs, rows of long chunks, on tensor cores.
//
// Thread:     as CudaStream.
// Memory:     of the device, named by the parameters; shared memory of the team.
// Cost:       4 × head_dim operations a pair and key, of tiles that its team's last row sees.
// Not here:   few pairs (split_attention_cuda), how a batch is cut.
#pragma once

#include <cstdint>

#include "attention/attention_work_cuda.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// The items of kChunkPairs, by `teams` teams, each with bytes of its own of params.chunk_sums.
// kUnsupported names a pool's type or a row that there is no kernel for.
Status chunk_attention(CudaStream& stream, const AttentionParams& params, std::int64_t teams);

// Teams that a multiprocessor holds at once, one team being allowed so much shared memory; 0 if it
// needs more.
std::int64_t chunk_attention_residents(DType dtype, std::int64_t head_dim,
                                       std::int64_t team_shared_bytes_max);

// Of params.chunk_sums, for one team.
std::int64_t chunk_attention_team_bytes(std::int64_t head_dim);

}  // namespace stemma
