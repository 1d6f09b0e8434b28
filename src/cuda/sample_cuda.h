// Sampling on a GPU: the token of each row of logits, drawn where the logits lie.
//
// The meaning of a row's parameters, their order and its ties are those of Sampler (model/sampler);
// penalties and logit_bias are not known here: the host draws such rows. The random number comes
// from the host (sampling_unit). With temperature 0 or top_k 1 the token is exactly top_rows'.
//
// Weights exp((logit - largest) / temperature) are made in double and rounded to whole numbers, the
// largest one's being 2^45 (2^(63 - b) where `columns` has b > 18 binary digits). Whatever is
// summed, compared and drawn after that is exact, so that the order of sums does not matter and a
// row's token depends on its logits, its parameters and its unit alone (I13). A token's interval of
// the unit, and what top_p compares, is thereby off by at most columns × 2^-46 + 2^-44 of the most
// likely token's weight. Ranks go by the logits; where (largest - logit) / temperature differ by
// less than 2^-47, by the lower id.
//
// Thread:     as CudaStream. May be recorded: what the rows say is read when they are done.
// Memory:     none but a team's 37 KiB; addresses are the device's.
// Cost:       a team of 768 threads a row, which reads the row's logits once for the largest,
//             once for the sum (25 instructions of double a token, most of the time), and, in what
//             the caches hold of it, once or twice for each of top_k, top_p and the draw.
// Not here:   penalties (model/sampler.h), the random numbers (sampling_unit), log probabilities.
#pragma once

#include <cstdint>

#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

// One row's parameters, each valid by SamplingParams::validate.
struct RowSampling {
  float temperature = 0;   // 0: the most likely token
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;
  double unit = 0;  // in [0, 1)
};

// tokens[row]: the token; -1 if no logit is a number above minus infinity. NaN counts as minus
// infinity; where there is plus infinity, the first such token is certain.
struct SampleRows {
  const float* logits = nullptr;          // [rows, columns]
  const RowSampling* sampling = nullptr;  // [rows]
  std::int32_t* tokens = nullptr;         // [rows]
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // fastest in multiples of 4, with logits aligned to 16 bytes
};
Status sample_rows(CudaStream& stream, const SampleRows& params);

}  // namespace stemma
