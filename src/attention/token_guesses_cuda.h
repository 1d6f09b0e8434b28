// Token guesses: how much each of the tokens that a row sees is likely to matter, from their
// labels, as sparse_kernel.h defines it.
//
// Three passes over the labels of a row, each by as many teams as it has spans of 1,024 tokens: the
// largest score of each query head, the sum of its weights, the guesses. Scores are computed anew
// in each pass from 2 × label_channels bytes a token and KV head, for to keep them would take more.
// A span is read for all KV heads at once, whose labels of a token lie side by side.
//
// Scores are the CPU's bit for bit. Sums of weights are taken over positions in an order that the
// row's length and the shape decide, which is not the CPU's: where it matters, guesses differ from
// the CPU's by a few units in the last place.
//
// Thread:     as CudaStream.
// Memory:     of the device, named by the parameters; shared memory of the team.
// Cost:       3 × label_channels elements a token and KV head, and 6 × label_channels operations
// for
//             each of its query heads.
// Not here:   the choice (token_choice_cuda), memory and waves (cuda_token_choice).
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_work_cuda.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// Tokens that a team has of a row. Part of the arithmetic.
inline constexpr int kSpanTokens = 1024;

struct TokenGuessParams {
  AttentionParams attention;  // the image, queries, shape, page size and wave

  // Of the layer; strides in bytes.
  const std::byte* labels = nullptr;
  const std::int32_t* heavy_channels = nullptr;  // [kv_heads, label_channels]
  std::int32_t label_channels = 0;               // a multiple of 8
  std::int64_t label_page_stride = 0;
  std::int64_t label_token_stride = 0;
  std::int64_t label_head_stride = 0;

  std::int32_t spans_max = 0;    // of a row
  std::int64_t guesses_max = 0;  // of a row and KV head
  // Of each span: the largest score, in base 2, and the sum of the weights.
  float* largest = nullptr;  // [wave_choices, query_heads, spans_max]
  float* totals = nullptr;   // [wave_choices, query_heads, spans_max]
  float* guesses = nullptr;  // [wave_choices, kv_heads, guesses_max]
};

// The guesses of a wave, by `teams` teams in each pass. A wave that the image does not have is no
// error. kUnsupported names labels of a type or extent that there is no kernel for.
Status guess_tokens(CudaStream& stream, const TokenGuessParams& params, std::int64_t teams);

// Teams that a multiprocessor should hold.
inline constexpr std::int64_t kGuessingTeams = 2;

}  // namespace stemma
