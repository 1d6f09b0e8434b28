// A team's threads are cut into parts of 8, 16 or 32 lanes, each of which takes a row: as many
// lanes as leave few of them idle at its end. A lane has several loads on their way before it
// stores.
#include <algorithm>
#include <cstddef>

#include "device/cuda_dialect.h"
#include "pool/row_elements_cuda.h"
#include "pool/store_cuda.h"

namespace stemma {
namespace {

constexpr int kTeamThreads = 256;
constexpr int kRoundedElements = 8;  // of a lane at a time: 16 bytes of a plain type
constexpr int kScaledElements = 16;  // the same of codes
constexpr int kHeadsMax = 4;         // of a row, that a lane has one after another
constexpr int kManyTeams = 512;      // that keep every multiprocessor busy

// What a kernel is told.
struct StoreParams {
  StoreCall call;
  int lane_bits = 5;   // a row has 2^lane_bits lanes
  int heads_each = 1;  // where a team's z is some heads: how many
};

STEMMA_ON_DEVICE std::int64_t slot_of(const DeviceSlots& slots, std::int64_t row) {
  return slots.narrow != nullptr ? slots.narrow[row] : slots.wide[row];
}

// A slot's place, 32 bits being divided where they suffice.
struct Place {
  std::int64_t page;
  std::int64_t offset;
};
STEMMA_ON_DEVICE Place place_of(const StoreTarget& target, std::int64_t slot) {
  if (slot <= 0xFFFFFFFFll) {
    const auto low = static_cast<std::uint32_t>(slot);
    const auto size = static_cast<std::uint32_t>(target.page_size);
    return {low / size, low % size};
  }
  return {slot / target.page_size, slot % target.page_size};
}

STEMMA_ON_DEVICE bool is_nan_word(std::uint32_t bits) {
  return (bits & 0x7FFFFFFFu) > 0x7F800000u;
}

// f32 to what is stored, NaN as base/float16.h has it.
template <typename T>
STEMMA_ON_DEVICE T rounded(float value) {
  return narrow<T>(value);
}
template <>
STEMMA_ON_DEVICE BFloat16 rounded<BFloat16>(float value) {
  const std::uint32_t bits = float_as_word(value);
  const std::uint32_t up = bits + 0x7FFFu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>(is_nan_word(bits) ? (bits >> 16) | 0x40u : up >> 16)};
}
template <>
STEMMA_ON_DEVICE Float16 rounded<Float16>(float value) {
  const std::uint32_t bits = float_as_word(value);
  if (!is_nan_word(bits)) return narrow<Float16>(value);
  return {static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | 0x7E00u)};
}

// Which row and side this part of a warp has.
struct RowPart {
  std::int64_t row;
  int lane;
  int lanes;
  bool of_values;
};
STEMMA_ON_DEVICE RowPart my_part(const StoreParams& params) {
  const int lanes = 1 << params.lane_bits;
  const std::int64_t first = team_x() * (kTeamThreads >> params.lane_bits);
  return {first + (thread_index() >> params.lane_bits), thread_index() & (lanes - 1), lanes,
          team_y() == 1};
}

template <typename Unit>
STEMMA_ON_DEVICE Unit load_unit(const Unit* from) {
  return *from;
}
template <>
STEMMA_ON_DEVICE Words load_unit<Words>(const Words* from) {
  return load_words_once(from);
}
template <typename Unit>
STEMMA_ON_DEVICE void store_unit(Unit* to, const Unit& unit) {
  *to = unit;
}
template <>
STEMMA_ON_DEVICE void store_unit<Words>(Words* to, const Words& unit) {
  store_words(to, unit);
}

// A lane's next units of a row of `units`, as many apart as there are lanes.
template <typename Unit, std::size_t kLoads>
STEMMA_ON_DEVICE void load_some(const Unit* from, int begin, int units, int lanes,
                                Unit (&held)[kLoads]) {
  for (int i = 0; i < static_cast<int>(kLoads); ++i) {
    if (begin + i * lanes < units) held[i] = load_unit(from + begin + i * lanes);
  }
}
template <typename Unit, std::size_t kLoads>
STEMMA_ON_DEVICE void store_some(Unit* to, int begin, int units, int lanes,
                                 const Unit (&held)[kLoads]) {
  for (int i = 0; i < static_cast<int>(kLoads); ++i) {
    if (begin + i * lanes < units) store_unit(to + begin + i * lanes, held[i]);
  }
}

// Teams that a multiprocessor has room for, by the registers of so many loads.
constexpr int teams_of(std::size_t loads) {
  if (loads == 1) return 8;
  return loads == 2 ? 6 : 4;
}

// Rows of the pool's dtype, as `units` of Unit; a lane has the row's K and its V. What it loads
// first of both is on its way while it looks up the slot, of 4,096 rows of 2 KiB with four loads
// all at once; then again of both at a time.
template <typename Unit, std::size_t kSides, std::size_t kLoads>
STEMMA_KERNEL STEMMA_TEAM(kTeamThreads, teams_of(kLoads))
    copy_rows(StoreParams params, int element_bytes) {
  const StoreTarget& target = params.call.target;
  const RowPart part = my_part(params);
  const StoreSource sources[] = {params.call.k, params.call.v};
  const int units = target.heads * target.head_dim * element_bytes / static_cast<int>(sizeof(Unit));
  await_turn();
  pass_turn();
  if (part.row >= params.call.slots.count) return;
  const std::int64_t slot = slot_of(params.call.slots, part.row);
  const Unit* from[kSides];
  Unit held[kSides][kLoads];
  STEMMA_UNROLLED
  for (std::size_t side = 0; side < kSides; ++side) {
    from[side] = reinterpret_cast<const Unit*>(sources[side].elements +
                                               part.row * sources[side].row_stride * element_bytes);
    load_some(from[side], part.lane, units, part.lanes, held[side]);
  }
  if (slot < 0 || slot >= target.slots) return;
  const Place place = place_of(target, slot);
  const std::int64_t to =
      (place.page * target.page_stride + place.offset * target.token_stride) * element_bytes;
  const int step = static_cast<int>(kLoads) * part.lanes;
  for (int begin = part.lane; begin < units; begin += step) {
    STEMMA_UNROLLED
    for (std::size_t side = 0; side < kSides; ++side) {
      auto* const row = reinterpret_cast<Unit*>((side == 0 ? target.k : target.v) + to);
      store_some(row, begin, units, part.lanes, held[side]);
    }
    if (begin + step >= units) return;
    STEMMA_UNROLLED
    for (std::size_t side = 0; side < kSides; ++side) {
      load_some(from[side], begin + step, units, part.lanes, held[side]);
    }
  }
}

// Rows of f32, rounded, a Unit of a lane at a time.
template <typename Target, typename Unit>
STEMMA_KERNEL STEMMA_TEAM(kTeamThreads, 4) round_rows(StoreParams params) {
  await_turn();
  pass_turn();
  const StoreTarget& target = params.call.target;
  const RowPart part = my_part(params);
  if (part.row >= params.call.slots.count) return;
  const std::int64_t slot = slot_of(params.call.slots, part.row);
  if (slot < 0 || slot >= target.slots) return;
  const StoreSource& source = part.of_values ? params.call.v : params.call.k;
  const Place place = place_of(target, slot);
  const auto* const from =
      reinterpret_cast<const float*>(source.elements) + part.row * source.row_stride;
  auto* const to = reinterpret_cast<Target*>(part.of_values ? target.v : target.k) +
                   place.page * target.page_stride + place.offset * target.token_stride;
  const int units = target.heads * target.head_dim / Unit::kElements;
  for (int begin = part.lane; begin < units; begin += Unit::kAtOnce * part.lanes) {
    float held[Unit::kAtOnce][Unit::kElements];
    for (int i = 0; i < Unit::kAtOnce; ++i) {
      const int unit = begin + i * part.lanes;
      if (unit < units) load_elements<Unit>(from + unit * Unit::kElements, held[i]);
    }
    for (int i = 0; i < Unit::kAtOnce; ++i) {
      const int unit = begin + i * part.lanes;
      if (unit >= units) break;
      Target out[Unit::kElements];
      for (int e = 0; e < Unit::kElements; ++e) out[e] = rounded<Target>(held[i][e]);
      store_elements<Unit>(to + unit * Unit::kElements, out);
    }
  }
}

template <typename Code>
struct CodeLimits;
template <>
struct CodeLimits<std::int8_t> {
  static constexpr float kMax = 127;
};
template <>
struct CodeLimits<Float8E4M3> {
  static constexpr float kMax = 448;
};
template <>
struct CodeLimits<Float8E5M2> {
  static constexpr float kMax = 57344;
};

// The largest magnitude of a row of one head, as bits, over the lanes that share it.
template <typename Source, typename Unit>
STEMMA_ON_DEVICE std::uint32_t largest_bits(const Source* from, int units, const RowPart& part) {
  std::uint32_t largest = 0;
  for (int unit = part.lane; unit < units; unit += part.lanes) {
    float values[Unit::kElements];
    load_elements<Unit>(from + unit * Unit::kElements, values);
    for (int e = 0; e < Unit::kElements; ++e) {
      const std::uint32_t bits = float_as_word(values[e]) & 0x7FFFFFFFu;
      largest = bits > largest ? bits : largest;
    }
  }
  for (int mask = part.lanes / 2; mask > 0; mask /= 2) {
    const std::uint32_t other = shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  return largest;
}

// value / scale, rounded once, where that is what a code can be. Divisions are twenty instructions
// each, and a row's have one divisor: what is left of the value corrects a quotient that is made of
// the divisor's inverse, twice. What is left the second time is exact where the quotient is no less
// than half of the least code and the row's largest magnitude is kLeastDivided at least, so that
// the quotient is (Markstein); of a lesser one, whose code is 0, the sign is that of the value.
constexpr std::uint32_t kLeastDivided = 0x21800000u;  // 2^-60, as bits
STEMMA_ON_DEVICE float quotient(float value, float scale, float inverse) {
  float q = value * inverse;
  q = fused(fused(-scale, q, value), inverse, q);
  q = fused(fused(-scale, q, value), inverse, q);
  const std::uint32_t other = (float_as_word(q) ^ float_as_word(value)) & 0x7FFFFFFFu;
  return word_as_float(float_as_word(value) ^ other);
}

// Codes of a row of one head, of a scale that is not 0 if kByInverse.
template <bool kByInverse, typename Unit, typename Source, typename Code>
STEMMA_ON_DEVICE void write_codes(const Source* from, Code* to, int units, const RowPart& part,
                                  float scale) {
  const float inverse = 1.0f / scale;
  for (int unit = part.lane; unit < units; unit += part.lanes) {
    float values[Unit::kElements];
    load_elements<Unit>(from + unit * Unit::kElements, values);
    for (float& value : values) {
      if constexpr (kByInverse) {
        value = quotient(value, scale, inverse);
      } else {
        value = scale > 0 ? value / scale : 0.0f;
      }
    }
    store_codes<Unit>(to + unit * Unit::kElements, values);
  }
}

// What the largest magnitude of a row of one head makes of its codes' scale.
template <typename Code>
STEMMA_ON_DEVICE float scale_for(std::uint32_t largest) {
  if (largest >= 0x7F800000u) return word_as_float(0x7FC00000u);
  return word_as_float(largest) / CodeLimits<Code>::kMax;
}

// A part of a warp takes heads_each heads of a row of K or of V, a Unit of a lane at a time; a
// team's z is which. What is read a second time is in the cache.
template <typename Source, typename Code, typename Unit>
STEMMA_KERNEL STEMMA_TEAM(kTeamThreads, 4) scale_rows(StoreParams params) {
  await_turn();
  pass_turn();
  const StoreTarget& target = params.call.target;
  const RowPart part = my_part(params);
  const bool is_row = part.row < params.call.slots.count;
  const std::int64_t slot = is_row ? slot_of(params.call.slots, part.row) : -1;
  const bool wanted = slot >= 0 && slot < target.slots;
  const Place place = place_of(target, wanted ? slot : 0);
  const StoreSource& source = part.of_values ? params.call.v : params.call.k;
  const auto* const row = reinterpret_cast<const Source*>(source.elements) +
                          (is_row ? part.row : 0) * source.row_stride;
  auto* const codes = reinterpret_cast<Code*>(part.of_values ? target.v : target.k) +
                      place.page * target.page_stride + place.offset * target.token_stride;
  float* const scales = (part.of_values ? target.v_scales : target.k_scales) +
                        place.page * target.scale_page_stride + place.offset;
  const int units = target.head_dim / Unit::kElements;
  const int first_head = static_cast<int>(team_z()) * params.heads_each;
  for (int head = first_head; head < first_head + params.heads_each; ++head) {
    if (head >= target.heads) return;
    const Source* const from = row + head * target.head_dim;
    const std::uint32_t largest = largest_bits<Source, Unit>(from, wanted ? units : 0, part);
    if (!wanted) continue;
    const float scale = scale_for<Code>(largest);
    if (part.lane == 0) scales[head * target.scale_head_stride] = scale;
    Code* const to = codes + head * target.head_dim;
    if (largest >= kLeastDivided && largest < 0x7F800000u) {
      write_codes<true, Unit>(from, to, units, part, scale);
    } else {
      write_codes<false, Unit>(from, to, units, part, scale);
    }
  }
}

// Labels, from K as it was stored: a thread an element. Elements are moved, whatever they are.
template <typename Element>
STEMMA_KERNEL STEMMA_TEAM(kTeamThreads, 4) store_labels(StoreCall call) {
  await_turn();
  pass_turn();
  const StoreTarget& target = call.target;
  const std::int64_t each = static_cast<std::int64_t>(target.heads) * target.label_channels;
  const std::int64_t at = team_x() * team_threads() + thread_index();
  if (at >= call.slots.count * each) return;
  const std::int64_t slot = slot_of(call.slots, at / each);
  if (slot < 0 || slot >= target.slots) return;
  const int label = static_cast<int>(at % each);
  const int head = label / target.label_channels;
  const Place place = place_of(target, slot);
  const auto* const key = reinterpret_cast<const Element*>(target.k) +
                          place.page * target.page_stride + place.offset * target.token_stride +
                          static_cast<std::int64_t>(head) * target.head_dim;
  auto* const to = reinterpret_cast<Element*>(target.labels) +
                   place.page * target.label_page_stride +
                   place.offset * target.label_token_stride + head * target.label_head_stride;
  to[label % target.label_channels] = key[target.heavy_channels[label]];
}

// Lanes for `units`, as a power of two: the most of which less than a sixth are idle, but at least
// 8.
int lane_bits_for(std::int64_t units) {
  for (int bits = 5; bits > 3; --bits) {
    const std::int64_t lanes = std::int64_t{1} << bits;
    const std::int64_t taken = (units + lanes - 1) / lanes * lanes;
    if (6 * (taken - units) < taken) return bits;
  }
  return 3;
}

LaunchShape shape_for(const StoreParams& params) {
  const int rows = kTeamThreads >> params.lane_bits;
  return {.teams_x = (params.call.slots.count + rows - 1) / rows,
          .teams_y = params.call.target.v == nullptr ? 1 : 2,
          .threads = kTeamThreads,
          .early = true};
}

// Whether rows of both sides, of the pool and of the source, lie on multiples of `bytes`.
bool is_aligned(const StoreCall& call, std::int64_t bytes) {
  const StoreTarget& target = call.target;
  const auto off = [&](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(bytes) != 0;
  };
  const auto apart = [&](std::int64_t elements, DType dtype) {
    return elements * dtype_bytes(dtype) % bytes != 0;
  };
  return !off(target.k) && !off(target.v) && !off(call.k.elements) && !off(call.v.elements) &&
         !apart(target.page_stride, target.dtype) && !apart(target.token_stride, target.dtype) &&
         !apart(call.k.row_stride, call.source_dtype) &&
         !apart(call.v.row_stride, call.source_dtype);
}

std::int64_t row_elements(const StoreTarget& target) {
  return static_cast<std::int64_t>(target.heads) * target.head_dim;
}

template <typename Unit, std::size_t kLoads>
Status launch_copy(CudaStream& stream, StoreParams params) {
  const StoreTarget& target = params.call.target;
  const auto element_bytes = static_cast<int>(dtype_bytes(target.dtype));
  const std::int64_t bytes = row_elements(target) * element_bytes;
  params.lane_bits = lane_bits_for(bytes / static_cast<std::int64_t>(sizeof(Unit)));
  LaunchShape shape = shape_for(params);
  shape.teams_y = 1;
  const auto kernel = target.v == nullptr ? copy_rows<Unit, 1, kLoads> : copy_rows<Unit, 2, kLoads>;
  return launch("store_copy", stream, shape, kernel, params, element_bytes);
}

Status copy_elements(CudaStream& stream, const StoreParams& params) {
  const StoreTarget& target = params.call.target;
  const auto fits = [&](std::int64_t bytes) {
    return row_elements(target) * dtype_bytes(target.dtype) % bytes == 0 &&
           is_aligned(params.call, bytes);
  };
  if (fits(16) && params.call.loads == 1) return launch_copy<Words, 1>(stream, params);
  if (fits(16) && params.call.loads == 2) return launch_copy<Words, 2>(stream, params);
  if (fits(16)) return launch_copy<Words, 4>(stream, params);
  if (fits(4)) return launch_copy<std::uint32_t, 4>(stream, params);
  return launch_copy<std::uint16_t, 4>(stream, params);
}

template <typename Target, typename Unit>
Status launch_round(CudaStream& stream, StoreParams params) {
  params.lane_bits = lane_bits_for(row_elements(params.call.target) / Unit::kElements);
  return launch("store_rounded", stream, shape_for(params), round_rows<Target, Unit>, params);
}

template <typename Target>
Status round_to(CudaStream& stream, const StoreParams& params) {
  using Wide = RowUnit<kRoundedElements>;
  const bool wide = row_elements(params.call.target) % Wide::kElements == 0 &&
                    is_aligned(params.call, sizeof(Words));
  return wide ? launch_round<Target, Wide>(stream, params)
              : launch_round<Target, RowUnit<1>>(stream, params);
}

template <typename Source, typename Code, typename Unit>
Status launch_scale(CudaStream& stream, StoreParams params) {
  params.lane_bits = lane_bits_for(params.call.target.head_dim / Unit::kElements);
  LaunchShape shape = shape_for(params);
  const std::int64_t heads = params.call.target.heads;
  const std::int64_t spare = shape.teams_x * shape.teams_y * heads / kManyTeams;
  params.heads_each = static_cast<int>(std::clamp<std::int64_t>(spare, 1, kHeadsMax));
  shape.teams_z = (heads + params.heads_each - 1) / params.heads_each;
  return launch("store_scaled", stream, shape, scale_rows<Source, Code, Unit>, params);
}

template <typename Source, typename Code>
Status scale_to(CudaStream& stream, const StoreParams& params) {
  using Wide = RowUnit<kScaledElements>;
  const bool wide =
      params.call.target.head_dim % Wide::kElements == 0 && is_aligned(params.call, sizeof(Words));
  return wide ? launch_scale<Source, Code, Wide>(stream, params)
              : launch_scale<Source, Code, RowUnit<1>>(stream, params);
}

// Rows of Source to a pool of codes.
template <typename Source>
Status scale_from(CudaStream& stream, const StoreParams& params) {
  switch (params.call.target.dtype) {
    case DType::kFp8E4M3:
      return scale_to<Source, Float8E4M3>(stream, params);
    case DType::kFp8E5M2:
      return scale_to<Source, Float8E5M2>(stream, params);
    default:
      return scale_to<Source, std::int8_t>(stream, params);
  }
}

Status store_values(CudaStream& stream, const StoreParams& params) {
  const DType source = params.call.source_dtype;
  const DType target = params.call.target.dtype;
  if (source == target) return copy_elements(stream, params);
  if (is_scaled(target)) {
    if (source == DType::kF32) return scale_from<float>(stream, params);
    return source == DType::kF16 ? scale_from<Float16>(stream, params)
                                 : scale_from<BFloat16>(stream, params);
  }
  if (source == DType::kF32 && target == DType::kF16) return round_to<Float16>(stream, params);
  if (source == DType::kF32 && target == DType::kBF16) return round_to<BFloat16>(stream, params);
  return Error{ErrorCode::kInvalidArgument, "store: rows of 16 bits to a pool of another dtype", 0};
}

}  // namespace

Status store_rows_on(CudaStream& stream, const StoreCall& call) {
  if (call.slots.count == 0) return {};
  if (is_scaled(call.source_dtype)) {
    return Error{ErrorCode::kInvalidArgument, "store: rows are codes without scales", 0};
  }
  StoreParams params;
  params.call = call;
  STEMMA_RETURN_IF_ERROR(store_values(stream, params));
  if (call.target.labels == nullptr) return {};
  const std::int64_t labels = call.slots.count * call.target.heads * call.target.label_channels;
  const LaunchShape shape = {.teams_x = (labels + kTeamThreads - 1) / kTeamThreads,
                             .threads = kTeamThreads,
                             .early = true};
  if (dtype_bytes(call.target.dtype) == 4) {
    return launch("store_labels", stream, shape, store_labels<std::uint32_t>, call);
  }
  return launch("store_labels", stream, shape, store_labels<std::uint16_t>, call);
}

}  // namespace stemma
