// Packing and rounding weights. Tests read back, row by row, what was written.
//
// As stored: squares of 16 bytes are transposed in registers, along a cache line of each row, so
// that every line is read once and a panel's are written whole.
//
// int8: the largest magnitude of an output becomes 127. int4: three scales are tried for each
// group, each of which brings its largest magnitude, with its sign, to the end of the codes that
// reaches further; beyond -8 a code is -8. What is lost there is won back by the rest of the group:
// the one with the least sum of squared errors stays. Where a file has chosen the scale already, it
// is the only one.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
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
constexpr std::int16_t kInt4Least = -8;
constexpr std::array<float, 3> kInt4Ends = {-8.0f, -8.5f, -9.0f};

// Words [from, to) of one row.
template <typename Word>
void pack_words(const PackTask& task, std::int64_t row, std::int64_t from, std::int64_t to) {
  constexpr auto kWordBytes = static_cast<std::int64_t>(sizeof(Word));
  const std::byte* const source = task.weights + row * task.k * kWordBytes;
  auto* const panel = reinterpret_cast<Word*>(task.panel);
  for (std::int64_t i = from; i < to; ++i) {
    std::memcpy(panel + i * PackedWeights::kPanelColumns + row, source + i * kWordBytes,
                sizeof(Word));
  }
}

#if HWY_TARGET == HWY_SCALAR
template <typename Word>
void pack_typed(const PackTask& task) {
  for (std::int64_t row = 0; row < task.rows; ++row) pack_words<Word>(task, row, 0, task.k);
}
#else
// A square of words: as many rows of as many words as 16 bytes hold.
template <typename Word>
void pack_square(const PackTask& task, std::int64_t row, std::int64_t first) {
  constexpr std::size_t kCount = 16 / sizeof(Word);
  constexpr int kRounds = kCount == 8 ? 3 : 2;
  const hn::Full128<Word> d;
  const hn::Full128<std::uint8_t> d8;
  hn::Vec<hn::Full128<Word> > rows[kCount];
  STEMMA_UNROLL
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t at =
        static_cast<std::size_t>(row * task.k + first) + i * static_cast<std::size_t>(task.k);
    const auto* const from =
        reinterpret_cast<const std::uint8_t*>(task.weights + at * sizeof(Word));
    rows[i] = hn::BitCast(d, hn::LoadU(d8, from));
  }
  // Each round interleaves row i with row i + kCount / 2; after log2(kCount) of them words lie
  // column by column.
  STEMMA_UNROLL
  for (int round = 0; round < kRounds; ++round) {
    hn::Vec<hn::Full128<Word> > mixed[kCount];
    STEMMA_UNROLL
    for (std::size_t i = 0; i < kCount / 2; ++i) {
      mixed[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + kCount / 2]);
      mixed[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + kCount / 2]);
    }
    STEMMA_UNROLL
    for (std::size_t i = 0; i < kCount; ++i) rows[i] = mixed[i];
  }
  auto* panel = reinterpret_cast<Word*>(task.panel) + first * PackedWeights::kPanelColumns + row;
  STEMMA_UNROLL
  for (std::size_t i = 0; i < kCount; ++i) {
    hn::StoreU(rows[i], d, panel);
    panel += PackedWeights::kPanelColumns;
  }
}

template <typename Word>
void pack_typed(const PackTask& task) {
  constexpr auto kCount = static_cast<std::int64_t>(16 / sizeof(Word));
  constexpr std::int64_t kLine = 4 * kCount;
  const std::int64_t rows = task.rows / kCount * kCount;
  const std::int64_t words = task.k / kCount * kCount;
  for (std::int64_t line = 0; line < words; line += kLine) {
    const std::int64_t end = std::min(line + kLine, words);
    for (std::int64_t row = 0; row < rows; row += kCount) {
      for (std::int64_t i = line; i < end; i += kCount) pack_square<Word>(task, row, i);
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) pack_words<Word>(task, row, words, task.k);
  for (std::int64_t row = rows; row < task.rows; ++row) pack_words<Word>(task, row, 0, task.k);
}
#endif

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

// codes = the nearest to values / scale from `least` on, 16 of them.
void round_with_scale(const Group& group, float scale, std::int16_t least, Rounded& out) {
  round_group(group.values, 1.0f / scale, out.codes);
  const hn::ScalableTag<std::int16_t> d16;
  const auto most = static_cast<std::int16_t>(least + 15);
  for (std::size_t i = 0; i < std::size(out.codes); i += hn::Lanes(d16)) {
    const auto code = hn::LoadU(d16, out.codes + i);
    const auto kept = hn::Min(hn::Max(code, hn::Set(d16, least)), hn::Set(d16, most));
    hn::StoreU(kept, d16, out.codes + i);
  }
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
    round_with_scale(group, scale, kInt4Least, i == 0 ? best : tried);
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
    std::uint32_t words = 0;  // two of 16 bits, of the even inputs and of the odd ones
    for (std::int64_t j = 0; j < 4; ++j) {
      std::uint32_t pair = 0;
      std::memcpy(&pair, rounded.codes + first + 2 * j, sizeof(pair));
      words |= (pair & 0x000F000FU) << (4 * j);
    }
    std::memcpy(codes + first / 2 * PackedWeights::kPanelColumns + column * 4, &words,
                sizeof(words));
  }
}

// With the scale, and the shift, that a file has chosen; `rounded` are codes then, without it.
// False if the scale is none.
bool keep_codes(const QuantiseTask& task, std::int64_t row, std::int64_t index, const Group& group,
                Rounded& rounded) {
  const std::int64_t at = row * ((task.k + kGroup - 1) / kGroup) + index;
  const float scale = to_float(task.scales_or_null[at]);
  if (!std::isfinite(scale) || scale == 0) return false;
  const std::int8_t shift =
      task.shifts_or_null == nullptr ? std::int8_t{0} : task.shifts_or_null[at];
  round_with_scale(group, scale, static_cast<std::int16_t>(kInt4Least + shift), rounded);
  if (shift == 0) return true;
  for (std::int16_t& code : rounded.codes) code = static_cast<std::int16_t>(code - shift);
  std::memcpy(task.panel + QuantisedPanel::shifts_at(task.format, index) + row, &shift,
              sizeof(shift));
  return true;
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
    float factor = kInt8Largest / largest;
    rounded.scale = largest / kInt8Largest;
    if (task.output_scales_or_null != nullptr) {
      rounded.scale = task.output_scales_or_null[row];
      factor = 1.0f / rounded.scale;
      outcome.finite = std::isfinite(rounded.scale) && std::isfinite(factor);
      if (!outcome.finite) return outcome;
    }
    std::memcpy(task.panel + QuantisedPanel::scales_at(task.format, 0) + row * 4, &rounded.scale,
                sizeof(float));
    for (std::int64_t i = 0; i < groups; ++i) {
      load_group(task, row, i, group);
      round_group(group.values, factor, rounded.codes);
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
      if (task.scales_or_null == nullptr) {
        round_int4(group, rounded);
      } else {
        outcome.finite = keep_codes(task, row, i, group, rounded);
        if (!outcome.finite) return outcome;
      }
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

void run_pack_task(const PackTask& task) {
  return task.word_bytes == 4 ? pack_typed<std::uint32_t>(task) : pack_typed<std::uint16_t>(task);
}

QuantiseOutcome run_quantise_task(const QuantiseTask& task) {
  return task.format == WeightFormat::kInt8 ? quantise_int8(task) : quantise_int4(task);
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(run_pack_task);
HWY_EXPORT(run_quantise_task);

PackKernel pack_kernel() {
  return HWY_DYNAMIC_DISPATCH(run_pack_task);
}

QuantiseKernel quantise_kernel() {
  return HWY_DYNAMIC_DISPATCH(run_quantise_task);
}

}  // namespace stemma
#endif  // HWY_ONCE
