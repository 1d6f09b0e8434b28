// The GEMM kernels. Written from the definition; the reference twin in double is in gemm_test.cc.
//
// Both paths keep one accumulator for each output and feed it k = 0, 1, ..., K-1 in that order,
// with the same fused multiply-add, which is all that I13 needs:
//
//   one row    a panel's kPanelColumns accumulators live in registers while the panel streams by
//              once.
//   more rows  K is walked in slices of kSliceDepth. A slice of a panel meets the rows, a tile of
//              kTileRows x (kTileVectors vectors) at a time. Where one tile holds all rows, weights
//              become f32 (exactly) in registers; where more do, once for all of them, in a room.
//              Between slices the accumulators rest in C, which is f32 too and so changes nothing.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/float16.h"
#include "device/gemm_kernel.h"
#include "device/packed_weights.h"
#include "device/prefetch.h"
#include "device/simd_targets.h"  // before Highway
#include "device/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/gemm_cpu.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/load_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr D kD;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr int kPanelColumns = static_cast<int>(PackedWeights::kPanelColumns);
constexpr int kPanelVectors = kPanelColumns / kLanes;

// With these, a tile's weights (kSliceDepth x kTileColumns f32) and activations stay in a
// first-level cache of 32 KiB, a task's activations in a second-level cache.
constexpr int kSliceDepth = 128;
constexpr int kSliceRowsMax = static_cast<int>(kGemmTaskRowsMax);
constexpr std::int64_t kLineBytes = 64;
// How far ahead of its use one row's path asks for a weight.
constexpr std::int64_t kPrefetchBytes = 2048;

// A tile's accumulators, one step's weights and a broadcast fill the register file and no more: 12
// x 2 of 32, 6 x 2 of 16.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kTileRows = 12;
constexpr int kTileVectors = 2;
#else
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
#endif
constexpr int kTileColumns = kTileVectors * kLanes;
// So few rows can have tiles of twice the width.
constexpr int kWideRows = kTileRows / 2;

// Weights in the room: another type than the panel's even where that is f32.
struct Expanded {
  float value;
};

HWY_INLINE V load_weights(const Expanded* from) {
  return hn::Load(kD, &from->value);
}
template <typename T>
HWY_INLINE V load_weights(const T* from) {
  return load_f32(kD, from);
}

// While it multiplies, a tile asks for memory that is needed next, one line a step.
struct Ahead {
  const std::byte* from = nullptr;
  std::int64_t step_bytes = 0;
};

template <typename T>
struct Tile {
  const float* a = nullptr;  // [rows, depth], kSliceDepth values apart
  const T* b = nullptr;      // [depth, columns of the tile], kStride values apart
  std::int64_t depth = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  bool first = false;                   // of K's slices
  const float* bias_or_null = nullptr;  // on the last of K's slices
  Ahead ahead;
};

template <int kRows, int kVectors>
using Sums = V[std::size_t{kRows}][std::size_t{kVectors}];

// One step along K. What there is less of stays in registers, weights or activations.
template <int kRows, int kVectors, typename T>
HWY_INLINE void multiply_step(const float* a, const T* b, Sums<kRows, kVectors>& sums) {
  if constexpr (kRows < kVectors) {
    V values[std::size_t{kRows}];
    STEMMA_UNROLL
    for (int row = 0; row < kRows; ++row) values[row] = hn::Set(kD, a[row * kSliceDepth]);
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V weights = load_weights(b + v * kLanes);
      STEMMA_UNROLL
      for (int row = 0; row < kRows; ++row) {
        sums[row][v] = hn::MulAdd(weights, values[row], sums[row][v]);
      }
    }
  } else {
    V weights[std::size_t{kVectors}];
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) weights[v] = load_weights(b + v * kLanes);
    STEMMA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const V value = hn::Set(kD, a[row * kSliceDepth]);
      STEMMA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[row][v] = hn::MulAdd(weights[v], value, sums[row][v]);
      }
    }
  }
}

// c = (first ? 0 : c) + a · b, + bias at the end
template <typename T, int kStride, int kRows, int kVectors>
HWY_NOINLINE void multiply_tile(const Tile<T>& tile) {
  Sums<kRows, kVectors> sums;
  STEMMA_UNROLL
  for (int row = 0; row < kRows; ++row) {
    float* const c = tile.c + row * tile.c_stride;
    hwy::Prefetch(c);
    hwy::Prefetch(c + kVectors * kLanes - 1);
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[row][v] = tile.first ? hn::Zero(kD) : hn::LoadU(kD, c + v * kLanes);
    }
  }
  const float* a = tile.a;
  const T* b = tile.b;
  const std::byte* ahead = tile.ahead.from;
  for (const float* const a_end = a + tile.depth; a != a_end; ++a) {
    prefetch_soon(ahead);
    ahead += tile.ahead.step_bytes;
    multiply_step<kRows, kVectors>(a, b, sums);
    b += kStride;
  }
  STEMMA_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const bool biased = tile.bias_or_null != nullptr;
    const V bias = biased ? hn::Load(kD, tile.bias_or_null + v * kLanes) : hn::Zero(kD);
    STEMMA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const V sum = biased ? hn::Add(sums[row][v], bias) : sums[row][v];
      hn::StoreU(sum, kD, tile.c + row * tile.c_stride + v * kLanes);
    }
  }
}

// The instance for `rows` from kLeast to kRows.
template <typename T, int kStride, int kLeast, int kRows, int kVectors>
void multiply_rows(std::int64_t rows, const Tile<T>& tile) {
  if constexpr (kRows > kLeast) {
    if (rows < kRows) {
      return multiply_rows<T, kStride, kLeast, kRows - 1, kVectors>(rows, tile);
    }
  }
  multiply_tile<T, kStride, kRows, kVectors>(tile);
}

// A tile that reaches beyond the last column of C works on a copy that has room for it.
template <typename T, int kStride, int kLeast, int kRows, int kVectors>
void multiply_edge(std::int64_t rows, std::int64_t columns, Tile<T> tile) {
  constexpr std::int64_t kColumns = std::int64_t{kVectors} * kLanes;
  HWY_ALIGN float room[std::size_t{kRows} * kColumns] = {};
  float* const c = tile.c;
  const std::int64_t c_stride = tile.c_stride;
  const auto column_bytes = static_cast<std::size_t>(columns) * sizeof(float);
  if (!tile.first) {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::memcpy(room + row * kColumns, c + row * c_stride, column_bytes);
    }
  }
  tile.c = room;
  tile.c_stride = kColumns;
  multiply_rows<T, kStride, kLeast, kRows, kVectors>(rows, tile);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(c + row * c_stride, room + row * kColumns, column_bytes);
  }
}

// kTileColumns of a panel's columns, `depth` deep, to f32: [depth, kTileColumns].
template <typename T>
void expand_columns(const T* weights, std::int64_t depth, float* out) {
  for (std::int64_t i = 0; i < depth; ++i) {
    STEMMA_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      hn::Store(load_f32(kD, weights + v * kLanes), kD, out + v * kLanes);
    }
    weights += kPanelColumns;
    out += kTileColumns;
  }
}

// One panel of a task: where its outputs go, how many they are, and its bias, padded.
struct PanelOutput {
  float* c = nullptr;
  std::int64_t columns = 0;
  const float* bias_or_null = nullptr;
};

// A stretch of K: its activations [rows, kSliceDepth], the weights of one panel [depth,
// kPanelColumns].
template <typename T>
struct Slice {
  std::int64_t k0 = 0;
  std::int64_t depth = 0;
  const float* a = nullptr;
  const T* weights = nullptr;
  const T* next_weights = nullptr;  // those of the slice after this one
};

// All rows of a task against one slice of one panel, in tiles of kLeast to kRows rows and kVectors:
// from the panel itself, or from `expanded`, room for [kSliceDepth, kTileColumns].
template <typename T, typename From, int kLeast, int kRows, int kVectors>
void multiply_slice(const GemmTask& task, const PanelOutput& out, const Slice<T>& slice,
                    float* expanded) {
  constexpr bool kExpands = !std::is_same_v<From, T>;
  constexpr int kColumns = kVectors * kLanes;
  constexpr int kStride = kExpands ? kColumns : kPanelColumns;
  const std::int64_t tiles = (task.rows + kRows - 1) / kRows;
  const std::int64_t tile_rows = (task.rows + tiles - 1) / tiles;
  const bool last = slice.k0 + slice.depth == task.k;
  Tile<From> tile;
  tile.depth = slice.depth;
  tile.c_stride = task.c_stride;
  tile.first = slice.k0 == 0;
  // Evenly over all tiles: what is asked for faster than memory delivers only stands in the way.
  constexpr std::int64_t kStepBytes = kPanelColumns * static_cast<std::int64_t>(sizeof(T));
  tile.ahead.from = reinterpret_cast<const std::byte*>(slice.next_weights);
  tile.ahead.step_bytes =
      std::max<std::int64_t>(1, kStepBytes / (kPanelColumns / kColumns * tiles));
  for (std::int64_t column = 0; column < out.columns; column += kColumns) {
    if constexpr (kExpands) {
      expand_columns(slice.weights + column, slice.depth, expanded);
      tile.b = reinterpret_cast<const Expanded*>(expanded);
    } else {
      tile.b = slice.weights + column;
    }
    tile.bias_or_null = last && out.bias_or_null != nullptr ? out.bias_or_null + column : nullptr;
    for (std::int64_t row = 0; row < task.rows; row += tile_rows) {
      const std::int64_t rows = std::min(tile_rows, task.rows - row);
      tile.a = slice.a + row * kSliceDepth;
      tile.c = out.c + row * task.c_stride + column;
      if (column + kColumns <= out.columns) {
        multiply_rows<From, kStride, kLeast, kRows, kVectors>(rows, tile);
      } else {
        multiply_edge<From, kStride, kLeast, kRows, kVectors>(rows, out.columns - column, tile);
      }
      tile.ahead.from += tile.ahead.step_bytes * slice.depth;
    }
  }
}

template <typename T>
void multiply_any_rows(const GemmTask& task, const PanelOutput& out, const Slice<T>& slice,
                       float* expanded) {
  if (task.rows <= kWideRows) {
    return multiply_slice<T, T, 2, kWideRows, 2 * kTileVectors>(task, out, slice, expanded);
  }
  if (task.rows <= kTileRows) {
    return multiply_slice<T, T, kWideRows + 1, kTileRows, kTileVectors>(task, out, slice, expanded);
  }
  multiply_slice<T, Expanded, 1, kTileRows, kTileVectors>(task, out, slice, expanded);
}

// One row against one panel.
template <typename T>
void multiply_row(const GemmTask& task, const T* weights, const PanelOutput& out) {
  constexpr std::int64_t kStepBytes = kPanelColumns * static_cast<std::int64_t>(sizeof(T));
  V sums[kPanelVectors];
  STEMMA_UNROLL
  for (V& sum : sums) sum = hn::Zero(kD);
  for (std::int64_t i = 0; i < task.k; ++i) {
    const V value = hn::Set(kD, task.a[i]);
    const auto* const ahead = reinterpret_cast<const std::byte*>(weights) + kPrefetchBytes;
    STEMMA_UNROLL
    for (std::int64_t line = 0; line < kStepBytes; line += kLineBytes) prefetch_soon(ahead + line);
    STEMMA_UNROLL
    for (int v = 0; v < kPanelVectors; ++v) {
      sums[v] = hn::MulAdd(load_f32(kD, weights + v * kLanes), value, sums[v]);
    }
    weights += kPanelColumns;
  }
  HWY_ALIGN float outputs[kPanelColumns];
  STEMMA_UNROLL
  for (int v = 0; v < kPanelVectors; ++v) {
    const bool biased = out.bias_or_null != nullptr;
    const V sum = biased ? hn::Add(sums[v], hn::Load(kD, out.bias_or_null + v * kLanes)) : sums[v];
    hn::Store(sum, kD, outputs + v * kLanes);
  }
  std::memcpy(out.c, outputs, static_cast<std::size_t>(out.columns) * sizeof(float));
}

// The part of a task that lies in its panel `index`. `padded_bias` has room for a panel's.
PanelOutput panel_output(const GemmTask& task, std::int64_t column, float* padded_bias) {
  PanelOutput out;
  out.c = task.c + column;
  out.columns = std::min<std::int64_t>(kPanelColumns, task.columns - column);
  if (task.bias_or_null == nullptr) return out;
  std::fill_n(padded_bias, kPanelColumns, 0.0f);
  std::copy_n(task.bias_or_null + column, out.columns, padded_bias);
  out.bias_or_null = padded_bias;
  return out;
}

template <typename T>
void run_one_row(const GemmTask& task) {
  const T* panel = reinterpret_cast<const T*>(task.panels);
  HWY_ALIGN float bias[kPanelColumns];
  for (std::int64_t column = 0; column < task.columns; column += kPanelColumns) {
    multiply_row(task, panel, panel_output(task, column, bias));
    panel += task.k * kPanelColumns;
  }
}

// What a task works in: 115 KiB of its thread's stack.
struct Room {
  HWY_ALIGN float a[kSliceRowsMax * kSliceDepth];  // [slices, rows, kSliceDepth]
  HWY_ALIGN float b[kSliceDepth * kTileColumns];
  HWY_ALIGN float bias[kPanelColumns];
};

// As many slices of K as fit Room::a with all rows of the task.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Rows of one slice lie at a distance that no cache maps to one place.
void gather_activations(const GemmTask& task, const Stretch& stretch, float* out) {
  for (std::int64_t k0 = stretch.begin; k0 < stretch.end; k0 += kSliceDepth) {
    const std::int64_t depth = std::min<std::int64_t>(kSliceDepth, stretch.end - k0);
    for (std::int64_t row = 0; row < task.rows; ++row) {
      std::memcpy(out, task.a + row * task.a_stride + k0,
                  static_cast<std::size_t>(depth) * sizeof(float));
      out += kSliceDepth;
    }
  }
}

// All rows of a task against one stretch of one panel; `next` is where the weights go on after it.
template <typename T>
void multiply_stretch(const GemmTask& task, const Stretch& stretch, std::int64_t column,
                      const T* next, Room& room) {
  const auto* const panel = reinterpret_cast<const T*>(task.panels) + task.k * column;
  const PanelOutput out = panel_output(task, column, room.bias);
  Slice<T> slice;
  slice.a = room.a;
  for (slice.k0 = stretch.begin; slice.k0 < stretch.end; slice.k0 += kSliceDepth) {
    slice.depth = std::min<std::int64_t>(kSliceDepth, stretch.end - slice.k0);
    slice.weights = panel + slice.k0 * kPanelColumns;
    const bool last = slice.k0 + slice.depth == stretch.end;
    slice.next_weights = last ? next : slice.weights + slice.depth * kPanelColumns;
    multiply_any_rows(task, out, slice, room.b);
    slice.a += task.rows * kSliceDepth;
  }
}

// Stretches run slowest: their activations stay near while all panels of the task meet them. Many
// rows fill the room with one slice; few rows take K whole, and their weights stream from end to
// end.
template <typename T>
void run_rows(const GemmTask& task) {
  Room room;
  const auto* const panels = reinterpret_cast<const T*>(task.panels);
  const std::int64_t stretch_depth = kSliceRowsMax / task.rows * kSliceDepth;
  for (Stretch stretch; stretch.begin < task.k; stretch.begin = stretch.end) {
    stretch.end = std::min(stretch.begin + stretch_depth, task.k);
    gather_activations(task, stretch, room.a);
    for (std::int64_t column = 0; column < task.columns; column += kPanelColumns) {
      const bool last = column + kPanelColumns >= task.columns;
      const T* const next =
          last ? panels + stretch.end * kPanelColumns
               : panels + task.k * (column + kPanelColumns) + stretch.begin * kPanelColumns;
      multiply_stretch(task, stretch, column, next, room);
    }
  }
}

template <typename T>
void run_typed(const GemmTask& task) {
  return task.rows == 1 ? run_one_row<T>(task) : run_rows<T>(task);
}

}  // namespace

void run_gemm_task(const GemmTask& task) {
  switch (task.format) {
    case WeightFormat::kF32:
      return run_typed<float>(task);
    case WeightFormat::kF16:
      return run_typed<Float16>(task);
    case WeightFormat::kBf16:
      return run_typed<BFloat16>(task);
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
    case WeightFormat::kInt4Shifted:
      break;  // gemm_quantised_cpu.cc
  }
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(run_gemm_task);

GemmKernel gemm_kernel() {
  return HWY_DYNAMIC_DISPATCH(run_gemm_task);
}

}  // namespace stemma
#endif  // HWY_ONCE
