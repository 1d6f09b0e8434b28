// Loading a vector of f32 from memory that holds f32, f16 or bf16: exact, the same values as
// base/float16.h.
//
// Included by kernel files after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_DEVICE_LOAD_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_DEVICE_LOAD_F32_INL_H_
#undef STEMMA_DEVICE_LOAD_F32_INL_H_
#else
#define STEMMA_DEVICE_LOAD_F32_INL_H_
#endif

#include <hwy/highway.h>

#include "base/float16.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {

template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load_f32(D d, const float* from) {
  return hwy::HWY_NAMESPACE::LoadU(d, from);
}

template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load_f32(D d, const BFloat16* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<hwy::bfloat16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(from)));
}

template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load_f32(D d, const Float16* from) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // Highway's portable conversion does not know infinity and NaN.
  HWY_ALIGN float values[hn::MaxLanes(d)];
  for (std::size_t i = 0; i < hn::MaxLanes(d); ++i) values[i] = to_float(from[i]);
  return hn::Load(d, values);
#else
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
