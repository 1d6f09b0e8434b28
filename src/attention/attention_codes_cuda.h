// Codes of 8 bits in attention: queries, scores and weights, where a pool is of a scaled dtype.
//
// Every code is a number of f16, and so K and V are multiplied as f16, exactly what they are, and
// their rows' scales are put elsewhere. Kernels that read a tile once make operands of the codes in
// registers (RowKind::kCodes); those whose warps all read it widen it first (kWideCodes, and latent
// rows' kLatentCodes).
//
//   queries  times a power of two a row, by which the largest of them is from 1 to 2, so that f16
//            holds them whatever a model gives
//   scores   in base 2: log2 of V's scale is added, so that the weights of a row are shares of the
//            output and not of the attention: whatever scales there are, f16 holds what counts
//   the sum  of the weights that divides the output: each without its scale again, in f32, added in
//            an order that no kernel changes
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; a whole warp takes part in products and sums.
// Memory:     registers; scales and powers in the team's shared memory.
// Cost:       of a score two multiplications more than one of elements takes, of a weight one.
// Not here:   how codes become operands (code_tiles_cuda).
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_products_cuda.h"
#include "attention/attention_tiles_cuda.h"
#include "device/cuda_dialect.h"
#include "device/row_words.h"

namespace stemma {

// ---- Scales.

// log2 of what V of a key is multiplied by, which is not negative. What is less than 2^-100 counts
// as that: a row of zeros, whose scale is 0, has a level too, and nothing comes of it all the same.
// A NaN stays one.
STEMMA_ON_DEVICE float value_level(float scale) {
  return log2_fast(scale < 0x1p-100f ? 0x1p-100f : scale);
}

// What codes of the key that the thread looks after are multiplied by, on its way.
template <typename F>
STEMMA_ON_DEVICE RowScales load_scales(const AttentionParams& params, const KeyPlace& place) {
  if (!F::kScaled || thread_index() >= kCudaTileKeys) return {0, 0};
  return scales_of(params, place);
}
template <typename F>
STEMMA_ON_DEVICE void set_value_scale(const Tiles<F>& tiles, int step, float scale) {
  const float level = value_level(scale);
  tiles.value_scales(step)[thread_index()] = level;
  tiles.value_inverses(step)[thread_index()] = exp2_fast(-level);
}
template <typename F>
STEMMA_ON_DEVICE void set_scales(const Tiles<F>& tiles, int step, const RowScales& scales) {
  if (!F::kScaled || thread_index() >= kCudaTileKeys) return;
  tiles.key_scales(step)[thread_index()] = scales.key;
  set_value_scale(tiles, step, scales.value);
}

// The same by copies that begin, of what scale_at found; settle_scales when they are there.
template <typename F>
STEMMA_ON_DEVICE void copy_scales(const Tiles<F>& tiles, const AttentionParams& params, int step,
                                  std::int64_t at) {
  if (!F::kScaled || thread_index() >= kCudaTileKeys) return;
  float* const key = tiles.key_scales(step) + thread_index();
  float* const value = tiles.value_scales(step) + thread_index();
  if (at < 0) {
    *key = *value = 0;
    return;
  }
  copy_word_later(key, params.k_scales + at);
  copy_word_later(value, params.v_scales + at);
}
// By the threads whose copies they were.
template <typename F>
STEMMA_ON_DEVICE void settle_scales(const Tiles<F>& tiles, int step) {
  if (!F::kScaled || thread_index() >= kCudaTileKeys) return;
  set_value_scale(tiles, step, tiles.value_scales(step)[thread_index()]);
}

// ---- Queries.

// What a row is multiplied by, of which this is the largest magnitude: 1 to 2 remain of it. An
// infinite one stays so.
struct RowPower {
  float down;
  float up;  // what undoes it
};
STEMMA_ON_DEVICE RowPower row_power(float largest) {
  std::uint32_t exponent = float_as_word(largest) >> 23;
  exponent = exponent < 1 ? 1 : (exponent > 253 ? 253 : exponent);
  return {word_as_float((254 - exponent) << 23), word_as_float(exponent << 23)};
}

// Values of the queries that follow each other, from a multiple of kRowStep on.
STEMMA_ON_DEVICE void load_query_values(const AttentionParams& params, std::int64_t first,
                                        float (&q)[kRowStep]) {
  switch (params.row_dtype) {
    case DType::kF32:
      return load_values(static_cast<const float*>(params.q) + first, q);
    case DType::kF16:
      return load_values(static_cast<const Float16*>(params.q) + first, q);
    default:
      return load_values(static_cast<const BFloat16*>(params.q) + first, q);
  }
}

// The first two of each four columns, of a piece and its neighbour, become a piece, and the others
// the odd one.
STEMMA_ON_DEVICE Words first_of_fours(const Words& own, bool odd) {
  const std::uint32_t a = shuffle_xor(odd ? own.w[0] : own.w[1], 1);
  const std::uint32_t b = shuffle_xor(odd ? own.w[2] : own.w[3], 1);
  return odd ? Words{{a, b, own.w[1], own.w[3]}} : Words{{own.w[0], own.w[2], a, b}};
}

// The queries of an item's pairs, as operands of codes; zeros beyond them. `powers`: of each pair,
// what its products are to be multiplied by. kReordered: as codes that lie in slots are multiplied.
template <int kPairs, int kPieces, int kThreads, bool kReordered>
STEMMA_ON_DEVICE void load_code_queries(const AttentionParams& params, const AttentionItem& item,
                                        std::int32_t kv_head, std::byte* tile, float* powers) {
  constexpr int kLanes = kPieces < kWarpThreads ? kPieces : kWarpThreads;  // that have a row
  constexpr int kEach = (kPieces + kLanes - 1) / kLanes;
  static_assert(kWarpThreads % kLanes == 0 && kPairs * kLanes % kThreads == 0);
  static_assert(!kReordered || kEach == 1);
  const int own = thread_index() % kLanes;
  for (int row = thread_index() / kLanes; row < kPairs; row += kThreads / kLanes) {
    const Pair pair = pair_of(params, item, kv_head, row);
    const std::int64_t first =
        (static_cast<std::int64_t>(pair.row) * params.query_heads + pair.head) * params.head_dim;
    float q[std::size_t{kEach}][kRowStep] = {};
    float largest = 0;
    STEMMA_UNROLLED
    for (int e = 0; e < kEach; ++e) {
      const int column = 8 * (own + e * kLanes);
      if (pair.row >= 0 && column < params.head_dim)
        load_query_values(params, first + column, q[e]);
    }
    STEMMA_UNROLLED
    for (int i = 0; i < 8 * kEach; ++i) {
      largest = larger_of(largest, q[i / 8][i % 8] < 0 ? -q[i / 8][i % 8] : q[i / 8][i % 8]);
    }
    STEMMA_UNROLLED
    for (int mask = 1; mask < kLanes; mask *= 2) {
      largest = larger_of(largest, shuffle_xor(largest, mask));
    }
    const RowPower power = row_power(largest);
    if (own == 0) powers[row] = power.up;
    STEMMA_UNROLLED
    for (int e = 0; e < kEach; ++e) {
      if (own + e * kLanes >= kPieces) break;
      Words words;
      STEMMA_UNROLLED
      for (int j = 0; j < 4; ++j) {
        words.w[j] = narrow_pair<Float16>(q[e][2 * j] * power.down, q[e][2 * j + 1] * power.down);
      }
      if constexpr (kReordered) words = first_of_fours(words, own % 2 != 0);
      store_words(tile + piece_at<kPieces>(row, own + e * kLanes), words);
    }
  }
}

// ---- Scores, and the sum of the weights.

// Products become scores in base 2 and what V is multiplied by. `powers`: of the warp's pairs.
template <typename F>
STEMMA_ON_DEVICE void code_scores(const AttentionParams& params,
                                  float (&s)[F::kRows][2 * F::kKeys][4], const Tiles<F>& tiles,
                                  int step, int key, const float* powers) {
  const int lane = afresh(lane_index());
  const float* const scales = tiles.key_scales(step) + key + lane % 4 * 2;
  const float* const levels = tiles.value_scales(step) + key + lane % 4 * 2;
  const bool caps = params.score_cap > 0;
  float factors[F::kRows][2];
  STEMMA_UNROLLED
  for (int i = 0; i < 2 * F::kRows; ++i) {
    factors[i / 2][i % 2] = powers[8 * i + lane / 4] * score_factor(params);
  }
  STEMMA_UNROLLED
  for (int n = 0; n < 2 * F::kKeys; ++n) {
    const Two<float> scale = load_two(scales + 8 * n);
    const Two<float> level = load_two(levels + 8 * n);
    STEMMA_UNROLLED
    for (int r = 0; r < F::kRows; ++r) {
      STEMMA_UNROLLED
      for (int i = 0; i < 4; ++i) {
        const float product = s[r][n][i] * (i % 2 == 0 ? scale.first : scale.second);
        const float factor = factors[r][i / 2];
        s[r][n][i] = fused(caps ? saturation(params, product * factor) : product,
                           caps ? params.score_cap * kLog2Of_e : factor,
                           i % 2 == 0 ? level.first : level.second);
      }
    }
  }
}

// The sum of a row's weights over tiles has a part for each 16 keys of a tile and each lane that
// has the row, added up when the partition ends. Roundings are written out: a compiler that fuses
// what it likes would do so differently in each kernel.

// What remains of a part, when the row's sums are to be multiplied by `kept`.
STEMMA_ON_DEVICE float kept_part(float part, float kept) {
  return fused(part, kept, 0.0f);
}
// Of the weights of four keys, of which two follow each other, and two 8 behind them.
STEMMA_ON_DEVICE float sum_of_four(const float (&weights)[4], const Two<float>& near,
                                   const Two<float>& far) {
  const float two = fused(weights[1], near.second, weights[0] * near.first);
  return fused(weights[3], far.second, fused(weights[2], far.first, two));
}
// Over the lanes that have the row.
STEMMA_ON_DEVICE float sum_of_parts(float part) {
  part += shuffle_xor(part, 1);
  return part + shuffle_xor(part, 2);
}

}  // namespace stemma
