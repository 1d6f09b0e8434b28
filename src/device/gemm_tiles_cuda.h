// Tiles of products: a team multiplies some rows of x with some rows of w, both of which lie in
// device memory, in an order that only k decides.
//
// All tiles walk k in steps of 16, on tensor cores, with one running sum in f32, and what they read
// behind the last element is zero: a value has the same bits whichever tile computes it, and
// wherever in it.
//
// x and w come through shared memory in pieces of 64 columns, several of them on their way at a
// time. A piece's row has eight words of 16 bytes, of which word c of row r lies at c ^ (r % 8), so
// that the eight rows that a matrix load reads lie in different banks.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; all threads of the team take part.
// Memory:     shared memory of the team: kSharedBytes of its shape.
// Cost:       of few rows the time to read w; of many about two thirds of what mma.sync can do.
// Not here:   which rows there are and where results go (gemm_cuda, cuda/experts_cuda), f32
//             (plain_tiles_cuda.h), rounded weights (rounded_tiles_cuda.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_dialect.h"

namespace stemma {

inline constexpr int kTileK = 64;
inline constexpr int kWordElements = 8;
inline constexpr int kRowWords = kTileK / kWordElements;

// How a tile of y is spread over a team.
template <int kM, int kN, int kWarpsDown, int kWarpsAcross, int kStagesWanted, int kTeamsWanted>
struct GemmTile {
  static constexpr int kRows = kM;
  static constexpr int kColumns = kN;
  static constexpr int kAcross = kWarpsAcross;
  static constexpr int kThreads = kWarpsDown * kWarpsAcross * kWarpThreads;
  static constexpr int kWarpRows = kM / kWarpsDown;
  static constexpr int kWarpColumns = kN / kWarpsAcross;
  static constexpr int kDown16 = kWarpRows / 16;
  static constexpr int kAcross16 = kWarpColumns / 16;
  static constexpr int kStages = kStagesWanted;
  static constexpr int kTeams = kTeamsWanted;
  static constexpr int kStageWords = (kM + kN) * kRowWords;
  static constexpr std::size_t kSharedBytes = std::size_t{16} * kStageWords * kStages;
  static constexpr int kStepRows = kThreads / kRowWords;  // that the team copies at a time
  static constexpr int kCopiedRows = kM / kStepRows;      // of x, by one thread
  static_assert(kM % kStepRows == 0 && kN % kStepRows == 0);
  static_assert(kWarpRows % 16 == 0 && kWarpColumns % 16 == 0);
};
// Of few rows w streams through: small tiles on all multiprocessors, long queues of copies.
using FewRows = GemmTile<16, 32, 1, 2, 8, 4>;
using SomeRows = GemmTile<64, 64, 2, 4, 5, 2>;
using ManyRows = GemmTile<128, 128, 2, 4, 4, 1>;

// What a thread has of a tile's sums.
template <typename Shape>
using TileSums = float[Shape::kDown16][2 * Shape::kAcross16][4];

// What a tile reads: `k` columns of rows of x, which the caller names, and of the tile's rows of w,
// of which there are w_rows.
template <typename T, typename W = T>
struct TileOperands {
  const T* x;
  const W* w;
  std::int64_t w_rows;
  std::int64_t k;
  std::int64_t x_stride;  // elements from one row of x to the next
  std::int64_t w_stride;
};

STEMMA_ON_DEVICE int word_place(int row, int word) {
  return row * kRowWords + (word ^ (row & 7));
}
// Where the word lies that is `words` behind the one at `place` in the same row. REQUIRES: the
// number of that one has none of the bits of `words`.
STEMMA_ON_DEVICE int words_behind(int place, int words) {
  return place ^ words;
}

// The tile's row of x that the thread's copy `i` is of.
template <typename Shape>
STEMMA_ON_DEVICE int copied_row(int i) {
  return thread_index() / kRowWords + i * Shape::kStepRows;
}

// What the thread copies to each stage, and from where the next time: the same word of every
// kStepRows-th row, of x and then of w. Those lie whole eights of rows apart in a stage.
template <typename T, typename Shape>
struct PieceCopies {
  static constexpr std::size_t kRows{Shape::kCopiedRows + Shape::kColumns / Shape::kStepRows};
  static_assert(Shape::kStepRows % 8 == 0 && Shape::kRows % 8 == 0);

  const T* from[kRows];
  std::uint32_t x_rows;  // bit i: from[i] is one; of others zeros are copied
  int place;             // of the first one's word in a stage
  int left;              // columns from the next word on
};

// x_rows(i): where the row of the thread's copy i lies in x; below 0: nowhere. Of rows that w does
// not have its first one is copied: nobody sees what comes of them.
template <typename T, typename Shape, typename Rows>
STEMMA_ON_DEVICE PieceCopies<T, Shape> copies_of(const TileOperands<T>& from, const Rows& x_rows) {
  const int word = thread_index() % kRowWords;
  PieceCopies<T, Shape> copies;
  copies.x_rows = 0;
  copies.place = word_place(copied_row<Shape>(0), word);
  copies.left = static_cast<int>(from.k) - word * kWordElements;
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kCopiedRows; ++i) {
    const std::int64_t row = x_rows(i);
    copies.from[i] = from.x + (row >= 0 ? row : 0) * from.x_stride + word * kWordElements;
    copies.x_rows |= row >= 0 ? 1u << i : 0u;
  }
  STEMMA_UNROLLED
  for (int i = Shape::kCopiedRows; i < int{PieceCopies<T, Shape>::kRows}; ++i) {
    const std::int64_t row = copied_row<Shape>(i - Shape::kCopiedRows);
    copies.from[i] = from.w + (row < from.w_rows ? row : 0) * from.w_stride + word * kWordElements;
  }
  return copies;
}

// Begins the copies of the next piece of the tile's rows of w to `stage`; of x the same, after
// which the piece behind is the next one.
template <typename T, typename Shape>
STEMMA_ON_DEVICE void fetch_w(PieceCopies<T, Shape>& copies, Words* stage, int left) {
  STEMMA_UNROLLED
  for (int i = Shape::kCopiedRows; i < int{PieceCopies<T, Shape>::kRows}; ++i) {
    copy_words_later(stage + copies.place + i * Shape::kStepRows * kRowWords, copies.from[i],
                     left > 0);
    copies.from[i] += kTileK;
  }
}
template <typename T, typename Shape>
STEMMA_ON_DEVICE void fetch_x(PieceCopies<T, Shape>& copies, Words* stage) {
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kCopiedRows; ++i) {
    copy_words_later(stage + copies.place + i * Shape::kStepRows * kRowWords, copies.from[i],
                     (copies.x_rows >> i & 1) != 0 && copies.left > 0);
    copies.from[i] += kTileK;
  }
  copies.left -= kTileK;
}
template <typename T, typename Shape>
STEMMA_ON_DEVICE void fetch_piece(PieceCopies<T, Shape>& copies, Words* stage) {
  fetch_w(copies, stage, copies.left);
  fetch_x(copies, stage);
}

// Adds the products of one piece to the warp's part of the tile.
template <typename T, typename Shape>
STEMMA_ON_DEVICE void add_piece(const Words* stage, TileSums<Shape>& sums) {
  const int lane = lane_index();
  const int x_place =
      word_place(warp_index() / Shape::kAcross * Shape::kWarpRows + lane % 16, lane / 16);
  const int w_place = word_place(
      Shape::kRows + warp_index() % Shape::kAcross * Shape::kWarpColumns + lane % 8 + lane / 16 * 8,
      lane / 8 % 2);
  STEMMA_UNROLLED
  for (int step = 0; step < kTileK / 16; ++step) {
    std::uint32_t x[Shape::kDown16][4];
    STEMMA_UNROLLED
    for (int i = 0; i < Shape::kDown16; ++i) {
      load_matrices(x[i], stage + words_behind(x_place, 2 * step) + 16 * i * kRowWords);
    }
    STEMMA_UNROLLED
    for (int j = 0; j < Shape::kAcross16; ++j) {
      std::uint32_t w[4];
      load_matrices(w, stage + words_behind(w_place, 2 * step) + 16 * j * kRowWords);
      const std::uint32_t left[2] = {w[0], w[1]};
      const std::uint32_t right[2] = {w[2], w[3]};
      STEMMA_UNROLLED
      for (int i = 0; i < Shape::kDown16; ++i) {
        multiply_add<T>(sums[i][2 * j], x[i], left);
        multiply_add<T>(sums[i][2 * j + 1], x[i], right);
      }
    }
  }
}

// When a tile's kernel comes to its turn (await_turn): at once, or when the first pieces of w,
// which no kernel writes, are on their way.
enum class TileTurn { kAtOnce, kBehindW };

// Adds all of a tile's products to `sums`. x_rows: see copies_of.
template <typename T, typename Shape, TileTurn kTurn = TileTurn::kAtOnce, typename Rows>
STEMMA_ON_DEVICE void sum_tile(const TileOperands<T>& from, const Rows& x_rows,
                               TileSums<Shape>& sums) {
  Words* const stages = reinterpret_cast<Words*>(shared_memory());
  PieceCopies<T, Shape> copies = copies_of<T, Shape>(from, x_rows);
  const std::int64_t pieces = (from.k + kTileK - 1) / kTileK;
  if constexpr (kTurn == TileTurn::kBehindW) {
    for (int piece = 0; piece < Shape::kStages - 1 && piece < pieces; ++piece) {
      fetch_w(copies, stages + piece * Shape::kStageWords, copies.left - piece * kTileK);
    }
    await_turn();
  }
  for (int piece = 0; piece < Shape::kStages - 1; ++piece) {
    Words* const stage = stages + piece * Shape::kStageWords;
    if (kTurn == TileTurn::kAtOnce && piece < pieces) fetch_w(copies, stage, copies.left);
    if (piece < pieces) fetch_x(copies, stage);
    commit_copies();
  }
  int stage = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    wait_copies<Shape::kStages - 2>();
    team_barrier();  // all copies of this piece are there, and nobody reads the one before it
    const int next_stage = stage == 0 ? Shape::kStages - 1 : stage - 1;
    if (piece + Shape::kStages - 1 < pieces) {
      fetch_piece(copies, stages + next_stage * Shape::kStageWords);
    }
    commit_copies();
    add_piece<T, Shape>(stages + stage * Shape::kStageWords, sums);
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
}

// Rows of a tile of x and of y, of which there are no more than m.
struct TileRows {
  std::int64_t row0;
  std::int64_t m;
  STEMMA_ON_DEVICE std::int64_t operator()(int row) const {
    return row0 + row < m ? row0 + row : -1;
  }
};

// Where tiles go: rows of `n` values.
template <typename Y>
struct TileTarget {
  Y* y;
  std::int64_t n;
  std::int64_t stride;  // elements from one row to the next
  bool in_pairs;        // n is even, and every row is aligned to two values
};
template <typename Y>
STEMMA_ON_DEVICE TileTarget<Y> dense_target(void* y, std::int64_t n) {
  return {static_cast<Y*>(y), n, n, n % 2 == 0};
}

// Two neighbours of a row, of which the second may lie outside.
template <typename Y>
STEMMA_ON_DEVICE void store_two(const TileTarget<Y>& to, std::int64_t row, std::int64_t column,
                                float first, float second) {
  if (column >= to.n) return;
  Y* const at = to.y + row * to.stride + column;
  if (to.in_pairs) {
    *reinterpret_cast<Two<Y>*>(at) = {narrow<Y>(first), narrow<Y>(second)};
    return;
  }
  at[0] = narrow<Y>(first);
  if (column + 1 < to.n) at[1] = narrow<Y>(second);
}

// Writes the tile to columns from column0 on. y_rows(row): where the tile's row `row` goes; below
// 0: nowhere.
template <typename Y, typename Shape, typename Rows>
STEMMA_ON_DEVICE void store_tile(const TileSums<Shape>& sums, const Rows& y_rows,
                                 const TileTarget<Y>& to, std::int64_t column0) {
  const int first = warp_index() / Shape::kAcross * Shape::kWarpRows + lane_index() / 4;
  const std::int64_t column =
      column0 + warp_index() % Shape::kAcross * Shape::kWarpColumns + lane_index() % 4 * 2;
  STEMMA_UNROLLED
  for (int half = 0; half < 2 * Shape::kDown16; ++half) {
    const std::int64_t row = y_rows(first + 8 * half);
    if (row < 0) continue;
    STEMMA_UNROLLED
    for (int j = 0; j < 2 * Shape::kAcross16; ++j) {
      const float(&four)[4] = sums[half / 2][j];
      store_two(to, row, column + 8 * j, four[half % 2 * 2], four[half % 2 * 2 + 1]);
    }
  }
}

}  // namespace stemma
