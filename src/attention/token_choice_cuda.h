// Token choice: the tokens of a row with the largest guesses, exactly as many as it keeps; of equal
// guesses the lower positions.
//
// A team has a row and KV head: three rounds of counting narrow down the least key that is chosen,
// and two more passes write the slots of what is chosen in the order of positions. No sort; what is
// chosen depends on the guesses alone.
//
// Thread:     as CudaStream.
// Memory:     of the device, named by the parameters; 16 KiB of shared memory a team.
// Cost:       each guess is read five times, from the caches where they hold the row's.
// Not here:   the guesses (token_guesses_cuda), attention to what was chosen (split_attention_cuda,
//             plain_attention_cuda), how many are kept (sparse_dial).
#pragma once

#include <cstdint>

#include "attention/attention_work_cuda.h"
#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

struct TokenChoiceParams {
  AttentionParams attention;       // the image, shape, page size and wave; where choices go
  const float* guesses = nullptr;  // [wave_choices, kv_heads, guesses_max]
  std::int64_t guesses_max = 0;    // a multiple of 4
};

// The choices of a wave, by `teams` teams. A wave that the image does not have is no error.
Status choose_tokens(CudaStream& stream, const TokenChoiceParams& params, std::int64_t teams);

// Teams that a multiprocessor should hold.
inline constexpr std::int64_t kChoosingTeams = 2;

}  // namespace stemma
