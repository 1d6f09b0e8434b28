// Tiles of keys and values in shared memory: how they get there from where their rows lie, and
// codes of scaled pools widened.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; all threads of the team take part in copies.
// Memory:     shared memory of the team.
// Cost:       a few instructions for each 16 bytes; for 16 codes about fifty.
// Not here:   where rows lie (attention_rows_cuda), what is computed of them
//             (attention_products_cuda).
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_rows_cuda.h"
#include "device/cuda_dialect.h"

namespace stemma {

// Teams that a multiprocessor holds at once of those that it should: by their shared memory, one
// team being allowed so much.
inline std::int64_t residents(std::int64_t shared_bytes, std::int64_t wanted,
                              std::int64_t team_shared_bytes_max) {
  constexpr std::int64_t kReservedBytes = 1024;  // of each team, by the runtime
  const std::int64_t fit =
      (team_shared_bytes_max + kReservedBytes) / (shared_bytes + kReservedBytes);
  return fit < wanted ? fit : wanted;
}

// ---- Tiles in shared memory: rows of kPieces pieces of 16 bytes, a multiple of 8. Pieces are
// permuted within a row so that the same piece of 8 rows lies in different banks.

// What rows of a pool are: K and V; codes of both; rows of which V is the first columns, and too
// long for a tile of their own for it; codes of those; K and V of keys that were chosen.
enum class RowKind { kPlain, kCodes, kLatent, kLatentCodes, kChosen };

// What a team has of tiles. K and V are on their way to two slots each, as tiles; as rows of codes
// where the pool is of a scaled dtype, to be widened to one tile each when they are there. Latent
// rows have two slots; codes of them one tile, to be widened to K and then to V.
template <typename T, int kDim_, RowKind kKind, int kThreads_>
struct TileForm {
  using Operand = T;
  static constexpr int kDim = kDim_;
  static constexpr bool kScaled = kKind == RowKind::kCodes || kKind == RowKind::kLatentCodes;
  static constexpr bool kLatent = kKind == RowKind::kLatent || kKind == RowKind::kLatentCodes;
  static constexpr bool kChosen = kKind == RowKind::kChosen;
  static constexpr int kThreads = kThreads_;
  static constexpr int kPieces = kDim / 8;
  static constexpr int kTileBytes = kCudaTileKeys * kDim * 2;
  static constexpr int kSlotBytes = kScaled ? kTileBytes / 2 : kTileBytes;
  static constexpr int kSlotsBytes = (kLatent ? 2 : 4) * kTileBytes;
  static constexpr int kScaleBytes = kScaled ? (kLatent ? 2 : 4) * kCudaTileKeys * 4 : 0;
  static constexpr int kTilesBytes = kSlotsBytes + 2 * kCudaTileKeys * 8 + kScaleBytes;
};

template <typename F>
struct Tiles {
  std::byte* keys;        // two slots
  std::byte* values;      // two slots
  std::byte* wide;        // of codes: a tile of K and one of V
  std::int64_t* offsets;  // [2, tile keys]
  float* scales;          // of codes: [2, K and V, tile keys]; of latent ones [2, tile keys]

  STEMMA_ON_DEVICE std::byte* key_tile(int step) const {
    return F::kScaled ? wide : keys + step % 2 * F::kTileBytes;
  }
  STEMMA_ON_DEVICE std::byte* value_tile(int step) const {
    if (F::kLatent) return key_tile(step);
    return F::kScaled ? wide + F::kTileBytes : values + step % 2 * F::kTileBytes;
  }
  STEMMA_ON_DEVICE float* key_scales(int step) const {
    return scales + step % 2 * (F::kLatent ? 1 : 2) * kCudaTileKeys;
  }
  STEMMA_ON_DEVICE float* value_scales(int step) const {
    return key_scales(step) + (F::kLatent ? 0 : kCudaTileKeys);
  }
  // Where V is on its way to.
  STEMMA_ON_DEVICE std::byte* value_slot(int step) const {
    return (F::kLatent ? keys : values) + step % 2 * F::kSlotBytes;
  }
};
template <typename F>
STEMMA_ON_DEVICE Tiles<F> tiles_of(std::byte* shared) {
  Tiles<F> tiles;
  tiles.keys = shared;
  tiles.values = tiles.keys + 2 * F::kSlotBytes;
  tiles.wide = tiles.keys + (F::kLatent ? 2 : 4) * F::kSlotBytes;
  tiles.offsets = reinterpret_cast<std::int64_t*>(shared + F::kSlotsBytes);
  tiles.scales = reinterpret_cast<float*>(tiles.offsets + 2 * kCudaTileKeys);
  return tiles;
}

// Where the key that the thread looks after lies, and what its codes are multiplied by.
template <typename F>
STEMMA_ON_DEVICE void set_offset(const Tiles<F>& tiles, const AttentionParams& params, int step,
                                 const KeyPlace& place) {
  if (thread_index() < kCudaTileKeys) {
    const std::int64_t offset = offset_of(params, place);
    // Of whole pieces where there is no key, too: addresses are made of it.
    tiles.offsets[step % 2 * kCudaTileKeys + thread_index()] = offset < 0 ? -kPieceBytes : offset;
  }
}
template <typename F>
STEMMA_ON_DEVICE RowScales load_scales(const AttentionParams& params, const KeyPlace& place) {
  if (!F::kScaled || thread_index() >= kCudaTileKeys) return {0, 0};
  return scales_of(params, place);
}
template <typename F>
STEMMA_ON_DEVICE void set_scales(const Tiles<F>& tiles, int step, const RowScales& scales) {
  if (!F::kScaled || thread_index() >= kCudaTileKeys) return;
  tiles.key_scales(step)[thread_index()] = scales.key;
  tiles.value_scales(step)[thread_index()] = scales.value;
}

// The same by copies that begin, of what scale_at found.
template <typename F>
STEMMA_ON_DEVICE void copy_scales(const Tiles<F>& tiles, const AttentionParams& params, int step,
                                  std::int64_t at) {
  if (!F::kScaled || thread_index() >= kCudaTileKeys) return;
  if (at < 0) return set_scales(tiles, step, {0, 0});
  copy_word_later(tiles.key_scales(step) + thread_index(), params.k_scales + at);
  copy_word_later(tiles.value_scales(step) + thread_index(), params.v_scales + at);
}

template <int kPieces>
STEMMA_ON_DEVICE int piece_at(int row, int piece) {
  return (row * kPieces + (piece ^ (row & 7))) * kPieceBytes;
}
// Where the piece lies that is `pieces` behind the one at `place` in the same row. REQUIRES: the
// number of that one has none of the bits of `pieces`.
STEMMA_ON_DEVICE int pieces_behind(int place, int pieces) {
  return (place ^ pieces % 8 * kPieceBytes) + pieces / 8 * 8 * kPieceBytes;
}
template <int kPieces>
STEMMA_ON_DEVICE constexpr int rows_behind(int rows) {
  static_assert(kPieces % 8 == 0);
  return rows * kPieces * kPieceBytes;
}

// What a thread has of a slot's rows: every kAcross-th piece of every kApart-th row. Eights of rows
// and of a tile's pieces lie in between, so that their places in shared memory, too, are a constant
// apart.
template <typename F>
struct Share {
  static constexpr int kRowPieces = F::kSlotBytes / (kCudaTileKeys * kPieceBytes);
  static constexpr int kAcross = kRowPieces % 16 == 0 ? 16 : (kRowPieces % 8 == 0 ? 8 : 4);
  static constexpr int kApart = F::kThreads / kAcross;
  static constexpr int kRows = kCudaTileKeys / kApart;
  static constexpr int kPieces = kRowPieces / kAcross;  // of each row
  static_assert(kApart % 8 == 0 && kCudaTileKeys % kApart == 0 && kRowPieces % kAcross == 0);
  static_assert(F::kScaled || kAcross % 8 == 0);

  int row;
  int piece;
  int place;  // of the first piece in the slot

  // From there to piece j of row i, in a slot and in a row of the pool.
  static constexpr int in_slot(int i, int j) {
    return (i * kApart * kRowPieces + j * kAcross) * kPieceBytes;
  }
  static constexpr int in_row(int j) { return j * kAcross * kPieceBytes; }
};
template <typename F>
STEMMA_ON_DEVICE Share<F> share_of() {
  constexpr int kRowPieces = Share<F>::kRowPieces;
  const auto thread = static_cast<unsigned>(afresh(thread_index()));
  const int row = static_cast<int>(thread / Share<F>::kAcross);
  const int piece = static_cast<int>(thread % Share<F>::kAcross);
  const int place =
      F::kScaled ? (row * kRowPieces + piece) * kPieceBytes : piece_at<kRowPieces>(row, piece);
  return {row, piece, place};
}

// Begins to copy a tile's rows: elements to their places in a tile, codes one row after another.
// Zeros where there is no key and beyond the row, of which nothing is read. All offsets are loaded
// before the first copy: the assembler puts three instructions before each copy that follows none.
template <typename F>
STEMMA_ON_DEVICE void copy_rows(std::byte* slot, const std::byte* rows, const std::int64_t* offsets,
                                int head_dim) {
  const Share<F> own = share_of<F>();
  std::int64_t from[Share<F>::kRows];
  STEMMA_UNROLLED
  for (int i = 0; i < Share<F>::kRows; ++i) from[i] = offsets[own.row + i * Share<F>::kApart];
  const std::byte* const first = rows + own.piece * kPieceBytes;
  const int wanted_pieces = (F::kScaled ? head_dim / 16 : head_dim / 8) - own.piece;
  STEMMA_UNROLLED
  for (int i = 0; i < Share<F>::kRows; ++i) {
    const bool is_key = static_cast<std::int32_t>(from[i] >> 32) >= 0;
    STEMMA_UNROLLED
    for (int j = 0; j < Share<F>::kPieces; ++j) {
      copy_words_later(slot + own.place + Share<F>::in_slot(i, j),
                       first + from[i] + Share<F>::in_row(j),
                       is_key && j * Share<F>::kAcross < wanted_pieces);
    }
  }
}
template <typename F>
STEMMA_ON_DEVICE void copy_keys(const Tiles<F>& tiles, const AttentionParams& params, int step) {
  copy_rows<F>(tiles.keys + step % 2 * F::kSlotBytes, params.k,
               tiles.offsets + step % 2 * kCudaTileKeys, params.head_dim);
}
template <typename F>
STEMMA_ON_DEVICE void copy_values(const Tiles<F>& tiles, const AttentionParams& params, int step) {
  copy_rows<F>(tiles.value_slot(step), params.v, tiles.offsets + step % 2 * kCudaTileKeys,
               params.head_dim);
}

// Eight codes become bf16, which is exact; times `scale`, rounded.
template <typename Code>
STEMMA_ON_DEVICE Words widen_piece(const TwoWords& codes, float scale) {
  Words wide;
  STEMMA_UNROLLED
  for (int w = 0; w < 4; w += 2) {
    float four[4];
    widen_codes<Code>(codes.w[w / 2], four);
    wide.w[w] = narrow_pair<BFloat16>(four[0] * scale, four[1] * scale);
    wide.w[w + 1] = narrow_pair<BFloat16>(four[2] * scale, four[3] * scale);
  }
  return wide;
}

// A slot's codes, with their rows' scales where there are `scales`. Each thread widens what it
// copied: its own copies are all that must have been waited for. Of a piece of codes, two of the
// tile, half of the threads begin with the other half: eight threads of a row write at once, and
// every other piece of 16 lies in the banks of the first 8.
template <typename F, typename Code>
STEMMA_ON_DEVICE void widen_slot(std::byte* tile, const std::byte* slot, const float* scales) {
  const Share<F> own = share_of<F>();
  float scale[Share<F>::kRows];
  STEMMA_UNROLLED
  for (int i = 0; i < Share<F>::kRows; ++i) {
    scale[i] = scales == nullptr ? 1.0f : scales[own.row + i * Share<F>::kApart];
  }
  const int begin = Share<F>::kAcross >= 8 ? (own.piece / 4 + own.row) % 2 : 0;
  STEMMA_UNROLLED
  for (int h = 0; h < 2; ++h) {
    const int half = begin ^ h;
    const std::byte* const from = slot + own.place + half * kPieceBytes / 2;
    std::byte* const to = tile + piece_at<F::kPieces>(own.row, 2 * own.piece + half);
    STEMMA_UNROLLED
    for (int i = 0; i < Share<F>::kRows * Share<F>::kPieces; ++i) {
      const int place = Share<F>::in_slot(i / Share<F>::kPieces, i % Share<F>::kPieces);
      const auto& codes = *reinterpret_cast<const TwoWords*>(from + place);
      store_words(to + 2 * place, widen_piece<Code>(codes, scale[i / Share<F>::kPieces]));
    }
  }
}
template <typename F>
STEMMA_ON_DEVICE void widen_rows(DType dtype, std::byte* tile, const std::byte* slot,
                                 const float* scales) {
  switch (dtype) {
    case DType::kFp8E4M3:
      return widen_slot<F, Float8E4M3>(tile, slot, scales);
    case DType::kFp8E5M2:
      return widen_slot<F, Float8E5M2>(tile, slot, scales);
    default:
      return widen_slot<F, std::int8_t>(tile, slot, scales);
  }
}
template <typename F>
STEMMA_ON_DEVICE void widen_keys(const Tiles<F>& tiles, const AttentionParams& params, int step) {
  if (!F::kScaled) return;
  widen_rows<F>(params.kv_dtype, tiles.key_tile(step), tiles.keys + step % 2 * F::kSlotBytes,
                nullptr);
}
template <typename F>
STEMMA_ON_DEVICE void widen_values(const Tiles<F>& tiles, const AttentionParams& params, int step) {
  if (!F::kScaled) return;
  widen_rows<F>(params.kv_dtype, tiles.value_tile(step), tiles.value_slot(step),
                tiles.value_scales(step));
}

// The queries of an item's pairs, as operands; zeros beyond them.
template <typename T, int kPairs, int kPieces, int kThreads>
STEMMA_ON_DEVICE void load_queries(const AttentionParams& params, const AttentionItem& item,
                                   std::int32_t kv_head, std::byte* tile) {
  for (int i = thread_index(); i < kPairs * kPieces; i += kThreads) {
    const int piece = i % kPieces;
    const Pair pair = pair_of(params, item, kv_head, i / kPieces);
    Words words = {};
    if (pair.row >= 0 && piece * 8 < params.head_dim) {
      const std::int64_t first =
          (static_cast<std::int64_t>(pair.row) * params.query_heads + pair.head) * params.head_dim +
          piece * 8;
      if (params.row_dtype == kDTypeOf<T>) {
        words = load_words(static_cast<const std::uint16_t*>(params.q) + first);
      } else {
        for (int w = 0; w < 4; ++w) {
          words.w[w] = narrow_pair<T>(query_element(params, first + 2 * w),
                                      query_element(params, first + 2 * w + 1));
        }
      }
    }
    store_words(tile + piece_at<kPieces>(i / kPieces, piece), words);
  }
}

}  // namespace stemma
