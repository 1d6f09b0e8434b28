// A team's threads are cut into parts of 8, 16 or 32 lanes, each of which takes a row: as many
// lanes as leave few of them idle at its end. All that a lane loads is on its way before it stores.
#include "device/cuda_dialect.h"
#include "pool/store_cuda.h"

namespace stemma {
namespace {

constexpr int kTeamThreads = 256;
constexpr int kInFlight = 4;        // loads of a lane
constexpr int kScaledElements = 8;  // of a lane at a time

// What a kernel is told.
struct StoreParams {
  StoreCall call;
  int lanes = 32;  // of a row
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
  bool of_values;
};
STEMMA_ON_DEVICE RowPart my_part(int lanes) {
  const int parts = team_threads() / lanes;
  return {team_x() * parts + thread_index() / lanes, thread_index() % lanes, team_y() == 1};
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

// Copies `units` of a row, those of a lane `lanes` apart.
template <typename Unit>
STEMMA_ON_DEVICE void copy_row(const Unit* from, Unit* to, int units, const RowPart& part,
                               int lanes) {
  for (int begin = part.lane; begin < units; begin += kInFlight * lanes) {
    Unit held[kInFlight];
    for (int i = 0; i < kInFlight; ++i) {
      if (begin + i * lanes < units) held[i] = load_unit(from + begin + i * lanes);
    }
    for (int i = 0; i < kInFlight; ++i) {
      if (begin + i * lanes < units) store_unit(to + begin + i * lanes, held[i]);
    }
  }
}

// Rows of the pool's dtype, as `units` of Unit.
template <typename Unit>
STEMMA_KERNEL STEMMA_TEAM(kTeamThreads, 4) copy_rows(StoreParams params, int element_bytes) {
  const StoreTarget& target = params.call.target;
  const RowPart part = my_part(params.lanes);
  if (part.row >= params.call.slots.count) return;
  const std::int64_t slot = slot_of(params.call.slots, part.row);
  if (slot < 0 || slot >= target.slots) return;
  const StoreSource& source = part.of_values ? params.call.v : params.call.k;
  std::byte* const side = part.of_values ? target.v : target.k;
  const Place place = place_of(target, slot);
  const std::int64_t to = place.page * target.page_stride + place.offset * target.token_stride;
  const int bytes = target.heads * target.head_dim * element_bytes;
  copy_row(
      reinterpret_cast<const Unit*>(source.elements + part.row * source.row_stride * element_bytes),
      reinterpret_cast<Unit*>(side + to * element_bytes), bytes / static_cast<int>(sizeof(Unit)),
      part, params.lanes);
}

// Rows of another dtype, through f32.
template <typename Source, typename Target>
STEMMA_KERNEL STEMMA_TEAM(kTeamThreads, 4) convert_rows(StoreParams params) {
  const StoreTarget& target = params.call.target;
  const RowPart part = my_part(params.lanes);
  if (part.row >= params.call.slots.count) return;
  const std::int64_t slot = slot_of(params.call.slots, part.row);
  if (slot < 0 || slot >= target.slots) return;
  const StoreSource& source = part.of_values ? params.call.v : params.call.k;
  const Place place = place_of(target, slot);
  const auto* const from =
      reinterpret_cast<const Source*>(source.elements) + part.row * source.row_stride;
  auto* const to = reinterpret_cast<Target*>(part.of_values ? target.v : target.k) +
                   place.page * target.page_stride + place.offset * target.token_stride;
  const int elements = target.heads * target.head_dim;
  for (int begin = part.lane; begin < elements; begin += kInFlight * params.lanes) {
    float held[kInFlight];
    for (int i = 0; i < kInFlight; ++i) {
      const int at = begin + i * params.lanes;
      held[i] = at < elements ? widen(from[at]) : 0.0f;
    }
    for (int i = 0; i < kInFlight; ++i) {
      const int at = begin + i * params.lanes;
      if (at < elements) to[at] = rounded<Target>(held[i]);
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
template <typename Source>
STEMMA_ON_DEVICE std::uint32_t largest_bits(const Source* from, int head_dim, int lane, int lanes,
                                            bool wanted) {
  std::uint32_t largest = 0;
  if (wanted) {
    for (int begin = lane; begin < head_dim; begin += kScaledElements * lanes) {
      for (int i = 0; i < kScaledElements; ++i) {
        const int at = begin + i * lanes;
        const std::uint32_t bits = at < head_dim ? float_as_word(widen(from[at])) & 0x7FFFFFFFu : 0;
        largest = bits > largest ? bits : largest;
      }
    }
  }
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    const std::uint32_t other = shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  return largest;
}

// A part of a warp takes a head of a row of K or of V. A team's z is the head.
template <typename Source, typename Code>
STEMMA_KERNEL STEMMA_TEAM(kTeamThreads, 4) scale_rows(StoreParams params) {
  const StoreTarget& target = params.call.target;
  const RowPart part = my_part(params.lanes);
  const bool is_row = part.row < params.call.slots.count;
  const std::int64_t slot = is_row ? slot_of(params.call.slots, part.row) : -1;
  const bool wanted = slot >= 0 && slot < target.slots;
  const StoreSource& source = part.of_values ? params.call.v : params.call.k;
  const std::int64_t head = team_z();
  const auto* const from = reinterpret_cast<const Source*>(source.elements) +
                           (is_row ? part.row : 0) * source.row_stride + head * target.head_dim;
  const std::uint32_t bits = largest_bits(from, target.head_dim, part.lane, params.lanes, wanted);
  if (!wanted) return;
  const Place place = place_of(target, slot);
  auto* const codes = reinterpret_cast<Code*>(part.of_values ? target.v : target.k) +
                      place.page * target.page_stride + place.offset * target.token_stride +
                      head * target.head_dim;
  const float scale = bits < 0x7F800000u ? word_as_float(bits) / CodeLimits<Code>::kMax
                                         : word_as_float(0x7FC00000u);
  if (part.lane == 0) {
    float* const scales = part.of_values ? target.v_scales : target.k_scales;
    scales[place.page * target.scale_page_stride + place.offset + head * target.scale_head_stride] =
        scale;
  }
  const bool some = scale > 0;
  for (int at = part.lane; at < target.head_dim; at += params.lanes) {
    codes[at] = some ? narrow<Code>(widen(from[at]) / scale) : Code{};
  }
}

// Labels, from K as it was stored: a thread an element. Elements are moved, whatever they are.
template <typename Element>
STEMMA_KERNEL STEMMA_TEAM(kTeamThreads, 4) store_labels(StoreCall call) {
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

// Lanes for `units`: the most of which less than a sixth are idle, but at least 8.
int lanes_for(std::int64_t units) {
  for (int lanes = kWarpThreads; lanes > 8; lanes /= 2) {
    const std::int64_t taken = (units + lanes - 1) / lanes * lanes;
    if (6 * (taken - units) < taken) return lanes;
  }
  return 8;
}

LaunchShape shape_for(const StoreParams& params) {
  const int rows = kTeamThreads / params.lanes;
  return {.teams_x = (params.call.slots.count + rows - 1) / rows,
          .teams_y = params.call.target.v == nullptr ? 1 : 2,
          .threads = kTeamThreads};
}

// Whether rows of both sides lie on multiples of `bytes`, and are as long.
bool is_aligned(const StoreCall& call, std::int64_t bytes) {
  const StoreTarget& target = call.target;
  const std::int64_t element_bytes = dtype_bytes(target.dtype);
  const auto off = [&](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(bytes) != 0;
  };
  const auto apart = [&](std::int64_t elements) { return elements * element_bytes % bytes != 0; };
  return !off(target.k) && !off(target.v) && !off(call.k.elements) && !off(call.v.elements) &&
         !apart(target.page_stride) && !apart(target.token_stride) && !apart(call.k.row_stride) &&
         !apart(call.v.row_stride) &&
         !apart(static_cast<std::int64_t>(target.heads) * target.head_dim);
}

template <typename Unit>
Status launch_copy(CudaStream& stream, StoreParams params) {
  const StoreTarget& target = params.call.target;
  const auto element_bytes = static_cast<int>(dtype_bytes(target.dtype));
  const std::int64_t bytes =
      static_cast<std::int64_t>(target.heads) * target.head_dim * element_bytes;
  params.lanes = lanes_for(bytes / static_cast<std::int64_t>(sizeof(Unit)));
  return launch("store_copy", stream, shape_for(params), copy_rows<Unit>, params, element_bytes);
}

Status copy_elements(CudaStream& stream, const StoreParams& params) {
  if (is_aligned(params.call, 16)) return launch_copy<Words>(stream, params);
  if (is_aligned(params.call, 4)) return launch_copy<std::uint32_t>(stream, params);
  return launch_copy<std::uint16_t>(stream, params);
}

template <typename Source, typename Code>
Status scale_to(CudaStream& stream, StoreParams params) {
  params.lanes = lanes_for((params.call.target.head_dim + kScaledElements - 1) / kScaledElements);
  LaunchShape shape = shape_for(params);
  shape.teams_z = params.call.target.heads;
  return launch("store_scaled", stream, shape, scale_rows<Source, Code>, params);
}

// Rows of Source to a pool of any other dtype.
template <typename Source>
Status convert_from(CudaStream& stream, StoreParams params) {
  const StoreTarget& target = params.call.target;
  params.lanes = lanes_for(static_cast<std::int64_t>(target.heads) * target.head_dim);
  switch (target.dtype) {
    case DType::kF32:
      return launch("store_f32", stream, shape_for(params), convert_rows<Source, float>, params);
    case DType::kF16:
      return launch("store_f16", stream, shape_for(params), convert_rows<Source, Float16>, params);
    case DType::kBF16:
      return launch("store_bf16", stream, shape_for(params), convert_rows<Source, BFloat16>,
                    params);
    case DType::kFp8E4M3:
      return scale_to<Source, Float8E4M3>(stream, params);
    case DType::kFp8E5M2:
      return scale_to<Source, Float8E5M2>(stream, params);
    case DType::kInt8:
      return scale_to<Source, std::int8_t>(stream, params);
  }
  return Error{ErrorCode::kInvalidArgument, "store: no such dtype", 0};
}

Status store_values(CudaStream& stream, const StoreParams& params) {
  if (params.call.source_dtype == params.call.target.dtype) return copy_elements(stream, params);
  switch (params.call.source_dtype) {
    case DType::kF32:
      return convert_from<float>(stream, params);
    case DType::kF16:
      return convert_from<Float16>(stream, params);
    case DType::kBF16:
      return convert_from<BFloat16>(stream, params);
    default:
      return Error{ErrorCode::kInvalidArgument, "store: rows are codes without scales", 0};
  }
}

}  // namespace

Status store_rows_on(CudaStream& stream, const StoreCall& call) {
  if (call.slots.count == 0) return {};
  if (is_scaled(call.source_dtype)) {
    return Error{ErrorCode::kInvalidArgument, "store: rows are codes without scales", 0};
  }
  STEMMA_RETURN_IF_ERROR(store_values(stream, {.call = call}));
  if (call.target.labels == nullptr) return {};
  const std::int64_t labels = call.slots.count * call.target.heads * call.target.label_channels;
  const LaunchShape shape = {.teams_x = (labels + kTeamThreads - 1) / kTeamThreads,
                             .threads = kTeamThreads};
  if (dtype_bytes(call.target.dtype) == 4) {
    return launch("store_labels", stream, shape, store_labels<std::uint32_t>, call);
  }
  return launch("store_labels", stream, shape, store_labels<std::uint16_t>, call);
}

}  // namespace stemma
