// What products with rounded weights have in shared memory: groups of 64 inputs of some rows of x
// and of some strips (rounded_strips.h), copied ahead, and what a warp makes of a group of them.
//
// Codes are the left side of tensor cores' products, 16 outputs of 16 inputs, so that 8 rows of x
// are as many as there must be. They come as codes and become T in registers.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; all threads of the team take part.
// Memory:     shared memory of the team.
// Cost:       see rounded_tiles_cuda.h.
// Not here:   in what order groups are added (rounded_tiles_cuda.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_dialect.h"
#include "device/gemm_tiles_cuda.h"
#include "device/rounded_codes_cuda.h"
#include "device/rounded_strips.h"

namespace stemma {

// How a tile is spread over a team.
template <int kM, int kN, int kWarpsDown, int kWarpsAcross, int kSplitsWanted, int kInt8Stages,
          int kInt4Stages, int kTeamsWanted>
struct RoundedTile {
  static constexpr int kRows = kM;
  static constexpr int kOutputs = kN;
  static constexpr int kAcross = kWarpsAcross;
  static constexpr int kPlaneWarps = kWarpsDown * kWarpsAcross;  // that have the same groups
  static constexpr int kSplits = kSplitsWanted;                  // groups of a stage
  static constexpr int kThreads = kPlaneWarps * kSplits * kWarpThreads;
  static constexpr int kTeams = kTeamsWanted;
  static constexpr int kWarpRows = kM / kWarpsDown;
  static constexpr int kWarpOutputs = kN / kWarpsAcross;
  static constexpr int kRows8 = kWarpRows / 8;
  static constexpr int kOutputs16 = kWarpOutputs / 16;
  static constexpr int kStrips = kN / RoundedStrips::kOutputs;
  static constexpr int kXRowWords = kRowWords * kSplits;
  static constexpr int kXWords = kM * kXRowWords;
  static constexpr int kStepRows = kThreads / kXRowWords;  // of x, that the team copies at a time
  static constexpr int kCopiedRows = kM / kStepRows;       // by one thread
  static constexpr int kSumsStride = kN + 4;               // f32 of a row of sums in shared memory
  static constexpr int kSumsBytes = 4 * kM * kSumsStride;

  static constexpr int stages(CodeForm form) {
    return form == CodeForm::kInt8 ? kInt8Stages : kInt4Stages;
  }
  static constexpr int group_words(CodeForm form) { return RoundedStrips::group_bytes(form) / 16; }
  static constexpr int stage_words(CodeForm form) {
    return kXWords + kStrips * kSplits * group_words(form);
  }
  static constexpr int sums_at(CodeForm form) { return 16 * stages(form) * stage_words(form); }
  static constexpr std::size_t shared_bytes(CodeForm form) {
    if (kSplits > 1) return static_cast<std::size_t>(sums_at(form) + 2 * kSplits * kSumsBytes);
    return static_cast<std::size_t>(sums_at(form) > kSumsBytes ? sums_at(form) : kSumsBytes);
  }
  static_assert(kM % kStepRows == 0 && kThreads % kXRowWords == 0);
  static_assert(kWarpOutputs % 16 == 0 && (kWarpRows == 8 || kWarpRows % 16 == 0));
};
using FewRounded = RoundedTile<8, 32, 1, 1, 8, 6, 5, 1>;
using Rounded16 = RoundedTile<16, 64, 1, 2, 4, 5, 6, 1>;
// The same of GPUs whose teams have less room: fewer stages, and outputs.
using SmallFewRounded = RoundedTile<8, 32, 1, 1, 8, 3, 4, 1>;
using SmallRounded16 = RoundedTile<16, 32, 1, 1, 4, 4, 5, 1>;
using SomeRounded = RoundedTile<64, 64, 2, 2, 1, 5, 5, 3>;
using ManyRounded = RoundedTile<128, 128, 2, 4, 1, 5, 5, 1>;

// What a tile reads: rows of x, which the caller names, and strips from the tile's first on.
template <typename T>
struct RoundedOperands {
  const T* x;
  const std::byte* strips;
  std::int64_t outputs;  // from the tile's first on
  std::int64_t k;
  std::int64_t x_stride;  // elements from one row of x to the next
};
template <CodeForm kForm, typename T>
STEMMA_ON_DEVICE const std::byte* strip_of(const RoundedOperands<T>& from, std::int64_t strip) {
  return from.strips + strip * RoundedStrips::strip_bytes(kForm, from.k);
}

// Where word `word` of row `row` lies in a group of x.
template <typename Shape>
STEMMA_ON_DEVICE int x_place(int group, int row, int word) {
  return group * Shape::kRows * kRowWords + word_place(row, word);
}

// The tile's row of x that the thread's copy `i` is of.
template <typename Shape>
STEMMA_ON_DEVICE int rounded_row(int i) {
  return thread_index() / Shape::kXRowWords + i * Shape::kStepRows;
}

// The strip's group in a stage.
template <CodeForm kForm, typename Shape>
STEMMA_ON_DEVICE const std::byte* staged_group(const Words* stage, int strip, int group) {
  return reinterpret_cast<const std::byte*>(
      stage + Shape::kXWords + (strip * Shape::kSplits + group) * Shape::group_words(kForm));
}

// What the thread copies to each stage, and from where the next time: words of x and of codes.
template <CodeForm kForm, typename T, typename Shape>
struct RoundedCopies {
  static constexpr int kGroupWords = Shape::group_words(kForm);
  static constexpr int kStripWords = Shape::kSplits * kGroupWords;
  static constexpr int kWords = Shape::kStrips * kStripWords;
  static constexpr std::size_t kCodes = std::size_t{kWords + Shape::kThreads - 1} / Shape::kThreads;

  const T* x[Shape::kCopiedRows];
  int places[Shape::kCopiedRows];  // of them in a stage
  std::uint32_t rows;              // bit i: x[i] is one
  const std::byte* codes[kCodes];
  int inputs[kCodes];  // of the stage, before the group of codes[i]; INT32_MAX: there is none
  int left;            // inputs from the next stage on
};

// x_rows(i): where the row of the thread's copy i lies in x; below 0: nowhere.
template <CodeForm kForm, typename T, typename Shape, typename Rows>
STEMMA_ON_DEVICE RoundedCopies<kForm, T, Shape> copies_of(const RoundedOperands<T>& from,
                                                          const Rows& x_rows) {
  using Copies = RoundedCopies<kForm, T, Shape>;
  Copies copies;
  const int word = thread_index() % Shape::kXRowWords;
  copies.rows = 0;
  copies.left = static_cast<int>(from.k);
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kCopiedRows; ++i) {
    const std::int64_t row = x_rows(i);
    copies.x[i] = from.x + (row >= 0 ? row : 0) * from.x_stride + word * kWordElements;
    copies.places[i] = x_place<Shape>(word / kRowWords, rounded_row<Shape>(i), word % kRowWords);
    copies.rows |= row >= 0 ? 1u << i : 0u;
  }
  STEMMA_UNROLLED
  for (int i = 0; i < int{Copies::kCodes}; ++i) {
    const int place = i * Shape::kThreads + thread_index();
    const int strip = place / Copies::kStripWords;
    const int own = place % Copies::kStripWords;
    const bool wanted = place < Copies::kWords && strip * RoundedStrips::kOutputs < from.outputs;
    copies.codes[i] = strip_of<kForm>(from, strip) + RoundedStrips::begin_bytes(kForm) + 16 * own;
    copies.inputs[i] = wanted ? own / Copies::kGroupWords * RoundedStrips::kGroup : INT32_MAX;
  }
  return copies;
}

// Begins the copies of the next stage, zeros of what there is not: of its codes, `left` inputs
// being left, and of its rows, after which the stage behind is the next one.
template <CodeForm kForm, typename T, typename Shape>
STEMMA_ON_DEVICE void fetch_codes(RoundedCopies<kForm, T, Shape>& copies, Words* stage, int left) {
  using Copies = RoundedCopies<kForm, T, Shape>;
  Words* const to = stage + Shape::kXWords + thread_index();
  STEMMA_UNROLLED
  for (int i = 0; i < int{Copies::kCodes}; ++i) {
    const int before = i * Shape::kThreads;
    if (before + Shape::kThreads <= Copies::kWords || before + thread_index() < Copies::kWords) {
      copy_words_later(to + before, copies.codes[i], copies.inputs[i] < left);
    }
    copies.codes[i] += Shape::kSplits * RoundedStrips::group_bytes(kForm);
  }
}
template <CodeForm kForm, typename T, typename Shape>
STEMMA_ON_DEVICE void fetch_rows(RoundedCopies<kForm, T, Shape>& copies, Words* stage) {
  constexpr int kInputs = Shape::kSplits * RoundedStrips::kGroup;
  const bool wanted = thread_index() % Shape::kXRowWords * kWordElements < copies.left;
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kCopiedRows; ++i) {
    copy_words_later(stage + copies.places[i], copies.x[i], wanted && (copies.rows >> i & 1) != 0);
    copies.x[i] += kInputs;
  }
  copies.left -= kInputs;
}
template <CodeForm kForm, typename T, typename Shape>
STEMMA_ON_DEVICE void fetch_stage(RoundedCopies<kForm, T, Shape>& copies, Words* stage) {
  fetch_codes(copies, stage, copies.left);
  fetch_rows(copies, stage);
}

// Begins the copies of the first `stages` of as many as there are, and comes to the kernel's turn.
template <CodeForm kForm, typename T, typename Shape, TileTurn kTurn>
STEMMA_ON_DEVICE void fetch_first(RoundedCopies<kForm, T, Shape>& copies, Words* stages, int first,
                                  int all) {
  constexpr int kStageWords = Shape::stage_words(kForm);
  constexpr int kInputs = Shape::kSplits * RoundedStrips::kGroup;
  if constexpr (kTurn == TileTurn::kBehindW) {
    for (int i = 0; i < first && i < all; ++i) {
      fetch_codes(copies, stages + i * kStageWords, copies.left - i * kInputs);
    }
    await_turn();
  }
  for (int i = 0; i < first; ++i) {
    Words* const stage = stages + i * kStageWords;
    if (kTurn == TileTurn::kAtOnce && i < all) fetch_codes(copies, stage, copies.left);
    if (i < all) fetch_rows(copies, stage);
    commit_copies();
  }
}

// What a warp has of a group's sums, and a thread of these: of outputs lane / 4 and 8 more, of rows
// 2 (lane % 4) and the next.
template <typename Shape>
using GroupSums = float[Shape::kOutputs16][Shape::kRows8][4];

template <typename Shape>
STEMMA_ON_DEVICE int own_row() {
  return warp_index() % Shape::kPlaneWarps / Shape::kAcross * Shape::kWarpRows;
}
template <typename Shape>
STEMMA_ON_DEVICE int own_output() {
  return warp_index() % Shape::kAcross * Shape::kWarpOutputs;
}

// Where the thread's codes of a strip lie in a group of it.
template <CodeForm kForm>
STEMMA_ON_DEVICE int own_codes_at() {
  return lane_index() * 2 * bits_of(kForm);
}

// Where the thread finds what it needs of group `group`, from a stage's beginning.
struct GroupPlaces {
  int x;      // in words: its row of the first matrices of x
  int codes;  // in bytes: its codes of the warp's first strip
};
template <CodeForm kForm, typename Shape>
STEMMA_ON_DEVICE GroupPlaces places_of(int group) {
  const int lane = lane_index();
  const bool few = Shape::kRows8 == 1;  // both steps of a pair are loaded at once
  const int row = few ? lane % 8 : own_row<Shape>() + lane % 8 + lane / 16 * 8;
  const int strip = own_output<Shape>() / RoundedStrips::kOutputs;
  return {x_place<Shape>(group, row, few ? lane / 8 : lane / 8 % 2),
          (Shape::kXWords + (strip * Shape::kSplits + group) * Shape::group_words(kForm)) * 16 +
              own_codes_at<kForm>()};
}

// Step `step` of the warp's rows of x. Of 8 rows two steps are loaded at once, in even ones.
template <typename Shape>
STEMMA_ON_DEVICE void load_rows(const Words* stage, const GroupPlaces& places, int step,
                                std::uint32_t (&rows)[Shape::kRows8][4]) {
  const Words* const x = stage + words_behind(places.x, 2 * step);
  if constexpr (Shape::kRows8 == 1) {
    if (step % 2 == 0) load_matrices(rows[0], x);
  } else {
    STEMMA_UNROLLED
    for (int j = 0; j < Shape::kRows8; j += 2) load_matrices(rows[j], x + 8 * j * kRowWords);
  }
}

// The sums of the group of a stage that `places` are of. `ones`: see ones_of.
template <CodeForm kForm, typename T, typename Shape>
STEMMA_ON_DEVICE void sum_group(const Words* stage, const GroupPlaces& places, std::uint32_t ones,
                                GroupSums<Shape>& sums) {
  constexpr int kStripBytes = Shape::kSplits * RoundedStrips::group_bytes(kForm);
  std::uint32_t codes[Shape::kOutputs16][2][kCodeWords<kForm>];
  const std::byte* const first = reinterpret_cast<const std::byte*>(stage) + places.codes;
  std::uint32_t zeros[Shape::kOutputs16][2];
  STEMMA_UNROLLED
  for (int i = 0; i < 2 * Shape::kOutputs16; ++i) {
    load_codes<kForm>(first + i * kStripBytes, codes[i / 2][i % 2]);
    zeros[i / 2][i % 2] =
        int4_zeros<T, kForm>(first + i * kStripBytes - own_codes_at<kForm>(), lane_index() / 4);
  }
  std::uint32_t rows[Shape::kRows8][4];
  STEMMA_UNROLLED
  for (int step = 0; step < RoundedStrips::kGroup / 16; ++step) {
    load_rows<Shape>(stage, places, step, rows);
    STEMMA_UNROLLED
    for (int i = 0; i < Shape::kOutputs16; ++i) {
      std::uint32_t w[4];
      widen_step<T, kForm>(codes[i][0], step, ones, zeros[i][0], w[0], w[2]);
      widen_step<T, kForm>(codes[i][1], step, ones, zeros[i][1], w[1], w[3]);
      STEMMA_UNROLLED
      for (int j = 0; j < Shape::kRows8; ++j) {
        const int half = Shape::kRows8 == 1 ? step % 2 * 2 : j % 2 * 2;
        const std::uint32_t x[2] = {rows[j / 2 * 2][half], rows[j / 2 * 2][half + 1]};
        multiply_add<T>(sums[i][j], w, x);
      }
    }
  }
}

// The place of value `i` of the thread's group sums [.., kRows8, 4] in rows of sums.
template <typename Shape>
STEMMA_ON_DEVICE int sum_place(int i, int j, int value) {
  const int row = own_row<Shape>() + 8 * j + lane_index() % 4 * 2 + value % 2;
  return row * Shape::kSumsStride + own_output<Shape>() + 16 * i + lane_index() / 4 + value / 2 * 8;
}
template <typename Shape>
STEMMA_ON_DEVICE void stage_sums(const GroupSums<Shape>& sums, float* to) {
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kOutputs16; ++i) {
    STEMMA_UNROLLED
    for (int j = 0; j < Shape::kRows8; ++j) {
      STEMMA_UNROLLED
      for (int value = 0; value < 4; ++value) to[sum_place<Shape>(i, j, value)] = sums[i][j][value];
    }
  }
}

}  // namespace stemma
