// Rounding: f32 to bf16 and f16 with the integer steps of base/float16.h, a vector at a time: the
// same on every target, NaN and subnormals included. The scalar functions there are the reference
// twin and finish a ragged tail.
//
// Streaming: whole lines written past the caches, which saves reading them first.
#include "base/float16.h"
#include "device/simd_targets.h"  // before Highway
#include "pool/store_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pool/store_cpu.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

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

}  // namespace

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

void stream_lines(const std::byte* from, std::int64_t bytes, std::byte* to) {
  const hn::ScalableTag<std::uint8_t> d8;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d8));
  const auto* const source = reinterpret_cast<const std::uint8_t*>(from);
  auto* const target = reinterpret_cast<std::uint8_t*>(to);
  for (std::int64_t i = 0; i < bytes; i += step) {
    hn::Stream(hn::LoadU(d8, source + i), d8, target + i);
  }
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(round_all);
HWY_EXPORT(stream_lines);

void round_to_16_bits(const float* from, std::int64_t elements, DType target_dtype,
                      std::uint16_t* to) {
  HWY_DYNAMIC_DISPATCH(round_all)(from, elements, target_dtype, to);
}

void stream_bytes(const std::byte* from, std::int64_t bytes, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(stream_lines)(from, bytes, to);
}

void end_streaming() {
  hwy::FlushStream();
}

}  // namespace stemma
#endif  // HWY_ONCE
