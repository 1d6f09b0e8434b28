// Tiles of keys and values in shared memory: how they get there from where their rows lie.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; all threads of the team take part in copies.
// Memory:     shared memory of the team.
// Cost:       a few instructions for each 16 bytes.
// Not here:   where rows lie (attention_rows_cuda), what is computed of them
//             (attention_products_cuda), codes (attention_codes_cuda).
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

// What rows of a pool are: K and V; codes of both, multiplied as they are read or widened to tiles
// first; rows of which V is the first columns, and too long for a tile of their own for it; codes
// of those; K and V of keys that were chosen.
enum class RowKind { kPlain, kCodes, kWideCodes, kLatent, kLatentCodes, kChosen };

// What a team has of tiles. K and V are on their way to two slots each, latent rows to two slots,
// as tiles; as rows of codes where the pool is of a scaled dtype. Those that are widened have one
// tile each of K and V; of latent rows one.
template <typename T, int kDim_, RowKind kKind, int kThreads_>
struct TileForm {
  using Operand = T;
  static constexpr int kDim = kDim_;
  static constexpr bool kInSlots = kKind == RowKind::kCodes;  // multiplied as they lie there
  static constexpr bool kWidened = kKind == RowKind::kWideCodes || kKind == RowKind::kLatentCodes;
  static constexpr bool kScaled = kInSlots || kWidened;
  static constexpr bool kLatent = kKind == RowKind::kLatent || kKind == RowKind::kLatentCodes;
  static constexpr bool kChosen = kKind == RowKind::kChosen;
  static constexpr int kThreads = kThreads_;
  static constexpr int kPieces = kDim / 8;
  static constexpr int kTileBytes = kCudaTileKeys * kDim * 2;
  static constexpr int kSlotBytes = kScaled ? kTileBytes / 2 : kTileBytes;
  static constexpr int kSlots = kLatent ? 2 : 4;
  static constexpr int kWideBytes = kWidened ? kSlots / 2 * kTileBytes : 0;
  static constexpr int kSlotsBytes = kSlots * kSlotBytes + kWideBytes;
  static constexpr int kScales = kScaled ? 3 : 0;  // of a key
  static constexpr int kScaleBytes = 2 * kScales * kCudaTileKeys * 4;
  static constexpr int kTilesBytes = kSlotsBytes + 2 * kCudaTileKeys * 8 + kScaleBytes;
};

template <typename F>
struct Tiles {
  std::byte* keys;        // two slots
  std::byte* values;      // two slots
  std::byte* wide;        // a tile of K, and of V where that has one
  std::int64_t* offsets;  // [2, tile keys]
  float* scales;          // [2, kScales, tile keys]: K's; V's, as what follows from it

  // Where K and V are, or are on their way to.
  STEMMA_ON_DEVICE std::byte* key_slot(int step) const { return keys + step % 2 * F::kSlotBytes; }
  STEMMA_ON_DEVICE std::byte* value_slot(int step) const {
    return (F::kLatent ? keys : values) + step % 2 * F::kSlotBytes;
  }
  // What is multiplied: a tile, or where codes are multiplied as they are read, their slot.
  STEMMA_ON_DEVICE std::byte* key_tile(int step) const {
    return F::kWidened ? wide : key_slot(step);
  }
  STEMMA_ON_DEVICE std::byte* value_tile(int step) const {
    if (F::kLatent) return key_tile(step);
    return F::kWidened ? wide + F::kTileBytes : value_slot(step);
  }
  STEMMA_ON_DEVICE float* key_scales(int step) const {
    return scales + step % 2 * F::kScales * kCudaTileKeys;
  }
  STEMMA_ON_DEVICE float* value_scales(int step) const { return key_scales(step) + kCudaTileKeys; }
  STEMMA_ON_DEVICE float* value_inverses(int step) const {
    return key_scales(step) + 2 * kCudaTileKeys;
  }
};
template <typename F>
STEMMA_ON_DEVICE Tiles<F> tiles_of(std::byte* shared) {
  Tiles<F> tiles;
  tiles.keys = shared;
  tiles.values = tiles.keys + 2 * F::kSlotBytes;
  tiles.wide = tiles.keys + F::kSlots * F::kSlotBytes;
  tiles.offsets = reinterpret_cast<std::int64_t*>(shared + F::kSlotsBytes);
  tiles.scales = reinterpret_cast<float*>(tiles.offsets + 2 * kCudaTileKeys);
  return tiles;
}

// Where the key that the thread looks after lies.
template <typename F>
STEMMA_ON_DEVICE void set_offset(const Tiles<F>& tiles, const AttentionParams& params, int step,
                                 const KeyPlace& place) {
  if (thread_index() < kCudaTileKeys) {
    const std::int64_t offset = offset_of(params, place);
    // Of whole pieces where there is no key, too: addresses are made of it.
    tiles.offsets[step % 2 * kCudaTileKeys + thread_index()] = offset < 0 ? -kPieceBytes : offset;
  }
}
// Rows of 4 pieces lie two to a line of all banks.
template <int kPieces>
STEMMA_ON_DEVICE int piece_at(int row, int piece) {
  static_assert(kPieces % 8 == 0 || kPieces == 4);
  const int moved = kPieces == 4 ? row / 2 & 3 : row & 7;
  return (row * kPieces + (piece ^ moved)) * kPieceBytes;
}
// Where the piece lies that is `pieces` behind the one at `place` in the same row. REQUIRES: the
// number of that one has none of the bits of `pieces`.
STEMMA_ON_DEVICE int pieces_behind(int place, int pieces) {
  return (place ^ pieces % 8 * kPieceBytes) + pieces / 8 * 8 * kPieceBytes;
}
template <int kPieces>
STEMMA_ON_DEVICE constexpr int rows_behind(int rows) {
  static_assert(kPieces % 8 == 0 || kPieces == 4);
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
  // Latent rows of codes are no such pieces; nothing but their own thread reads them.
  static constexpr bool kPermuted = !(F::kScaled && F::kLatent);
  static_assert(!kPermuted || kAcross % 8 == 0 || kRowPieces == 4);

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
  if constexpr (Share<F>::kPermuted) {
    return {row, piece, piece_at<kRowPieces>(row, piece)};
  } else {
    return {row, piece, (row * kRowPieces + piece) * kPieceBytes};
  }
}

// Begins to copy a tile's rows to their places in a slot.
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
  copy_rows<F>(tiles.key_slot(step), params.k, tiles.offsets + step % 2 * kCudaTileKeys,
               params.head_dim);
}
template <typename F>
STEMMA_ON_DEVICE void copy_values(const Tiles<F>& tiles, const AttentionParams& params, int step) {
  copy_rows<F>(tiles.value_slot(step), params.v, tiles.offsets + step % 2 * kCudaTileKeys,
               params.head_dim);
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
