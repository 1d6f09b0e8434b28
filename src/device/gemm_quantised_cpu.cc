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

#include "device/load_f32-inl.h"
#include "device/quantise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using D32 = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
using V32 = hn::Vec<D32>;

constexpr D kD;
constexpr D32 kD32;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
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

// Lanes of 32 bits: two neighbouring inputs of one output, or of one row, in 16 bits each. `zero`
// is that, and stays it: one for a whole tile, for compilers with sanitizers take minutes over one
// for each product.
#if HWY_TARGET == HWY_SCALAR
std::int32_t low_half(std::int32_t pair) {
  return static_cast<std::int16_t>(pair & 0xFFFF);
}
V32 add_dots(V32 sums, V32 a, V32 b, V32& /*zero*/) {
  const std::int32_t x = hn::GetLane(a);
  const std::int32_t y = hn::GetLane(b);
  return hn::Add(sums, hn::Set(kD32, low_half(x) * low_half(y) + (x >> 16) * (y >> 16)));
}
V32 widen_pairs(const std::byte* codes) {
  std::int8_t pair[2];
  std::memcpy(pair, codes, sizeof(pair));
  return hn::Set(kD32, static_cast<std::int32_t>((pair[0] & 0xFFFF) | pair[1] * 0x10000));
}
template <int kStep>
V32 nibble_pairs(V32 words) {
  const auto bits = static_cast<std::uint32_t>(hn::GetLane(words)) << (12 - 4 * kStep);
  const std::int32_t low = low_half(static_cast<std::int32_t>(bits)) >> 12;
  const std::int32_t high = static_cast<std::int32_t>(bits & 0xF0000000U) >> 28;
  return hn::Set(kD32, (low & 0xFFFF) | high * 0x10000);
}
#else
using D16 = hn::Repartition<std::int16_t, D32>;
constexpr D16 kD16;

HWY_INLINE V32 add_dots(V32 sums, V32 a, V32 b, V32& zero) {
  const auto a16 = hn::BitCast(kD16, a);
  const auto b16 = hn::BitCast(kD16, b);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
  return hn::ReorderWidenMulAccumulate(kD32, a16, b16, sums, zero);  // which leaves zero alone
#else
  V32 more = zero;
  const V32 most = hn::ReorderWidenMulAccumulate(kD32, a16, b16, sums, more);
  return hn::RearrangeToOddPlusEven(most, more);
#endif
}
HWY_INLINE V32 widen_pairs(const std::byte* codes) {
  const hn::Rebind<std::int8_t, D16> d8;
  const auto narrow = hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(codes));
  return hn::BitCast(kD32, hn::PromoteTo(kD16, narrow));
}
template <int kStep>
HWY_INLINE V32 nibble_pairs(V32 words) {
  const auto lanes = hn::BitCast(kD16, words);
  if constexpr (kStep == 3) {
    return hn::BitCast(kD32, hn::ShiftRight<12>(lanes));
  } else {
    return hn::BitCast(kD32, hn::ShiftRight<12>(hn::ShiftLeft<12 - 4 * kStep>(lanes)));
  }
}
#endif

V32 load_shifts(const std::byte* from) {
  const hn::Rebind<std::int8_t, D32> d8;
  return hn::PromoteTo(kD32, hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(from)));
}

V32 load_words(const std::byte* from) {
  return hn::LoadU(kD32, reinterpret_cast<const std::int32_t*>(from));
}

// Where a tile's codes come from: kSteps pairs of inputs for a load of each vector.
struct LoadedPairs {
  static constexpr int kSteps = 1;
  template <int kStep>
  static V32 pairs(V32 loaded) {
    return loaded;
  }
};
struct WideCodes : LoadedPairs {
  static constexpr std::int64_t kVectorBytes = 4 * kLanes;
  static V32 load(const std::byte* from) { return load_words(from); }
};
struct Int8Codes : LoadedPairs {
  using Loads = Int8Codes;
  using Scale = float;
  static constexpr WeightFormat kFormat = WeightFormat::kInt8;
  static constexpr std::int64_t kVectorBytes = 2 * kLanes;
  static V32 load(const std::byte* from) { return widen_pairs(from); }
};
struct FourBits {
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kVectorBytes = 4 * kLanes;
  static V32 load(const std::byte* from) { return load_words(from); }
  template <int kStep>
  static V32 pairs(V32 loaded) {
    return nibble_pairs<kStep>(loaded);
  }
};
template <WeightFormat kOwnFormat>
struct Int4Codes : FourBits {
  using Loads = FourBits;
  using Scale = BFloat16;
  static constexpr WeightFormat kFormat = kOwnFormat;
};

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
