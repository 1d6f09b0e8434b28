// Codes of 8 bits as operands: made in registers of what lies in a slot, or widened to a tile.
//
// A matrix load of codes gives a lane four columns of a key of K that follow each other; a product
// wants two and two of 16. Columns of each 16 change places in queries and keys alike, which a
// product does not notice. Of V it gives two columns of two keys, and so even columns and odd ones
// make a product each.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; a whole warp takes part in products, all threads of the team in
//             widening.
// Memory:     registers and shared memory of the team.
// Cost:       one to one and a half instructions for two codes, in each warp that multiplies them;
//             widening as much, and a load and two stores for 16.
// Not here:   queries, scores and weights (attention_codes_cuda).
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_products_cuda.h"
#include "attention/attention_tiles_cuda.h"
#include "device/cuda_dialect.h"

namespace stemma {

// Calls with a value of the type that a pool's codes have.
template <typename Call>
STEMMA_ON_DEVICE void with_code(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::kFp8E4M3:
      return call(Float8E4M3());
    case DType::kFp8E5M2:
      return call(Float8E5M2());
    default:
      return call(std::int8_t());
  }
}

// ---- Products of codes as they lie in a slot.

// s += q kᵀ for the 16 keys from `key` on.
template <typename Code, typename F>
STEMMA_ON_DEVICE void multiply_code_keys(float (&s)[F::kRows][2 * F::kKeys][4], const std::byte* q,
                                         int first, const std::byte* slot, int key) {
  static_assert(F::kKeys == 1);
  constexpr int kCodePieces = F::kPieces / 2;
  const int lane = afresh(lane_index());
  const int q_place = piece_at<F::kPieces>(first + lane % 16, lane / 16);
  const int k_place = piece_at<kCodePieces>(key + lane % 16, lane / 16);
  STEMMA_UNROLLED
  for (int piece = 0; piece < kCodePieces; piece += 2) {
    std::uint32_t codes[4];
    load_matrices(codes, slot + pieces_behind(k_place, piece));
    STEMMA_UNROLLED
    for (int half = 0; half < 2; ++half) {
      std::uint32_t low[2];
      std::uint32_t high[2];
      codes_as_halves<Code>(codes[2 * half], low);
      codes_as_halves<Code>(codes[2 * half + 1], high);
      STEMMA_UNROLLED
      for (int r = 0; r < F::kRows; ++r) {
        std::uint32_t a[4];
        load_matrices(
            a, q + pieces_behind(q_place, 2 * (piece + half)) + rows_behind<F::kPieces>(16 * r));
        multiply_add<Float16>(s[r][0], a, low);
        multiply_add<Float16>(s[r][1], a, high);
      }
    }
  }
}

// The codes of V that a warp multiplies with twice 16 keys from `key` on, in words of two
// neighbouring columns of two keys: of[i][n]: of the i-th 16 keys and the 16 columns of piece
// `first` + n, keys 0 to 7 and 8 to 15.
template <typename F>
struct CodeWords {
  std::uint32_t of[2][F::kColumns][2];
};
template <typename F>
STEMMA_ON_DEVICE void load_code_values(CodeWords<F>& words, const std::byte* slot, int key,
                                       int first) {
  constexpr int kCodePieces = F::kPieces / 2;
  // Of one piece a load has all 32 keys, of more 16 keys of two pieces.
  constexpr bool kOne = F::kColumns == 1;
  const int lane = afresh(lane_index());
  const int place =
      piece_at<kCodePieces>(key + (kOne ? lane : lane % 16), first + (kOne ? 0 : lane / 16));
  STEMMA_UNROLLED
  for (int load = 0; load < F::kColumns; ++load) {
    const int keys = kOne ? 0 : load % 2;
    const int piece = kOne ? 0 : load / 2 * 2;
    std::uint32_t four[4];
    load_matrices_transposed(
        four, slot + pieces_behind(place, piece) + rows_behind<kCodePieces>(16 * keys));
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i)
      words.of[kOne ? i / 2 : keys][kOne ? 0 : piece + i / 2][i % 2] = four[i];
  }
}

// o += w v of 16 keys. Of each 16 columns the even ones are o[2 n], the odd ones o[2 n + 1].
template <typename Code, typename F>
STEMMA_ON_DEVICE void add_code_values(float (&o)[F::kRows][2 * F::kColumns][4],
                                      const std::uint32_t (&weights)[F::kRows][4],
                                      const std::uint32_t (&words)[F::kColumns][2]) {
  STEMMA_UNROLLED
  for (int n = 0; n < F::kColumns; ++n) {
    std::uint32_t below[2];
    std::uint32_t above[2];
    codes_as_halves<Code>(swap_middle_bytes(words[n][0]), below);
    codes_as_halves<Code>(swap_middle_bytes(words[n][1]), above);
    const std::uint32_t even[2] = {below[0], above[0]};
    const std::uint32_t odd[2] = {below[1], above[1]};
    STEMMA_UNROLLED
    for (int r = 0; r < F::kRows; ++r) {
      multiply_add<Float16>(o[r][2 * n], weights[r], even);
      multiply_add<Float16>(o[r][2 * n + 1], weights[r], odd);
    }
  }
}

// ---- Codes widened to a tile. Each thread widens what it copied: its own copies are all that must
// have been waited for.

// kReordered: columns in the order of queries that are.
template <typename Code, bool kReordered, typename F>
STEMMA_ON_DEVICE void widen_slot(std::byte* tile, const std::byte* slot) {
  const Share<F> own = share_of<F>();
  STEMMA_UNROLLED
  for (int i = 0; i < Share<F>::kRows * Share<F>::kPieces; ++i) {
    const int place = Share<F>::in_slot(i / Share<F>::kPieces, i % Share<F>::kPieces);
    const Words codes = load_words(slot + own.place + place);
    Words wide[2];
    STEMMA_UNROLLED
    for (int w = 0; w < 4; ++w) {
      std::uint32_t two[2];
      codes_as_halves<Code>(codes.w[w], two);
      STEMMA_UNROLLED
      for (int j = 0; j < 2; ++j) {
        (kReordered ? wide[j].w[w] : wide[w / 2].w[w % 2 * 2 + j]) = two[j];
      }
    }
    STEMMA_UNROLLED
    for (int j = 0; j < 2; ++j) {
      store_words(tile + piece_at<F::kPieces>(own.row, 2 * own.piece + j) + 2 * place, wide[j]);
    }
  }
}

// A tile of latent rows is V, too.
template <typename F>
STEMMA_ON_DEVICE void widen_keys(const Tiles<F>& tiles, const AttentionParams& params, int step) {
  if constexpr (F::kWidened) {
    with_code(params.kv_dtype, [&](auto code) {
      widen_slot<decltype(code), !F::kLatent, F>(tiles.key_tile(step), tiles.key_slot(step));
    });
  }
}
template <typename F>
STEMMA_ON_DEVICE void widen_values(const Tiles<F>& tiles, const AttentionParams& params, int step) {
  if constexpr (F::kWidened && !F::kLatent) {
    with_code(params.kv_dtype, [&](auto code) {
      widen_slot<decltype(code), false, F>(tiles.value_tile(step), tiles.value_slot(step));
    });
  }
}

}  // namespace stemma
