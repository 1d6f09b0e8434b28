// Rounding: f32 to bf16 and f16 with the integer steps of base/float16.h, a vector at a time: the
// same on every target, NaN and subnormals included. The scalar functions there are the reference
// twin and finish a ragged tail.
//
// Scaling: two passes over a head, one for its largest magnitude, one for its codes: divided by the
// scale, clamped to what the format has and rounded. Divisions and sums are IEEE's on every target,
// so the codes are the same on all; base/float8.h is the reference twin.
//
// Streaming: whole lines written past the caches, which saves reading them first.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/float16.h"
#include "base/float8.h"
#include "device/simd_targets.h"  // before Highway
#include "pool/store_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pool/store_cpu.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/load_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using D16 = hn::Rebind<std::uint16_t, DF>;
using VU = hn::Vec<DU>;

// Comparisons are signed, which every target has; magnitudes are below 2^31.
HWY_INLINE hn::Mask<DU> at_least(VU magnitude, std::uint32_t limit) {
  const DI di;
  const DU du;
  const auto less_one = hn::Set(di, static_cast<std::int32_t>(limit - 1));
  return hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), less_one));
}

// 16 bits in the low half of each lane.
HWY_INLINE VU bfloat16_bits(VU bits) {
  const DU du;
  const VU upper = hn::ShiftRight<16>(bits);
  const VU odd = hn::And(upper, hn::Set(du, 1u));
  const VU rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu))));
  const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto is_nan = at_least(magnitude, 0x7F800001u);
  return hn::IfThenElse(is_nan, hn::Or(upper, hn::Set(du, 0x0040u)), rounded);
}

HWY_INLINE VU float16_bits(VU bits) {
  const DU du;
  const DF df;
  const VU sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const VU odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const VU rebased = hn::Sub(magnitude, hn::Set(du, 0x38000000u - 0xFFFu));
  const VU normal = hn::ShiftRight<13>(hn::Add(rebased, odd));
  const auto shifted = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f));
  const VU subnormal = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3F000000u));
  VU result = hn::IfThenElse(at_least(magnitude, 0x38800000u), normal, subnormal);
  result = hn::IfThenElse(at_least(magnitude, 0x477FF000u), hn::Set(du, 0x7C00u), result);
  result = hn::IfThenElse(at_least(magnitude, 0x7F800001u), hn::Set(du, 0x7E00u), result);
  return hn::Or(sign, result);
}

// The low halves. Every lane is below 2^16, but as a signed number it may not be: the saturating
// demotion would clamp it, so the sign of the half is spread first.
HWY_INLINE void store_low_halves(VU bits, std::uint16_t* to) {
  const DI di;
  const hn::Rebind<std::int16_t, DF> d16;
  const auto halves = hn::ShiftRight<16>(hn::BitCast(di, hn::ShiftLeft<16>(bits)));
  hn::StoreU(hn::DemoteTo(d16, halves), d16, reinterpret_cast<std::int16_t*>(to));
}

using VF = hn::Vec<DF>;

float widened(float value) {
  return value;
}
float widened(BFloat16 value) {
  return to_float(value);
}
float widened(Float16 value) {
  return to_float(value);
}

// Of finite values; NaN if there are others. Magnitudes are in the order of their bits, those of
// infinity and NaN above all others.
template <typename Source>
float largest_magnitude(const Source* from, std::int64_t elements) {
  const DF df;
  const DI di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  constexpr std::int32_t kMagnitude = 0x7FFFFFFF;
  constexpr std::int32_t kInfinity = 0x7F800000;
  auto largest = hn::Zero(di);
  std::int64_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    const auto bits = hn::BitCast(di, load_f32(df, from + i));
    largest = hn::Max(largest, hn::And(bits, hn::Set(di, kMagnitude)));
  }
  std::int32_t bits = hn::GetLane(hn::MaxOfLanes(di, largest));
  for (; i < elements; ++i) {
    bits = std::max(bits, std::bit_cast<std::int32_t>(widened(from[i])) & kMagnitude);
  }
  return bits < kInfinity ? std::bit_cast<float>(bits) : std::numeric_limits<float>::quiet_NaN();
}

// Codes of values that are clamped already: a vector's in the low bytes of its lanes, or one.
struct Int8Codes {
  static constexpr float kMax = 127;
  static HWY_INLINE hn::Vec<DI> of(VF values) {
    return hn::And(hn::NearestInt(values), hn::Set(DI(), 0xFF));
  }
  static std::uint8_t of(float value) {
    return static_cast<std::uint8_t>(static_cast<std::int8_t>(std::lrint(value)));
  }
};

template <typename Float8>
struct Float8Codes {
  static constexpr float kMax = Float8::kMax;
  static HWY_INLINE hn::Vec<DI> of(VF values) {
    constexpr int kShift = 23 - Float8::kMantissaBits;
    constexpr auto kRebase = static_cast<std::uint32_t>(127 - Float8::kBias) << 23;
    constexpr auto kCounting =
        static_cast<std::uint32_t>(127 + 24 - Float8::kBias - Float8::kMantissaBits) << 23;
    const DF df;
    const DU du;
    const VU bits = hn::BitCast(du, values);
    const VU sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(du, 0x80u));
    const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
    const VU odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(du, 1u));
    constexpr std::uint32_t kRounding = (1u << (kShift - 1)) - 1;
    const VU rebased = hn::Sub(magnitude, hn::Set(du, kRebase - kRounding));
    const VU normal = hn::ShiftRight<kShift>(hn::Add(rebased, odd));
    const VU counting = hn::Set(du, kCounting);
    const VF counted = hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, counting));
    const VU subnormal = hn::Sub(hn::BitCast(du, counted), counting);
    constexpr auto kLeastNormal = static_cast<std::uint32_t>(128 - Float8::kBias) << 23;
    const VU code = hn::IfThenElse(at_least(magnitude, kLeastNormal), normal, subnormal);
    return hn::BitCast(DI(), hn::Or(sign, code));
  }
  static std::uint8_t of(float value) { return to_float8<Float8>(value).bits; }
};

template <class Codes, typename Source>
float scale_head(const Source* from, std::int64_t elements, std::uint8_t* codes) {
  const DF df;
  const hn::Rebind<std::uint8_t, DF> d8;
  const float scale = largest_magnitude(from, elements) / Codes::kMax;
  if (!(scale > 0)) {
    std::fill_n(codes, elements, std::uint8_t{0});
    return scale;
  }
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  const VF divisor = hn::Set(df, scale);
  const VF largest = hn::Set(df, Codes::kMax);
  std::int64_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    const VF share = hn::Div(load_f32(df, from + i), divisor);
    const VF clamped = hn::Max(hn::Min(share, largest), hn::Neg(largest));
    hn::StoreU(hn::DemoteTo(d8, Codes::of(clamped)), d8, codes + i);
  }
  for (; i < elements; ++i) {
    codes[i] = Codes::of(std::clamp(widened(from[i]) / scale, -Codes::kMax, Codes::kMax));
  }
  return scale;
}

template <class Codes, typename Source>
void scale_heads(const ScaledRow& row) {
  const auto* from = reinterpret_cast<const Source*>(row.source);
  auto* codes = reinterpret_cast<std::uint8_t*>(row.codes);
  for (std::int64_t head = 0; head < row.heads; ++head) {
    row.scales[head * row.scale_stride] = scale_head<Codes>(from, row.head_dim, codes);
    from += row.head_dim;
    codes += row.head_dim;
  }
}

template <class Codes>
void scale_from(const ScaledRow& row) {
  if (row.source_dtype == DType::kF32) return scale_heads<Codes, float>(row);
  if (row.source_dtype == DType::kF16) return scale_heads<Codes, Float16>(row);
  scale_heads<Codes, BFloat16>(row);
}

}  // namespace

void scale_all(const ScaledRow& row) {
  if (row.target_dtype == DType::kInt8) return scale_from<Int8Codes>(row);
  if (row.target_dtype == DType::kFp8E4M3) return scale_from<Float8Codes<Float8E4M3>>(row);
  scale_from<Float8Codes<Float8E5M2>>(row);
}

void round_all(const float* from, std::int64_t elements, DType target_dtype, std::uint16_t* to) {
  const DF df;
  const DU du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(df));
  const bool to_bf16 = target_dtype == DType::kBF16;
  std::int64_t i = 0;
  if (to_bf16) {
    for (; i + lanes <= elements; i += lanes) {
      store_low_halves(bfloat16_bits(hn::BitCast(du, hn::LoadU(df, from + i))), to + i);
    }
  } else {
    for (; i + lanes <= elements; i += lanes) {
      store_low_halves(float16_bits(hn::BitCast(du, hn::LoadU(df, from + i))), to + i);
    }
  }
  for (; i < elements; ++i) {
    to[i] = to_bf16 ? to_bfloat16(from[i]).bits : to_float16(from[i]).bits;
  }
}

// Rows by turns: while one waits for the address translation of its place, the others' lines are
// written.
void stream_lines(std::span<const StreamedRow> rows, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d8;
  constexpr std::int64_t kTurnBytes = 256;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d8));
  for (std::int64_t begin = 0; begin < bytes; begin += kTurnBytes) {
    const std::int64_t end = std::min(bytes, begin + kTurnBytes);
    for (const StreamedRow& row : rows) {
      const auto* const from = reinterpret_cast<const std::uint8_t*>(row.from);
      auto* const to = reinterpret_cast<std::uint8_t*>(row.to);
      for (std::int64_t i = begin; i < end; i += step) {
        hn::Stream(hn::LoadU(d8, from + i), d8, to + i);
      }
    }
  }
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(round_all);
HWY_EXPORT(scale_all);
HWY_EXPORT(stream_lines);

void round_to_16_bits(const float* from, std::int64_t elements, DType target_dtype,
                      std::uint16_t* to) {
  HWY_DYNAMIC_DISPATCH(round_all)(from, elements, target_dtype, to);
}

void scale_row(const ScaledRow& row) {
  HWY_DYNAMIC_DISPATCH(scale_all)(row);
}

void stream_rows(std::span<const StreamedRow> rows, std::int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(stream_lines)(rows, bytes);
}

void end_streaming() {
  hwy::FlushStream();
}

}  // namespace stemma
#endif  // HWY_ONCE
