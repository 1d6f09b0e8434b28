// Codes of rounded weights as pairs of 16 bits, and what multiplies such pairs.
//
// Included by gemm_quantised_cpu.cc and machine_probe_cpu.cc after Highway, once for each SIMD
// target; never by anything else.
#if defined(STEMMA_DEVICE_CODE_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_DEVICE_CODE_PAIRS_INL_H_
#undef STEMMA_DEVICE_CODE_PAIRS_INL_H_
#else
#define STEMMA_DEVICE_CODE_PAIRS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "device/weight_type.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::RebindToSigned<hn::ScalableTag<float>>;
using V32 = hn::Vec<D32>;

inline constexpr D32 kD32;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(D32()));

// Lanes of 32 bits: two neighbouring inputs of one output, or of one row, in 16 bits each. `zero`
// is that, and stays it: one for a whole tile, for compilers with sanitizers take minutes over one
// for each product.
#if HWY_TARGET == HWY_SCALAR
inline std::int32_t low_half(std::int32_t pair) {
  return static_cast<std::int16_t>(pair & 0xFFFF);
}
inline V32 add_dots(V32 sums, V32 a, V32 b, V32& /*zero*/) {
  const std::int32_t x = hn::GetLane(a);
  const std::int32_t y = hn::GetLane(b);
  return hn::Add(sums, hn::Set(kD32, low_half(x) * low_half(y) + (x >> 16) * (y >> 16)));
}
inline V32 widen_pairs(const std::byte* codes) {
  std::int8_t pair[2];
  std::memcpy(pair, codes, sizeof(pair));
  return hn::Set(kD32, static_cast<std::int32_t>((pair[0] & 0xFFFF) | pair[1] * 0x10000));
}
template <int kStep>
inline V32 nibble_pairs(V32 words) {
  const auto bits = static_cast<std::uint32_t>(hn::GetLane(words)) << (12 - 4 * kStep);
  const std::int32_t low = low_half(static_cast<std::int32_t>(bits)) >> 12;
  const std::int32_t high = static_cast<std::int32_t>(bits & 0xF0000000U) >> 28;
  return hn::Set(kD32, (low & 0xFFFF) | high * 0x10000);
}
#else
using D16 = hn::Repartition<std::int16_t, D32>;
inline constexpr D16 kD16;

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

inline V32 load_shifts(const std::byte* from) {
  const hn::Rebind<std::int8_t, D32> d8;
  return hn::PromoteTo(kD32, hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(from)));
}

inline V32 load_words(const std::byte* from) {
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

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
