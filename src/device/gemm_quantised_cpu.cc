// The GEMM kernels of rounded weights. Their arithmetic is in gemm.h, its scalar twin in
// gemm_quantised_test.cc.
//
// A group's dot products are whole numbers, so their order is free; what is not exact, the chain of
// multiply-adds over groups, goes through C, group by group. Both paths therefore agree bit for
// bit:
//
//   few rows   one tile holds them all: codes are widened in registers as they stream by.
//   more rows  a group of a panel is widened to 16 bits once and then meets the rows, a tile at a
//              time.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "device/gemm_kernel.h"
#include "device/packed_weights.h"
#include "device/prefetch.h"
#include "device/simd_targets.h"  // before Highway
#include "device/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/gemm_quantised_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/code_pairs-inl.h"
#include "device/load_f32-inl.h"
#include "device/quantise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr D kD;
constexpr int kPanelColumns = static_cast<int>(PackedWeights::kPanelColumns);
constexpr int kPanelVectors = kPanelColumns / kLanes;
constexpr int kPairs = static_cast<int>(kGroup) / 2;  // of inputs, in a group
constexpr int kRowsMax = static_cast<int>(kGemmTaskRowsMax);

// A tile's sums, a step's weights, an activation and a product fill the register file and no more.
// Instrumented, they would take minutes to compile: small ones compute the same bits.
#if defined(STEMMA_SANITIZED)
constexpr int kTileRows = 3;
#elif HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 6;
#endif
constexpr int kTileVectors = 2;
// So few rows can have tiles of twice the width.
constexpr int kWideRows = kTileRows / 3;

// How many groups ahead of their use codes are asked for: memory takes longer than few rows need
// for one.
constexpr std::int64_t kAheadGroups = 4;

template <class Codes>
constexpr bool is_shifted() {
  return Codes::kFormat == WeightFormat::kInt4Shifted;
}

// While it multiplies, a tile asks for memory that is needed next, one line a load.
struct Ahead {
  const std::byte* from = nullptr;
  std::int64_t step_bytes = 0;
};

// One group of some rows and some of a panel's columns.
struct Tile {
  const std::int32_t* a = nullptr;               // [rows, kPairs], pairs of codes
  const float* a_scales = nullptr;               // [rows]
  const std::int32_t* a_sums_or_null = nullptr;  // [rows], of codes; nullptr: there are no shifts
  const std::byte* codes = nullptr;
  V scales[2 * kTileVectors];
  V32 shifts[2 * kTileVectors];
  float* c = nullptr;
  std::int64_t c_stride = 0;
  bool first = false;                   // of K's groups
  const float* bias_or_null = nullptr;  // on the last of K's groups
  Ahead ahead;
};

template <int kVectors>
using Vectors = V32[std::size_t{kVectors}];
template <int kRows, int kVectors>
using Sums = V32[std::size_t{kRows}][std::size_t{kVectors}];

template <class Codes, int kStep, int kRows, int kVectors>
HWY_INLINE void multiply_pairs(const Vectors<kVectors>& loaded, const std::int32_t* a,
                               Sums<kRows, kVectors>& sums, V32& zero) {
  Vectors<kVectors> weights;
  STEMMA_UNROLL
  for (int v = 0; v < kVectors; ++v) weights[v] = Codes::template pairs<kStep>(loaded[v]);
  STEMMA_UNROLL
  for (int row = 0; row < kRows; ++row) {
    const V32 pair = hn::Set(kD32, a[row * kPairs + kStep]);
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v)
      sums[row][v] = add_dots(sums[row][v], weights[v], pair, zero);
  }
}

// c = (first ? 0 : c) + dot x (scale of weights x scale of activations), + bias at the end
template <int kRows, int kVectors>
HWY_INLINE void add_group(const Tile& tile, const Sums<kRows, kVectors>& sums) {
  STEMMA_UNROLL
  for (int row = 0; row < kRows; ++row) {
    float* const c = tile.c + row * tile.c_stride;
    const V a_scale = hn::Set(kD, tile.a_scales[row]);
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V before = tile.first ? hn::Zero(kD) : hn::LoadU(kD, c + v * kLanes);
      const V dot = hn::ConvertTo(kD, sums[row][v]);
      V sum = hn::MulAdd(dot, hn::Mul(tile.scales[v], a_scale), before);
      if (tile.bias_or_null != nullptr) {
        sum = hn::Add(sum, hn::LoadU(kD, tile.bias_or_null + v * kLanes));
      }
      hn::StoreU(sum, kD, c + v * kLanes);
    }
  }
}

// What shifts add to the dot products of codes.
template <int kRows, int kVectors>
HWY_INLINE void begin_sums(const Tile& tile, Sums<kRows, kVectors>& sums) {
  STEMMA_UNROLL
  for (int row = 0; row < kRows; ++row) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[row][v] = hn::Zero(kD32);
  }
  if (tile.a_sums_or_null == nullptr) return;
  STEMMA_UNROLL
  for (int row = 0; row < kRows; ++row) {
    const V32 a_sum = hn::Set(kD32, tile.a_sums_or_null[row]);
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[row][v] = hn::Mul(tile.shifts[v], a_sum);
  }
}

template <class Codes, int kRows, int kVectors>
HWY_NOINLINE void multiply_tile(const Tile& tile) {
  Sums<kRows, kVectors> sums;
  begin_sums<kRows, kVectors>(tile, sums);
  V32 zero = hn::Zero(kD32);
  const std::int32_t* a = tile.a;
  const std::byte* codes = tile.codes;
  const std::byte* ahead = tile.ahead.from;
  for (int pair = 0; pair < kPairs; pair += Codes::kSteps) {
    prefetch_soon(ahead);
    ahead += tile.ahead.step_bytes;
    Vectors<kVectors> loaded;
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) loaded[v] = Codes::load(codes + v * Codes::kVectorBytes);
    codes += kPanelVectors * Codes::kVectorBytes;
    multiply_pairs<Codes, 0, kRows, kVectors>(loaded, a, sums, zero);
    if constexpr (Codes::kSteps == 4) {
      multiply_pairs<Codes, 1, kRows, kVectors>(loaded, a, sums, zero);
      multiply_pairs<Codes, 2, kRows, kVectors>(loaded, a, sums, zero);
      multiply_pairs<Codes, 3, kRows, kVectors>(loaded, a, sums, zero);
    }
    a += Codes::kSteps;
  }
  add_group<kRows, kVectors>(tile, sums);
}

// The instance for `rows` from kLeast to kRows.
template <class Codes, int kLeast, int kRows, int kVectors>
void multiply_rows(std::int64_t rows, const Tile& tile) {
  if constexpr (kRows > kLeast) {
    if (rows < kRows) return multiply_rows<Codes, kLeast, kRows - 1, kVectors>(rows, tile);
  }
  multiply_tile<Codes, kRows, kVectors>(tile);
}

// A tile that reaches beyond the last column of C works on a copy that has room for it.
template <class Codes, int kLeast, int kRows, int kVectors>
void multiply_edge(std::int64_t rows, std::int64_t columns, Tile tile) {
  constexpr int kColumns = kVectors * kLanes;
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
  multiply_rows<Codes, kLeast, kRows, kVectors>(rows, tile);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(c + row * c_stride, room + row * kColumns, column_bytes);
  }
}

// Groups of K of which all rows of the task fit the room at once, [begin, end).
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

constexpr int kRoomGroups = 4 * kRowsMax;

// What a task works in: about 110 KiB of its thread's stack.
struct Room {
  HWY_ALIGN std::int32_t a[kRoomGroups * kPairs];  // [groups, rows, kPairs]
  float a_scales[kRoomGroups];                     // [groups, rows]
  std::int32_t a_sums[kRoomGroups];                // [groups, rows], of codes
  HWY_ALIGN std::byte wide[kPairs * kPanelColumns * 4];
  HWY_ALIGN float bias[kPanelColumns];
};

// A row's group with a value that is not finite makes the row's outputs NaN.
float quantise_activations(const float* values, std::int64_t count, std::int16_t* codes) {
  constexpr float kLargest = std::numeric_limits<std::int16_t>::max();
  HWY_ALIGN float padded[kGroup];
  if (count < kGroup) {
    std::copy_n(values, count, padded);
    std::fill(padded + count, padded + kGroup, 0.0f);
    values = padded;
  }
  const std::int32_t largest_bits = largest_magnitude(values);
  if (largest_bits >= kInfinityBits || largest_bits < kLeastBits) {
    std::fill_n(codes, kGroup, std::int16_t{0});
    return largest_bits < kLeastBits ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const float largest = std::bit_cast<float>(largest_bits);
  round_group(values, kLargest / largest, codes);
  return largest / kLargest;
}

std::int32_t sum_of(const std::int16_t* codes) {
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < kGroup; ++i) sum += codes[i];
  return sum;
}

template <class Codes>
void gather_activations(const GemmTask& task, const Stretch& stretch, Room& room) {
  auto* codes = reinterpret_cast<std::int16_t*>(room.a);
  float* scales = room.a_scales;
  std::int32_t* sums = room.a_sums;
  for (std::int64_t group = stretch.begin; group < stretch.end; ++group) {
    const std::int64_t count = std::min(kGroup, task.k - group * kGroup);
    for (std::int64_t row = 0; row < task.rows; ++row) {
      const float* const values = task.a + row * task.a_stride + group * kGroup;
      *scales++ = quantise_activations(values, count, codes);
      if constexpr (is_shifted<Codes>()) *sums++ = sum_of(codes);
      codes += kGroup;
    }
  }
}

// A group's codes to 16 bits: [kPairs, kPanelColumns, 2].
template <class Codes>
void widen_group(const std::byte* codes, std::byte* out) {
  constexpr std::int64_t kStepBytes = kPanelColumns * 4;
  const auto store = [](V32 pairs, std::byte* to)
                         HWY_ATTR { hn::StoreU(pairs, kD32, reinterpret_cast<std::int32_t*>(to)); };
  for (int pair = 0; pair < kPairs; pair += Codes::kSteps) {
    for (int v = 0; v < kPanelVectors; ++v) {
      const V32 loaded = Codes::load(codes);
      std::byte* const to = out + v * 4 * kLanes;
      store(Codes::template pairs<0>(loaded), to);
      if constexpr (Codes::kSteps == 4) {
        store(Codes::template pairs<1>(loaded), to + kStepBytes);
        store(Codes::template pairs<2>(loaded), to + 2 * kStepBytes);
        store(Codes::template pairs<3>(loaded), to + 3 * kStepBytes);
      }
      codes += Codes::kVectorBytes;
    }
    out += Codes::kSteps * kStepBytes;
  }
}

// A group of one panel: where its outputs go, and what of it they meet.
struct Group {
  const std::byte* panel = nullptr;
  std::int64_t index = 0;
  const std::byte* next = nullptr;  // codes to ask for meanwhile
  const std::int32_t* a = nullptr;  // [rows, kPairs]
  const float* a_scales = nullptr;
  const std::int32_t* a_sums = nullptr;
  float* c = nullptr;
  std::int64_t columns = 0;
  const float* bias_or_null = nullptr;
};

// All rows, in tiles of kLeast to kRows rows and kVectors, against the codes at `codes`: those of
// the panel, or widened ones.
template <class Codes, class From, int kLeast, int kRows, int kVectors>
void multiply_group(const GemmTask& task, const Group& group, const std::byte* codes) {
  constexpr std::int64_t kColumns = kVectors * kLanes;
  constexpr std::int64_t kLoads = kPairs / From::kSteps;
  constexpr auto kGroupBytes =
      static_cast<std::int64_t>(QuantisedPanel::group_bytes(Codes::kFormat));
  const std::int64_t tiles = (task.rows + kRows - 1) / kRows;
  const std::int64_t tile_rows = (task.rows + tiles - 1) / tiles;
  const auto* const scales = reinterpret_cast<const typename Codes::Scale*>(
      group.panel + QuantisedPanel::scales_at(Codes::kFormat, group.index));
  Tile tile;
  tile.c_stride = task.c_stride;
  tile.first = group.index == 0;
  tile.ahead.step_bytes =
      std::max<std::int64_t>(1, kGroupBytes / (kPanelColumns / kColumns * tiles * kLoads));
  tile.ahead.from = group.next;
  for (std::int64_t column = 0; column < group.columns; column += kColumns) {
    STEMMA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      tile.scales[v] = load_f32(kD, scales + column + v * kLanes);
      if constexpr (is_shifted<Codes>()) {
        const std::byte* const shifts =
            group.panel + QuantisedPanel::shifts_at(Codes::kFormat, group.index);
        tile.shifts[v] = load_shifts(shifts + column + v * kLanes);
      }
    }
    tile.codes = codes + column / kLanes * From::kVectorBytes;
    tile.bias_or_null = group.bias_or_null == nullptr ? nullptr : group.bias_or_null + column;
    for (std::int64_t row = 0; row < task.rows; row += tile_rows) {
      const std::int64_t rows = std::min(tile_rows, task.rows - row);
      tile.a = group.a + row * kPairs;
      tile.a_scales = group.a_scales + row;
      if constexpr (is_shifted<Codes>()) tile.a_sums_or_null = group.a_sums + row;
      tile.c = group.c + row * task.c_stride + column;
      if (column + kColumns <= group.columns) {
        multiply_rows<From, kLeast, kRows, kVectors>(rows, tile);
      } else {
        multiply_edge<From, kLeast, kRows, kVectors>(rows, group.columns - column, tile);
      }
      tile.ahead.from += tile.ahead.step_bytes * kLoads;
    }
  }
}

template <class Codes>
void multiply_any_rows(const GemmTask& task, const Group& group, Room& room) {
  using Loads = typename Codes::Loads;
  const std::byte* const codes =
      group.panel + QuantisedPanel::codes_at(Codes::kFormat, group.index);
  if (task.rows <= kWideRows) {
    return multiply_group<Codes, Loads, 1, kWideRows, 2 * kTileVectors>(task, group, codes);
  }
  // More rows than these pay for a room where a load is of several steps.
  if constexpr (Codes::kSteps == 1) {
    if (task.rows <= kTileRows) {
      return multiply_group<Codes, Loads, kWideRows + 1, kTileRows, kTileVectors>(task, group,
                                                                                  codes);
    }
  }
  widen_group<Codes>(codes, room.wide);
  multiply_group<Codes, WideCodes, 1, kTileRows, kTileVectors>(task, group, room.wide);
}

// All rows of a task against one stretch of one panel.
template <class Codes>
void multiply_stretch(const GemmTask& task, const Stretch& stretch, std::int64_t column,
                      Room& room) {
  const std::int64_t groups = (task.k + kGroup - 1) / kGroup;
  const auto panel_bytes =
      static_cast<std::int64_t>(QuantisedPanel::size_bytes(Codes::kFormat, groups));
  Group group;
  group.panel = task.panels + column / kPanelColumns * panel_bytes;
  group.a = room.a;
  group.a_scales = room.a_scales;
  group.a_sums = room.a_sums;
  group.c = task.c + column;
  group.columns = std::min<std::int64_t>(kPanelColumns, task.columns - column);
  for (group.index = stretch.begin; group.index < stretch.end; ++group.index) {
    group.next = group.panel + QuantisedPanel::codes_at(Codes::kFormat, group.index + kAheadGroups);
    if (group.index + 1 == groups && task.bias_or_null != nullptr) {
      std::fill_n(room.bias, kPanelColumns, 0.0f);
      std::copy_n(task.bias_or_null + column, group.columns, room.bias);
      group.bias_or_null = room.bias;
    }
    multiply_any_rows<Codes>(task, group, room);
    group.a += task.rows * kPairs;
    group.a_scales += task.rows;
    group.a_sums += task.rows;
  }
}

// Stretches run slowest: their activations stay near while all panels of the task meet them.
template <class Codes>
void run_typed(const GemmTask& task) {
  Room room;
  const std::int64_t groups = (task.k + kGroup - 1) / kGroup;
  for (Stretch stretch; stretch.begin < groups; stretch.begin = stretch.end) {
    stretch.end = std::min(stretch.begin + kRoomGroups / task.rows, groups);
    gather_activations<Codes>(task, stretch, room);
    for (std::int64_t column = 0; column < task.columns; column += kPanelColumns) {
      multiply_stretch<Codes>(task, stretch, column, room);
    }
  }
}

}  // namespace

void run_quantised_gemm_task(const GemmTask& task) {
  if (task.format == WeightFormat::kInt8) return run_typed<Int8Codes>(task);
  if (task.format == WeightFormat::kInt4) return run_typed<Int4Codes<WeightFormat::kInt4>>(task);
  run_typed<Int4Codes<WeightFormat::kInt4Shifted>>(task);
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(run_quantised_gemm_task);

GemmKernel quantised_gemm_kernel() {
  return HWY_DYNAMIC_DISPATCH(run_quantised_gemm_task);
}

}  // namespace stemma
#endif  // HWY_ONCE
