// Rounding a group of f32 values to whole numbers: what weights and activations have in common.
//
// Included by kernel files after Highway, once for each SIMD target; never by anything else. Every
// step is exact or rounded once to nearest even, so that all targets give the same codes.
#if defined(STEMMA_DEVICE_QUANTISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_DEVICE_QUANTISE_INL_H_
#undef STEMMA_DEVICE_QUANTISE_INL_H_
#else
#define STEMMA_DEVICE_QUANTISE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "device/packed_weights.h"
#include "device/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {

inline constexpr std::int64_t kGroup = PackedWeights::kGroupInputs;

// The bits of infinity: those of finite magnitudes are less, those of NaN more.
inline constexpr std::int32_t kInfinityBits = 0x7F800000;
// The bits of the least magnitude that is not taken for zero: 32767 / it is finite.
inline constexpr std::int32_t kLeastBits = 0x09000000;  // 2^-109

// The largest magnitude of a group, as bits, which compare as the magnitudes do.
inline std::int32_t largest_magnitude(const float* values) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> d32;
  const auto magnitude = hn::Set(d32, 0x7FFFFFFF);
  auto largest = hn::Zero(d32);
  for (std::int64_t i = 0; i < kGroup; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    largest = hn::Max(largest, hn::And(hn::BitCast(d32, hn::LoadU(d, values + i)), magnitude));
  }
  HWY_ALIGN std::int32_t lanes[hn::MaxLanes(d32)];
  hn::Store(largest, d32, lanes);
  return *std::max_element(lanes, lanes + hn::Lanes(d32));
}

// codes = values x factor, to nearest even. REQUIRES: |value x factor| < 32767.5.
inline void round_group(const float* values, float factor, std::int16_t* codes) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::int16_t, decltype(d)> d16;
  const auto by = hn::Set(d, factor);
  for (std::int64_t i = 0; i < kGroup; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, values + i), by));
    hn::StoreU(hn::DemoteTo(d16, rounded), d16, codes + i);
  }
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
