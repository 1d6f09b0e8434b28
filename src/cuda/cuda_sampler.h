// CudaSampler: the tokens of a step's outputs that are drawn: what each output's choice says, on
// its way to the device, and the drawing.
//
// Thread:     as the stream.
// Memory:     32 bytes an output on the device; twice that pinned.
// Cost:       nothing where nothing is drawn; else a copy and sample_rows.
// Not here:   the kernel (sample_cuda), random numbers (TokenChoice has them), bias and penalties
//             (model/sampler, on the host).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/cuda_device.h"
#include "device/cuda_pinned_turns.h"
#include "stemma/result.h"
#include "stemma/runner.h"

namespace stemma {

// Of the device.
struct SampledRows {
  const float* logits = nullptr;   // [rows, columns]
  std::int32_t* tokens = nullptr;  // [rows]
  std::int64_t columns = 0;
};

class CudaSampler {
 public:
  // kOutOfMemory. Memory belongs to `stream`.
  static Result<CudaSampler> create(CudaDevice& device, CudaStream& stream,
                                    std::int64_t outputs_max);
  CudaSampler() = default;

  // Queues the drawing of a token for each row, if one of `choices` draws; rows that take the
  // largest logit get that. Without, tokens stay as they are. `choices` may be gone when it
  // returns. REQUIRES: there are outputs_max of them at most, each valid as SamplingParams.
  Status draw(CudaStream& stream, std::span<const TokenChoice> choices, const SampledRows& rows);

 private:
  PinnedTurns images_;
  CudaMemory memory_;
};

}  // namespace stemma
