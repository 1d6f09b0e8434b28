// Tiles of products with rounded weights: a team multiplies some rows of x with some outputs of w,
// whose codes and scales lie in strips (rounded_strips.h).
//
// Codes are whole numbers of at most 8 bits, which are exact in T: tensor cores multiply them with
// x. A group of 64 inputs is summed from zero, in steps of 16; what it comes to is added to the
// value's sum, times the group's scale if codes have 4 bits, by one f32 operation, group after
// group. Codes of 8 bits have their one scale in the end. So it is in all tiles: a value has the
// same bits whichever computes it, and wherever in it.
//
// Two kinds of tiles. Of few rows a team's warps share the inputs out: each takes one of kSplits
// groups of all its outputs, so that few outputs keep many warps busy; the groups' sums meet in
// shared memory, where they are added in order while the next ones are computed. Of more rows each
// warp has rows and outputs of its own, and their sums in registers.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; all threads of the team take part.
// Memory:     shared memory of the team: shared_bytes of its shape.
// Cost:       of few rows the time to read the codes; of many that of gemm_tiles_cuda.h, and about
//             an instruction and a half for each code and kRows rows.
// Not here:   which rows there are (rounded_gemm_cuda, cuda/experts_cuda), f32
// (rounded_plain_cuda).
#pragma once

#include <cstdint>

#include "device/cuda_dialect.h"
#include "device/gemm_tiles_cuda.h"
#include "device/rounded_codes_cuda.h"
#include "device/rounded_stage_cuda.h"
#include "device/rounded_strips.h"

namespace stemma {

// Where a tile goes: rows of `n` values, the tile's first output in column column0.
struct RoundedTarget {
  void* y;
  bool f32_out;   // else of T
  bool in_pairs;  // n and the stride are even, and every row is aligned to two values
  std::int64_t n;
  std::int64_t stride;
  std::int64_t column0;
};
template <typename T>
STEMMA_ON_DEVICE void store_rounded(const RoundedTarget& to, std::int64_t row, int output,
                                    float value) {
  if (to.column0 + output >= to.n) return;
  const std::int64_t place = row * to.stride + to.column0 + output;
  if (to.f32_out) {
    static_cast<float*>(to.y)[place] = value;
  } else {
    static_cast<T*>(to.y)[place] = narrow<T>(value);
  }
}

// The scale of one of a tile's outputs of 8 bits; of one behind the last any.
template <typename T>
STEMMA_ON_DEVICE float int8_scale(const RoundedOperands<T>& from, int output) {
  if (output >= from.outputs) return 0;
  return scale_of(from.strips, from.k, output);
}

// ---- Warps that have rows and outputs of their own.

template <CodeForm kForm, typename Shape>
STEMMA_ON_DEVICE void add_group(const Words* stage, const GroupSums<Shape>& group,
                                GroupSums<Shape>& sums) {
  const int strip = own_output<Shape>() / RoundedStrips::kOutputs;
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kOutputs16; ++i) {
    float scales[2] = {};
    if constexpr (kForm != CodeForm::kInt8) {
      STEMMA_UNROLLED
      for (int half = 0; half < 2; ++half) {
        scales[half] = int4_scale(staged_group<kForm, Shape>(stage, strip + 2 * i + half, 0),
                                  lane_index() / 4);
      }
    }
    STEMMA_UNROLLED
    for (int j = 0; j < Shape::kRows8; ++j) {
      STEMMA_UNROLLED
      for (int value = 0; value < 4; ++value) {
        sums[i][j][value] =
            with_group<kForm>(sums[i][j][value], group[i][j][value], scales[value / 2]);
      }
    }
  }
}

// Writes the tile, whose sums lie in shared memory, two neighbours of a row at a time. y_rows(row):
// where the tile's row `row` goes; below 0: nowhere.
template <CodeForm kForm, typename T, typename Shape, typename Rows>
STEMMA_ON_DEVICE void store_sums(const RoundedOperands<T>& from, const float* sums,
                                 const Rows& y_rows, const RoundedTarget& to) {
  for (int pair = thread_index(); pair < Shape::kRows * Shape::kOutputs / 2;
       pair += Shape::kThreads) {
    const int output = pair % (Shape::kOutputs / 2) * 2;
    const int tile_row = pair / (Shape::kOutputs / 2);
    const std::int64_t row = y_rows(tile_row);
    if (row < 0 || to.column0 + output >= to.n) continue;
    float values[2];
    STEMMA_UNROLLED
    for (int i = 0; i < 2; ++i) {
      values[i] = sums[tile_row * Shape::kSumsStride + output + i];
      if constexpr (kForm == CodeForm::kInt8) values[i] *= int8_scale(from, output + i);
    }
    const std::int64_t column = to.column0 + output;
    if (to.f32_out) {
      store_two(TileTarget<float>{static_cast<float*>(to.y), to.n, to.stride, to.in_pairs}, row,
                column, values[0], values[1]);
    } else {
      store_two(TileTarget<T>{static_cast<T*>(to.y), to.n, to.stride, to.in_pairs}, row, column,
                values[0], values[1]);
    }
  }
}

template <CodeForm kForm, typename T, typename Shape, TileTurn kTurn, typename XRows,
          typename YRows>
STEMMA_ON_DEVICE void multiply_whole(const RoundedOperands<T>& from, const XRows& x_rows,
                                     const YRows& y_rows, const RoundedTarget& to) {
  constexpr int kStages = Shape::stages(kForm);
  constexpr int kStageWords = Shape::stage_words(kForm);
  Words* const stages = reinterpret_cast<Words*>(shared_memory());
  auto copies = copies_of<kForm, T, Shape>(from, x_rows);
  const std::uint32_t ones = ones_of<T>(from.k);
  const GroupPlaces places = places_of<kForm, Shape>(0);
  const int groups = static_cast<int>(RoundedStrips::groups(from.k));
  fetch_first<kForm, T, Shape, kTurn>(copies, stages, kStages - 1, groups);
  GroupSums<Shape> sums = {};
  int stage = 0;
  for (int group = 0; group < groups; ++group) {
    wait_copies<kStages - 2>();
    team_barrier();  // all copies of this group are there, and nobody reads the one before it
    const int next_stage = stage == 0 ? kStages - 1 : stage - 1;
    if (group + kStages - 1 < groups) fetch_stage(copies, stages + next_stage * kStageWords);
    commit_copies();
    GroupSums<Shape> own = {};
    sum_group<kForm, T, Shape>(stages + stage * kStageWords, places, ones, own);
    add_group<kForm, Shape>(stages + stage * kStageWords, own, sums);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  team_barrier();  // nobody reads what was copied any more
  float* const rows = reinterpret_cast<float*>(shared_memory());
  stage_sums<Shape>(sums, rows);
  team_barrier();
  store_sums<kForm, T, Shape>(from, rows, y_rows, to);
}

// ---- Warps that share the inputs out.

// The thread's values of the tile: neighbours of one row, one or four.
template <typename Shape>
inline constexpr int kOwnValues = Shape::kRows * Shape::kOutputs / Shape::kThreads;
template <typename Shape>
using OwnValues = float[kOwnValues<Shape>];

// The first of the thread's outputs, and their row.
template <typename Shape>
STEMMA_ON_DEVICE int first_output() {
  return thread_index() * kOwnValues<Shape> % Shape::kOutputs;
}
template <typename Shape>
STEMMA_ON_DEVICE int values_row() {
  return thread_index() * kOwnValues<Shape> / Shape::kOutputs;
}

STEMMA_ON_DEVICE void load_own(const float* from, float (&values)[1]) {
  values[0] = *from;
}
STEMMA_ON_DEVICE void load_own(const float* from, float (&values)[4]) {
  const Words words = load_words(from);
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) values[i] = word_as_float(words.w[i]);
}
// The scales of outputs from `output` on of a group of 4 bits.
STEMMA_ON_DEVICE void load_scales(const std::byte* group, int output, float (&scales)[1]) {
  scales[0] = int4_scale(group, output);
}
STEMMA_ON_DEVICE void load_scales(const std::byte* group, int output, float (&scales)[4]) {
  const std::byte* const from = group + RoundedStrips::code_bytes(CodeForm::kInt4) + 2 * output;
  const TwoWords words = *reinterpret_cast<const TwoWords*>(from);
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = words.w[i / 2];
    scales[i] = word_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
  }
}

// Adds the sums of a stage's groups, of which there are `groups`, in order. `rows`: of the tile.
template <CodeForm kForm, typename Shape>
STEMMA_ON_DEVICE void add_groups(const Words* stage, const float* group_sums, int groups, int rows,
                                 OwnValues<Shape>& sums) {
  const int row = values_row<Shape>();
  const int output = first_output<Shape>();
  if (row >= rows) return;
  STEMMA_UNROLLED
  for (int group = 0; group < Shape::kSplits; ++group) {
    if (group >= groups) break;
    float own[kOwnValues<Shape>];
    float scales[kOwnValues<Shape>] = {};
    load_own(group_sums + (group * Shape::kRows + row) * Shape::kSumsStride + output, own);
    if constexpr (kForm != CodeForm::kInt8) {
      load_scales(staged_group<kForm, Shape>(stage, output / RoundedStrips::kOutputs, group),
                  output % RoundedStrips::kOutputs, scales);
    }
    STEMMA_UNROLLED
    for (int i = 0; i < kOwnValues<Shape>; ++i) {
      sums[i] = with_group<kForm>(sums[i], own[i], scales[i]);
    }
  }
}

template <CodeForm kForm, typename T, typename Shape, typename Rows>
STEMMA_ON_DEVICE void store_own(const RoundedOperands<T>& from, const OwnValues<Shape>& sums,
                                int rows, const Rows& y_rows, const RoundedTarget& to) {
  const int row = values_row<Shape>();
  if (row >= rows) return;
  const std::int64_t y_row = y_rows(row);
  STEMMA_UNROLLED
  for (int i = 0; i < kOwnValues<Shape>; ++i) {
    const int output = first_output<Shape>() + i;
    const float scale = kForm == CodeForm::kInt8 ? int8_scale(from, output) : 1.0f;
    store_rounded<T>(to, y_row, output, sums[i] * scale);
  }
}

// A stage's sums are added, and its scales read, while the next one's are made: so a stage is free
// for copies one turn later than it would be.
template <CodeForm kForm, typename T, typename Shape, TileTurn kTurn, typename XRows,
          typename YRows>
STEMMA_ON_DEVICE void multiply_split(const RoundedOperands<T>& from, const XRows& x_rows, int rows,
                                     const YRows& y_rows, const RoundedTarget& to) {
  constexpr int kStages = Shape::stages(kForm);
  constexpr int kStageWords = Shape::stage_words(kForm);
  constexpr int kSplits = Shape::kSplits;
  constexpr int kGroupValues = Shape::kRows * Shape::kSumsStride;
  Words* const stages = reinterpret_cast<Words*>(shared_memory());
  float* const group_sums = reinterpret_cast<float*>(shared_memory() + Shape::sums_at(kForm));
  auto copies = copies_of<kForm, T, Shape>(from, x_rows);
  const std::uint32_t ones = ones_of<T>(from.k);
  const int groups = static_cast<int>(RoundedStrips::groups(from.k));
  const int pieces = (groups + kSplits - 1) / kSplits;
  const int split = warp_index() / Shape::kPlaneWarps;
  const GroupPlaces places = places_of<kForm, Shape>(split);
  fetch_first<kForm, T, Shape, kTurn>(copies, stages, kStages - 2, pieces);
  OwnValues<Shape> sums = {};
  int stage = 0;
  int before = kStages - 1;  // the stage of the piece before
  int next = kStages - 2;    // the one that was read two pieces ago
  for (int piece = 0; piece < pieces; ++piece) {
    wait_copies<kStages - 3>();
    team_barrier();  // copies of this piece and sums of the one before are there
    if (piece + kStages - 2 < pieces) {
      fetch_stage(copies, stages + next * kStageWords);
    }
    commit_copies();
    float* const own_half = group_sums + piece % 2 * kSplits * kGroupValues;
    float* const other_half = group_sums + (1 - piece % 2) * kSplits * kGroupValues;
    if (piece * kSplits + split < groups) {
      GroupSums<Shape> own = {};
      sum_group<kForm, T, Shape>(stages + stage * kStageWords, places, ones, own);
      stage_sums<Shape>(own, own_half + split * kGroupValues);
    }
    if (piece > 0) {
      add_groups<kForm, Shape>(stages + before * kStageWords, other_half, kSplits, rows, sums);
    }
    next = before;
    before = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  team_barrier();
  add_groups<kForm, Shape>(stages + before * kStageWords,
                           group_sums + (pieces - 1) % 2 * kSplits * kGroupValues,
                           groups - (pieces - 1) * kSplits, rows, sums);
  store_own<kForm, T, Shape>(from, sums, rows, y_rows, to);
}

// The tile, of which there are `rows` rows.
template <CodeForm kForm, typename T, typename Shape, TileTurn kTurn = TileTurn::kAtOnce,
          typename XRows, typename YRows>
STEMMA_ON_DEVICE void multiply_rounded(const RoundedOperands<T>& from, const XRows& x_rows,
                                       int rows, const YRows& y_rows, const RoundedTarget& to) {
  if constexpr (Shape::kSplits > 1) {
    multiply_split<kForm, T, Shape, kTurn>(from, x_rows, rows, y_rows, to);
  } else {
    multiply_whole<kForm, T, Shape, kTurn>(from, x_rows, y_rows, to);
  }
}

}  // namespace stemma
