// CudaTokenChoice: the memory in which the sparse rows of a batch choose their tokens on a GPU, and
// the launches that do it, wave by wave.
//
// A wave is as many rows as there is room for: their guesses take 4 bytes a token of the longest
// context and KV head. How rows are cut into waves does not change what they choose.
//
// Thread:     as CudaStream.
// Memory:     of the device, sized at creation.
// Cost:       four kernels a wave.
// Not here:   the kernels (token_guesses_cuda, token_choice_cuda), which rows are sparse
//             (cuda_attention_plan), attention to what was chosen (cuda_attention).
#pragma once

#include <cstdint>

#include "attention/attention.h"
#include "attention/attention_work_cuda.h"
#include "attention/sparse_dial.h"
#include "device/cuda_device.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

struct TokenChoiceLimits {
  SparseDial dial;
  std::int64_t rows_max = 0;
  std::int64_t context_tokens_max = 0;
  std::int64_t bytes_max = 0;        // of a wave; one row has a wave of its own if it needs more
  std::int64_t multiprocessors = 0;  // that teams are launched for
};

class CudaTokenChoice {
 public:
  // Rows of one wave. REQUIRES: the dial is valid, the limits at least 1.
  static std::int64_t wave_rows(const AttentionShape& shape, const TokenChoiceLimits& limits);

  // kOutOfMemory. Memory belongs to `stream`, which must outlive it.
  static Result<CudaTokenChoice> create(CudaDevice& device, CudaStream& stream,
                                        const AttentionShape& shape,
                                        const TokenChoiceLimits& limits);
  CudaTokenChoice() = default;

  // Where attention finds a wave's choices: fields of `params`.
  void place(AttentionParams& params, std::int64_t wave) const;
  // Queues the choices of params.wave. `params` and `layer` have addresses of the device.
  // kUnsupported as guess_tokens. REQUIRES: place was called with `params`.
  Status choose(CudaStream& stream, const AttentionParams& params, const KvLayerView& layer) const;

 private:
  std::int64_t multiprocessors_ = 0;
  std::int64_t wave_rows_ = 0;
  std::int64_t spans_max_ = 0;
  std::int64_t guesses_max_ = 0;
  std::int64_t chosen_max_ = 0;
  CudaMemory spans_;  // largest scores, then sums of weights
  CudaMemory guesses_;
  CudaMemory chosen_;
};

}  // namespace stemma
