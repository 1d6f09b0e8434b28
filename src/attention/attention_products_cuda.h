// The arithmetic of the kernels of attention: products of tiles, and a softmax that meets its keys
// tile by tile. Every kernel computes a row by these same steps in the same order, which is why it
// does not matter which one does (I13).
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; a whole warp takes part in products and sums of rows.
// Memory:     registers.
// Cost:       a tile of 64 keys and 16 queries: 8 × head_dim products and 1,024 powers of two.
// Not here:   which keys a team walks (the kernels), tiles (attention_tiles_cuda).
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_tiles_cuda.h"
#include "attention/attention_work_cuda.h"
#include "device/cuda_dialect.h"

namespace stemma {

inline constexpr float kLog2Of_e = 1.44269504088896340736f;

// ---- Products. F says what a warp has: 16 F::kRows queries of `q` from row `first` on.

// s += q kᵀ for the 16 F::kKeys keys from `key` on.
template <typename F>
STEMMA_ON_DEVICE void multiply_keys(float (&s)[F::kRows][2 * F::kKeys][4], const std::byte* q,
                                    int first, const std::byte* k, int key) {
  const int lane = afresh(lane_index());
  const int q_place = piece_at<F::kPieces>(first + lane % 16, lane / 16);
  const int k_place = piece_at<F::kPieces>(key + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  STEMMA_UNROLLED
  for (int step = 0; step < F::kPieces / 2; ++step) {
    std::uint32_t a[F::kRows][4];
    STEMMA_UNROLLED
    for (int r = 0; r < F::kRows; ++r) {
      load_matrices(a[r], q + pieces_behind(q_place, 2 * step) + rows_behind<F::kPieces>(16 * r));
    }
    STEMMA_UNROLLED
    for (int n = 0; n < F::kKeys; ++n) {
      std::uint32_t b[4];
      load_matrices(b, k + pieces_behind(k_place, 2 * step) + rows_behind<F::kPieces>(16 * n));
      const std::uint32_t low[2] = {b[0], b[1]};
      const std::uint32_t high[2] = {b[2], b[3]};
      STEMMA_UNROLLED
      for (int r = 0; r < F::kRows; ++r) {
        multiply_add<typename F::Operand>(s[r][2 * n], a[r], low);
        multiply_add<typename F::Operand>(s[r][2 * n + 1], a[r], high);
      }
    }
  }
}

// o += w v for 16 keys from `key` on and the 16 F::kColumns columns of `v` from piece `first` on.
// REQUIRES: `first` is a multiple of as many pieces, `key` one of 8.
template <typename F>
STEMMA_ON_DEVICE void add_values(float (&o)[F::kRows][2 * F::kColumns][4],
                                 const std::uint32_t (&weights)[F::kRows][4], const std::byte* v,
                                 int key, int first) {
  const int lane = afresh(lane_index());
  const int place = piece_at<F::kPieces>(lane % 16, first + lane / 16);
  STEMMA_UNROLLED
  for (int n = 0; n < F::kColumns; ++n) {
    std::uint32_t b[4];
    load_matrices_transposed(b, v + pieces_behind(place, 2 * n) + rows_behind<F::kPieces>(key));
    const std::uint32_t low[2] = {b[0], b[1]};
    const std::uint32_t high[2] = {b[2], b[3]};
    STEMMA_UNROLLED
    for (int r = 0; r < F::kRows; ++r) {
      multiply_add<typename F::Operand>(o[r][2 * n], weights[r], low);
      multiply_add<typename F::Operand>(o[r][2 * n + 1], weights[r], high);
    }
  }
}

// total += the sums of 16 weights each, in every column.
template <typename F>
STEMMA_ON_DEVICE void add_weights(float (&total)[F::kRows][4],
                                  const std::uint32_t (&weights)[F::kRows][4]) {
  const std::uint32_t one = narrow_pair<typename F::Operand>(1.0f, 1.0f);
  const std::uint32_t ones[2] = {one, one};
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) multiply_add<typename F::Operand>(total[r], weights[r], ones);
}

// ---- Scores. Element i of a product lies in row i / 2 of the lane's two.

STEMMA_ON_DEVICE float minus_infinity() {
  return word_as_float(0xFF800000u);
}

// What q k is multiplied by to become a score in base 2.
STEMMA_ON_DEVICE float score_factor(const AttentionParams& params) {
  return params.score_cap > 0 ? 1.0f : params.scale * kLog2Of_e;
}
// tanh(x scale / c), of a model that caps its scores.
STEMMA_ON_DEVICE float saturation(const AttentionParams& params, float x) {
  const float power = exp2_fast(x * (params.scale / params.score_cap) * (2 * kLog2Of_e));
  return 1.0f - 2.0f / (power + 1.0f);
}
// c tanh(x scale / c), in base 2.
STEMMA_ON_DEVICE float capped(const AttentionParams& params, float x) {
  return params.score_cap * kLog2Of_e * saturation(params, x);
}

// Where the model caps its scores.
template <typename F>
STEMMA_ON_DEVICE void cap_scores(const AttentionParams& params,
                                 float (&s)[F::kRows][2 * F::kKeys][4]) {
  if (params.score_cap <= 0) return;
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) {
    STEMMA_UNROLLED
    for (int n = 0; n < 2 * F::kKeys; ++n) {
      STEMMA_UNROLLED
      for (int i = 0; i < 4; ++i) s[r][n][i] = capped(params, s[r][n][i]);
    }
  }
}

// Keys from `first` on of the context that a query does not see get no weight.
template <typename F>
STEMMA_ON_DEVICE void hide_keys(float (&s)[F::kRows][2 * F::kKeys][4],
                                const std::int32_t (&positions)[F::kRows][2], std::int32_t first,
                                std::uint32_t window) {
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) {
    STEMMA_UNROLLED
    for (int n = 0; n < 2 * F::kKeys; ++n) {
      STEMMA_UNROLLED
      for (int i = 0; i < 4; ++i) {
        const std::int32_t key = first + 8 * n + lane_index() % 4 * 2 + i % 2;
        const auto behind = static_cast<std::uint32_t>(positions[r][i / 2] - key);
        if (behind >= window) s[r][n][i] = minus_infinity();
      }
    }
  }
}

// The largest score of each of the lane's rows, over the warp's keys. Rows take turns: of one alone
// each step waits for the one before.
template <typename F>
STEMMA_ON_DEVICE void largest_scores(float (&largest)[F::kRows][2],
                                     const float (&s)[F::kRows][2 * F::kKeys][4]) {
  STEMMA_UNROLLED
  for (int n = 0; n < 2 * F::kKeys; ++n) {
    STEMMA_UNROLLED
    for (int i = 0; i < 2 * F::kRows; ++i) {
      const float(&four)[4] = s[i / 2][n];
      const float most = larger_of(four[i % 2 * 2], four[i % 2 * 2 + 1]);
      largest[i / 2][i % 2] = n == 0 ? most : larger_of(largest[i / 2][i % 2], most);
    }
  }
  STEMMA_UNROLLED
  for (int mask = 1; mask <= 2; mask *= 2) {
    float others[F::kRows][2];
    STEMMA_UNROLLED
    for (int i = 0; i < 2 * F::kRows; ++i) {
      others[i / 2][i % 2] = shuffle_xor(largest[i / 2][i % 2], mask);
    }
    STEMMA_UNROLLED
    for (int i = 0; i < 2 * F::kRows; ++i) {
      largest[i / 2][i % 2] = larger_of(largest[i / 2][i % 2], others[i / 2][i % 2]);
    }
  }
}

// The largest score so far becomes `now`: what has been summed is to be multiplied by `kept`, and
// powers are taken of what remains after `taken` is subtracted.
struct Rebase {
  float kept;
  float taken;
};
STEMMA_ON_DEVICE Rebase rebase(float before, float now) {
  const float taken = now == minus_infinity() ? 0.0f : now;
  return {exp2_fast(before - taken), taken};
}
STEMMA_ON_DEVICE float weight_of(float score, float factor, float taken) {
  return exp2_fast(fused(score, factor, -taken));
}

// ---- Sums of a partition so far, of a warp's 16 F::kRows queries and 16 F::kColumns columns.

template <typename F>
struct Sums {
  float o[F::kRows][2 * F::kColumns][4];
  float weights[F::kRows][4];
  float largest[F::kRows][2];
};
template <typename F>
STEMMA_ON_DEVICE void clear(Sums<F>& sums) {
  STEMMA_UNROLLED
  for (int r = 0; r < F::kRows; ++r) {
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) {
      sums.weights[r][i] = 0;
      STEMMA_UNROLLED
      for (int n = 0; n < 2 * F::kColumns; ++n) sums.o[r][n][i] = 0;
    }
    sums.largest[r][0] = sums.largest[r][1] = minus_infinity();
  }
}

// The largest score of a row becomes `most` if that is larger. What powers are taken of what
// remains after is subtracted; `kept`: what the row's sums are to be multiplied by.
template <typename F>
STEMMA_ON_DEVICE float raise(Sums<F>& sums, int r, int half, float most, float& kept) {
  const float now = larger_of(sums.largest[r][half], most);
  const Rebase base = rebase(sums.largest[r][half], now);
  sums.largest[r][half] = now;
  kept = base.kept;
  return base.taken;
}
template <typename F>
STEMMA_ON_DEVICE void keep_values(Sums<F>& sums, int r, const float (&kept)[2]) {
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) {
    STEMMA_UNROLLED
    for (int n = 0; n < 2 * F::kColumns; ++n) sums.o[r][n][i] *= kept[i / 2];
  }
}
template <typename F>
STEMMA_ON_DEVICE void keep(Sums<F>& sums, int r, const float (&kept)[2]) {
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) sums.weights[r][i] *= kept[i / 2];
  keep_values(sums, r, kept);
}

// ---- Sums of partitions, folded left to right.

struct Kept {
  float largest;
  float weights;
};
struct Fold {
  float largest;
  float kept;   // of the sum so far
  float added;  // of the partition's
};
STEMMA_ON_DEVICE Fold fold_of(float largest, float next) {
  const float now = larger_of(largest, next);
  const float taken = now == minus_infinity() ? 0.0f : now;
  return {now, exp2_fast(largest - taken), exp2_fast(next - taken)};
}
STEMMA_ON_DEVICE float fold(const Fold& fold, float sum, float next) {
  return fused(sum, fold.kept, next * fold.added);
}
STEMMA_ON_DEVICE float inverse_of(float weights) {
  return weights > 0 ? 1.0f / weights : 0.0f;
}
STEMMA_ON_DEVICE float output_of(float sum, float inverse) {
  return fused(sum, inverse, 0.0f);
}

}  // namespace stemma
