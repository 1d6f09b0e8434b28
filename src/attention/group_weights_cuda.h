// Scores of a warpgroup become weights: a warp has all 64 keys of a tile for its 16 rows, so that
// no other warp is asked.
//
// Included by hopper_*.cu alone. F: as attention_products_cuda, with kRows 1 and kKeys 4.
//
// Thread:     code of kernels; a whole warp takes part.
// Memory:     registers; ones in shared memory, for the sums of weights.
// Cost:       32 powers of two a thread and tile.
// Not here:   how scores come about, and what is not seen (the kernels).
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_products_cuda.h"
#include "device/cuda_warpgroup.h"

namespace stemma {

// A tile's largest scores with those before; what sums so far are to be multiplied by.
struct Raised {
  float largest[2];
  float kept[2];
};
template <typename F>
STEMMA_ON_DEVICE Raised raise_scores(float (&s)[F::kRows][2 * F::kKeys][4], float factor,
                                     const float (&before)[2]) {
  float largest[F::kRows][2];
  largest_scores<F>(largest, s);
  Raised raised;
  float taken[2];
  STEMMA_UNROLLED
  for (int half = 0; half < 2; ++half) {
    raised.largest[half] = larger_of(before[half], largest[0][half] * factor);
    const Rebase base = rebase(before[half], raised.largest[half]);
    raised.kept[half] = base.kept;
    taken[half] = base.taken;
  }
  STEMMA_UNROLLED
  for (int n = 0; n < 2 * F::kKeys; ++n) {
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) s[0][n][i] = weight_of(s[0][n][i], factor, taken[i / 2]);
  }
  return raised;
}

// Weights as the left matrix of products of 16 keys each.
template <typename F>
STEMMA_ON_DEVICE void narrow_weights(const float (&s)[F::kRows][2 * F::kKeys][4],
                                     std::uint32_t (&weights)[F::kKeys][4]) {
  STEMMA_UNROLLED
  for (int n = 0; n < F::kKeys; ++n) {
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) {
      const float(&four)[4] = s[0][2 * n + i / 2];
      const int half = i % 2;
      weights[n][i] = narrow_pair<typename F::Operand>(four[2 * half], four[2 * half + 1]);
    }
  }
}

// A matrix of ones, of 16 keys by 16 columns, that weights are multiplied with for their sums.
inline constexpr int kOnesBytes = 2 * kPanelAlignment;
template <typename T>
STEMMA_ON_DEVICE void write_ones(std::byte* ones) {
  const std::uint32_t one = narrow_pair<T>(1.0f, 1.0f);
  if (thread_index() < kOnesBytes / kPieceBytes) {
    store_words(ones + thread_index() * kPieceBytes, {{one, one, one, one}});
  }
}

}  // namespace stemma
