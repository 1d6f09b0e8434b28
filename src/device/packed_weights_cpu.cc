// Rounding weights. A twin in double is in packed_weights_test.cc.
//
// int8: the largest magnitude of an output becomes 127. int4: three scales are tried for each
// group, each of which brings its largest magnitude, with its sign, to the end of the codes that
// reaches further; beyond -8 a code is -8. What is lost there is won back by the rest of the group:
// the one with the least sum of squared errors stays.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/float16.h"
#include "device/packed_weights_kernel.h"
#include "device/simd_targets.h"  // before Highway
#include "device/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/packed_weights_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/load_f32-inl.h"
#include "device/quantise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr D kD;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
constexpr float kInt8Largest = 127.0f;
constexpr std::array<float, 3> kInt4Ends = {-8.0f, -8.5f, -9.0f};

// A group of one output.
struct Group {
  HWY_ALIGN float values[kGroup];
  std::int32_t largest_bits = 0;  // its largest magnitude
};

template <typename T>
void load_typed(const std::byte* from, std::int64_t count, float* out) {
  HWY_ALIGN T stored[kGroup] = {};
  std::memcpy(stored, from, static_cast<std::size_t>(count) * sizeof(T));
  for (std::int64_t i = 0; i < kGroup; i += kLanes) {
    hn::Store(load_f32(kD, stored + i), kD, out + i);
  }
}

// Padded with zeros.
void load_group(const QuantiseTask& task, std::int64_t row, std::int64_t group, Group& out) {
  const std::int64_t first = group * kGroup;
  const std::int64_t count = std::min(kGroup, task.k - first);
  const std::byte* const from =
      task.weights + static_cast<std::size_t>(row * task.k + first) * weight_type_bytes(task.type);
  switch (task.type) {
    case WeightType::kF32:
      load_typed<float>(from, count, out.values);
      break;
    case WeightType::kF16:
      load_typed<Float16>(from, count, out.values);
      break;
    case WeightType::kBf16:
      load_typed<BFloat16>(from, count, out.values);
      break;
  }
  out.largest_bits = largest_magnitude(out.values);
}

// The sum of squares of code x scale - value.
float squared_error(const Group& group, const std::int16_t* codes, float scale) {
  const hn::Rebind<std::int16_t, D> d16;
  const hn::RebindToSigned<D> d32;
  const V by = hn::Set(kD, scale);
  V sum = hn::Zero(kD);
  for (std::int64_t i = 0; i < kGroup; i += kLanes) {
    const V code = hn::ConvertTo(kD, hn::PromoteTo(d32, hn::LoadU(d16, codes + i)));
    const V error = hn::NegMulAdd(code, by, hn::LoadU(kD, group.values + i));
    sum = hn::MulAdd(error, error, sum);
  }
  return hn::GetLane(hn::SumOfLanes(kD, sum));
}

float sum_of_squares(const Group& group) {
  V sum = hn::Zero(kD);
  for (std::int64_t i = 0; i < kGroup; i += kLanes) {
    const V value = hn::LoadU(kD, group.values + i);
    sum = hn::MulAdd(value, value, sum);
  }
  return hn::GetLane(hn::SumOfLanes(kD, sum));
}

struct Rounded {
  HWY_ALIGN std::int16_t codes[kGroup] = {};
  float scale = 0;
  float error = 0;  // sum of squares
};

void round_with_scale(const Group& group, float scale, Rounded& out) {
  round_group(group.values, 1.0f / scale, out.codes);
  for (std::int16_t& code : out.codes) code = std::clamp<std::int16_t>(code, -8, 7);
  out.scale = scale;
  out.error = squared_error(group, out.codes, scale);
}

// REQUIRES: the group is finite and its largest magnitude counts.
void round_int4(const Group& group, Rounded& best) {
  const float magnitude = std::bit_cast<float>(group.largest_bits);
  const float* const end = group.values + kGroup;
  const bool negative = std::find(group.values, end, -magnitude) != end;
  const float largest = negative ? -magnitude : magnitude;
  Rounded tried;
  for (std::size_t i = 0; i < kInt4Ends.size(); ++i) {
    const float scale = to_float(to_bfloat16(largest / kInt4Ends[i]));
    round_with_scale(group, scale, i == 0 ? best : tried);
    if (i > 0 && tried.error < best.error) best = tried;
  }
}

// Where the codes of one output lie in a group: `codes` is the group's.
void store_int8(const Rounded& rounded, std::int64_t column, std::byte* codes) {
  for (std::int64_t i = 0; i < kGroup; i += 2) {
    const std::int8_t pair[2] = {static_cast<std::int8_t>(rounded.codes[i]),
                                 static_cast<std::int8_t>(rounded.codes[i + 1])};
    std::memcpy(codes + i * PackedWeights::kPanelColumns + column * 2, pair, sizeof(pair));
  }
}

void store_int4(const Rounded& rounded, std::int64_t column, std::byte* codes) {
  for (std::int64_t first = 0; first < kGroup; first += 8) {
    std::uint16_t words[2] = {};
    for (std::int64_t i = 0; i < 8; ++i) {
      const auto code = static_cast<unsigned>(rounded.codes[first + i]) & 0xFU;
      words[i % 2] = static_cast<std::uint16_t>(words[i % 2] | code << (i / 2 * 4));
    }
    std::memcpy(codes + first / 2 * PackedWeights::kPanelColumns + column * 4, words,
                sizeof(words));
  }
}

QuantiseOutcome quantise_int8(const QuantiseTask& task) {
  QuantiseOutcome outcome;
  const std::int64_t groups = (task.k + kGroup - 1) / kGroup;
  Group group;
  Rounded rounded;
  for (std::int64_t row = 0; row < task.rows; ++row) {
    std::int32_t largest_bits = 0;
    for (std::int64_t i = 0; i < groups; ++i) {
      load_group(task, row, i, group);
      largest_bits = std::max(largest_bits, group.largest_bits);
    }
    outcome.finite = largest_bits < kInfinityBits;
    if (!outcome.finite) return outcome;
    if (largest_bits < kLeastBits) continue;
    const float largest = std::bit_cast<float>(largest_bits);
    rounded.scale = largest / kInt8Largest;
    std::memcpy(task.panel + QuantisedPanel::scales_at(task.format, 0) + row * 4, &rounded.scale,
                sizeof(float));
    for (std::int64_t i = 0; i < groups; ++i) {
      load_group(task, row, i, group);
      round_group(group.values, kInt8Largest / largest, rounded.codes);
      store_int8(rounded, row, task.panel + QuantisedPanel::codes_at(task.format, i));
      outcome.error.error_squares += double{squared_error(group, rounded.codes, rounded.scale)};
      outcome.error.weight_squares += double{sum_of_squares(group)};
    }
  }
  return outcome;
}

QuantiseOutcome quantise_int4(const QuantiseTask& task) {
  QuantiseOutcome outcome;
  const std::int64_t groups = (task.k + kGroup - 1) / kGroup;
  Group group;
  Rounded rounded;
  for (std::int64_t row = 0; row < task.rows; ++row) {
    for (std::int64_t i = 0; i < groups; ++i) {
      load_group(task, row, i, group);
      outcome.finite = group.largest_bits < kInfinityBits;
      if (!outcome.finite) return outcome;
      if (group.largest_bits < kLeastBits) continue;
      round_int4(group, rounded);
      const BFloat16 scale = to_bfloat16(rounded.scale);
      std::memcpy(task.panel + QuantisedPanel::scales_at(task.format, i) + row * 2, &scale,
                  sizeof(scale));
      store_int4(rounded, row, task.panel + QuantisedPanel::codes_at(task.format, i));
      outcome.error.error_squares += double{rounded.error};
      outcome.error.weight_squares += double{sum_of_squares(group)};
    }
  }
  return outcome;
}

}  // namespace

QuantiseOutcome run_quantise_task(const QuantiseTask& task) {
  return task.format == WeightFormat::kInt8 ? quantise_int8(task) : quantise_int4(task);
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(run_quantise_task);

QuantiseKernel quantise_kernel() {
  return HWY_DYNAMIC_DISPATCH(run_quantise_task);
}

}  // namespace stemma
#endif  // HWY_ONCE
