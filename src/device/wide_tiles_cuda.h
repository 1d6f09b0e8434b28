// Tiles of wide products: a team multiplies some rows of x, of 16 bits, with some rows of w, which
// are f32.
//
// Values of x are widened as they are read, which is exact, and a value of y is one chain of f32
// fused multiply-adds over k from front to back, whatever the tile: it has the bits of the f32
// product (gemm_tiles_cuda.h) of rows widened before. Tensor cores have no such product without
// rounding w.
//
// x and w come through shared memory in pieces of 64 columns, several of them on their way at a
// time: eight words of 16 bytes in a row of x, sixteen in one of w, of which word c of row r lies
// at c ^ (r % 8), so that the eight rows that eight threads read at once lie in different banks.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; all threads of the team take part.
// Memory:     shared memory of the team: kSharedBytes of its shape.
// Cost:       of few rows the time to read w; of many three quarters of what f32 units do: by
//             counting (docs/GPU.md).
// Not here:   which rows there are and where results go (wide_gemm_cuda, cuda/experts_cuda).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_dialect.h"
#include "device/gemm_tiles_cuda.h"

namespace stemma {

inline constexpr int kWideRowWords = kTileK / 4;  // of w

// How a tile of y is spread over a team: sixteen threads across, each with every sixteenth column.
template <int kM, int kN, int kThreadsWanted, int kStagesWanted, int kTeamsWanted>
struct WideTile {
  static constexpr int kRows = kM;
  static constexpr int kColumns = kN;
  static constexpr int kThreads = kThreadsWanted;
  static constexpr int kThreadsDown = kThreads / 16;
  static constexpr int kDown = kM / kThreadsDown;
  static constexpr int kAcross = kN / 16;
  static constexpr int kStages = kStagesWanted;
  static constexpr int kTeams = kTeamsWanted;
  static constexpr int kStageWords = kM * kRowWords + kN * kWideRowWords;
  static constexpr std::size_t kSharedBytes = std::size_t{16} * kStageWords * kStages;
  static constexpr int kStepRows = kThreads / kRowWords;  // of x that the team copies at a time
  static constexpr int kCopiedRows = kM / kStepRows;      // of x, by one thread
  static constexpr int kWideStepRows = kThreads / kWideRowWords;  // of w at a time
  static_assert(kM % kThreadsDown == 0 && kN % 16 == 0);
  static_assert(kM % kStepRows == 0 && kN % kWideStepRows == 0);
};
// As high as those of 16-bit products, so that tiles of visits serve both.
using FewWide = WideTile<16, 32, 128, 6, 3>;
using SomeWide = WideTile<64, 64, 256, 3, 2>;
using ManyWide = WideTile<128, 64, 512, 3, 1>;
static_assert(FewWide::kRows == FewRows::kRows && SomeWide::kRows == SomeRows::kRows &&
              ManyWide::kRows == ManyRows::kRows);

// What a thread has of a tile's sums.
template <typename Shape>
using WideSums = float[Shape::kDown][Shape::kAcross];

STEMMA_ON_DEVICE int wide_word_place(int row, int word) {
  return row * kWideRowWords + (word ^ (row & 7));
}

// Begins the copies of piece `piece` of the tile's rows of x and of w to `stage`. x_rows: see
// copies_of.
template <typename T, typename Shape, typename Rows>
STEMMA_ON_DEVICE void fetch_wide_piece(const TileOperands<T, float>& from, const Rows& x_rows,
                                       std::int64_t piece, Words* stage) {
  const int word = thread_index() % kRowWords;
  const std::int64_t column = piece * kTileK + word * kWordElements;
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kCopiedRows; ++i) {
    const std::int64_t row = x_rows(i);
    const bool wanted = row >= 0 && column < from.k;
    copy_words_later(stage + word_place(copied_row<Shape>(i), word),
                     wanted ? from.x + row * from.x_stride + column : from.x, wanted);
  }
  Words* const w = stage + Shape::kRows * kRowWords;
  const int w_word = thread_index() % kWideRowWords;
  const std::int64_t w_column = piece * kTileK + w_word * 4;
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kColumns / Shape::kWideStepRows; ++i) {
    const int row = thread_index() / kWideRowWords + i * Shape::kWideStepRows;
    const bool wanted = row < from.w_rows && w_column < from.k;
    copy_words_later(w + wide_word_place(row, w_word),
                     wanted ? from.w + row * from.w_stride + w_column : from.w, wanted);
  }
}

template <typename T>
STEMMA_ON_DEVICE void widen_words(const Words& words, float (&values)[kWordElements]) {
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = widen(T{static_cast<std::uint16_t>(words.w[i])});
    values[2 * i + 1] = widen(T{static_cast<std::uint16_t>(words.w[i] >> 16)});
  }
}

// Adds the products of one piece to the thread's part of the tile.
template <typename T, typename Shape>
STEMMA_ON_DEVICE void add_wide_piece(const Words* stage, WideSums<Shape>& sums) {
  const Words* const w = stage + Shape::kRows * kRowWords;
  const int down = thread_index() / 16;
  const int across = thread_index() % 16;
  for (int word = 0; word < kRowWords; ++word) {
    float x[Shape::kDown][kWordElements];
    STEMMA_UNROLLED
    for (int i = 0; i < Shape::kDown; ++i) {
      widen_words<T>(stage[word_place(down + i * Shape::kThreadsDown, word)], x[i]);
    }
    STEMMA_UNROLLED
    for (int j = 0; j < Shape::kAcross; ++j) {
      const Words low = w[wide_word_place(across + 16 * j, 2 * word)];
      const Words high = w[wide_word_place(across + 16 * j, 2 * word + 1)];
      STEMMA_UNROLLED
      for (int k = 0; k < kWordElements; ++k) {
        const float weight = word_as_float(k < 4 ? low.w[k] : high.w[k - 4]);
        STEMMA_UNROLLED
        for (int i = 0; i < Shape::kDown; ++i) sums[i][j] = fused(x[i][k], weight, sums[i][j]);
      }
    }
  }
}

// Adds all of a tile's products to `sums`. x_rows: see copies_of.
template <typename T, typename Shape, typename Rows>
STEMMA_ON_DEVICE void sum_wide_tile(const TileOperands<T, float>& from, const Rows& x_rows,
                                    WideSums<Shape>& sums) {
  Words* const stages = reinterpret_cast<Words*>(shared_memory());
  const std::int64_t pieces = (from.k + kTileK - 1) / kTileK;
  for (int piece = 0; piece < Shape::kStages - 1; ++piece) {
    if (piece < pieces) {
      fetch_wide_piece<T, Shape>(from, x_rows, piece, stages + piece * Shape::kStageWords);
    }
    commit_copies();
  }
  int stage = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    wait_copies<Shape::kStages - 2>();
    team_barrier();  // all copies of this piece are there, and nobody reads the one before it
    const std::int64_t next = piece + Shape::kStages - 1;
    const int next_stage = stage == 0 ? Shape::kStages - 1 : stage - 1;
    if (next < pieces) {
      fetch_wide_piece<T, Shape>(from, x_rows, next, stages + next_stage * Shape::kStageWords);
    }
    commit_copies();
    add_wide_piece<T, Shape>(stages + stage * Shape::kStageWords, sums);
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
}

// As store_tile.
template <typename Y, typename Shape, typename Rows>
STEMMA_ON_DEVICE void store_wide_tile(const WideSums<Shape>& sums, const Rows& y_rows,
                                      const TileTarget<Y>& to, std::int64_t column0) {
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kDown; ++i) {
    const std::int64_t row = y_rows(thread_index() / 16 + i * Shape::kThreadsDown);
    if (row < 0) continue;
    STEMMA_UNROLLED
    for (int j = 0; j < Shape::kAcross; ++j) {
      const std::int64_t column = column0 + thread_index() % 16 + 16 * j;
      if (column < to.n) to.y[row * to.stride + column] = narrow<Y>(sums[i][j]);
    }
  }
}

}  // namespace stemma
