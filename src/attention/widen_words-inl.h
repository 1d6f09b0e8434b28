// Widening: elements of every dtype as vectors of f32, from memory or from words of 32 bits that
// hold a few of them each. Codes of scaled dtypes too, without their scales: exactly code × 2^n,
// the same n however they are widened (code_factor).
//
// Included by the kernel files after Highway, once for each SIMD target; never by anything else.
#if defined(STEMMA_ATTENTION_WIDEN_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEMMA_ATTENTION_WIDEN_WORDS_INL_H_
#undef STEMMA_ATTENTION_WIDEN_WORDS_INL_H_
#else
#define STEMMA_ATTENTION_WIDEN_WORDS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "base/float16.h"
#include "base/float8.h"
#include "device/load_f32-inl.h"
#include "device/unroll.h"
#include "stemma/kv_shape.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kLanes = static_cast<std::int64_t>(
    hwy::HWY_NAMESPACE::MaxLanes(hwy::HWY_NAMESPACE::ScalableTag<float>()));

using FloatTag = hwy::HWY_NAMESPACE::ScalableTag<float>;
using Floats = hwy::HWY_NAMESPACE::Vec<FloatTag>;
using WordTag = hwy::HWY_NAMESPACE::ScalableTag<std::uint32_t>;
using Words = hwy::HWY_NAMESPACE::Vec<WordTag>;

// Elements in a word.
template <typename T>
constexpr int kWordElements = static_cast<int>(4 / sizeof(T));

// Codes are widened to code × 2^n, which saves a step an element: an int8 where it lies highest in
// its word (2^24), an fp8 with its own exponent in the place of an f32's (2^-120, 2^-112). The
// inverse is multiplied into what there is less of, in shares that leave everything between room of
// at least 2^30 on both sides: values of 2^-30 ... 2^30 lose nothing.
struct CodeFactors {
  float query = 1;
  float k_scale = 1;  // query × k_scale is the inverse
  float v_scale = 1;
  float sum = 1;  // of weighted values, in each partition; v_scale × sum is the inverse
};

constexpr CodeFactors code_factors(DType dtype) {
  if (dtype == DType::kInt8) return {1, 0x1p-24f, 0x1p-24f, 1};
  if (dtype == DType::kFp8E4M3) return {0x1p60f, 0x1p60f, 0x1p90f, 0x1p30f};
  if (dtype == DType::kFp8E5M2) return {0x1p60f, 0x1p52f, 0x1p82f, 0x1p30f};
  return {};
}

// The elements of one word of every lane, in memory's order: the low part comes first.
HWY_INLINE void widen_words(Words words, const float*, Floats (&out)[1]) {
  out[0] = hwy::HWY_NAMESPACE::BitCast(FloatTag(), words);
}

HWY_INLINE void widen_words(Words words, const BFloat16*, Floats (&out)[2]) {
  namespace hn = hwy::HWY_NAMESPACE;
  out[0] = hn::BitCast(FloatTag(), hn::ShiftLeft<16>(words));
  out[1] = hn::BitCast(FloatTag(), hn::And(words, hn::Set(WordTag(), 0xFFFF0000u)));
}

HWY_INLINE void widen_words(Words words, const Float16*, Floats (&out)[2]) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<WordTag> di;
  const hn::Rebind<std::uint16_t, WordTag> d16;
  const auto widen = [&](Words halves) HWY_ATTR {
    HWY_ALIGN Float16 narrow[static_cast<std::size_t>(kLanes)];
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, halves)), d16,
               reinterpret_cast<std::uint16_t*>(narrow));
    return load_f32(FloatTag(), narrow);
  };
  out[0] = widen(hn::And(words, hn::Set(WordTag(), 0xFFFFu)));
  out[1] = widen(hn::ShiftRight<16>(words));
}

// One of the elements of the words: the same as widen_words gives, for loops that have no registers
// to hold all of them. REQUIRES: `element` is known when this is compiled.
HWY_INLINE Floats widen_one(Words words, const std::int8_t*, int element) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<WordTag> di;
  const Words highest = hn::Set(WordTag(), 0xFF000000u);
  const auto widen = [&](Words code)
                         HWY_ATTR { return hn::ConvertTo(FloatTag(), hn::BitCast(di, code)); };
  if (element == 0) return widen(hn::ShiftLeft<24>(words));
  if (element == 1) return widen(hn::And(hn::ShiftLeft<16>(words), highest));
  if (element == 2) return widen(hn::And(hn::ShiftLeft<8>(words), highest));
  return widen(hn::And(words, highest));
}

// An fp8 whose exponent and mantissa lie where those of an f32 do is that f32 times a power of two,
// 2 to the difference of the biases; subnormal or not.
template <typename Float8>
struct Float8Bits {
  static constexpr int kDown = Float8::kMantissaBits == 3 ? 4 : 3;  // from the top; the sign stays
  static constexpr int kUp = 23 - Float8::kMantissaBits;            // from the bottom
  static constexpr std::uint32_t kMask = 0x80000000u | (0x7Fu << kUp);

  // Bits that are not the code's are cleared.
  template <class D>
  static HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> value(
      D d, hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::RebindToUnsigned<D>> placed) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::And(placed, hn::Set(du, kMask)));
  }
};

template <typename Float8>
HWY_INLINE Floats widen_float8(Words words, int element) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Bits = Float8Bits<Float8>;
  constexpr FloatTag d;
#if HWY_TARGET == HWY_SCALAR
  const hn::RebindToSigned<WordTag> di;
  const auto place = [&](Words highest) HWY_ATTR {
    return hn::BitCast(WordTag(), hn::ShiftRight<Bits::kDown>(hn::BitCast(di, highest)));
  };
  if (element == 0) return Bits::value(d, place(hn::ShiftLeft<24>(words)));
  if (element == 1) return Bits::value(d, place(hn::ShiftLeft<16>(words)));
  if (element == 2) return Bits::value(d, place(hn::ShiftLeft<8>(words)));
  return Bits::value(d, place(words));
#else
  // Two at a time, in the halves of a word: the even elements' and the odd ones'.
  const hn::Repartition<std::int16_t, WordTag> d16;
  const auto halves = hn::BitCast(d16, words);
  const auto highest = element % 2 == 0 ? hn::ShiftLeft<8>(halves) : halves;
  const Words placed = hn::BitCast(WordTag(), hn::ShiftRight<Bits::kDown>(highest));
  return Bits::value(d, element < 2 ? hn::ShiftLeft<16>(placed) : placed);
#endif
}

HWY_INLINE Floats widen_one(Words words, const Float8E4M3*, int element) {
  return widen_float8<Float8E4M3>(words, element);
}

HWY_INLINE Floats widen_one(Words words, const Float8E5M2*, int element) {
  return widen_float8<Float8E5M2>(words, element);
}

template <typename T>
HWY_INLINE void widen_words(Words words, const T* type, Floats (&out)[4]) {
  STEMMA_UNROLL
  for (int element = 0; element < 4; ++element) out[element] = widen_one(words, type, element);
}

// Codes side by side, their signs in all bits above them.
template <class D>
HWY_INLINE auto load_codes(D, const void* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::int8_t, D> d8;
  return hn::PromoteTo(di, hn::LoadU(d8, static_cast<const std::int8_t*>(from)));
}

}  // namespace

template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load_f32(D d, const std::int8_t* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::ConvertTo(d, hn::ShiftLeft<24>(load_codes(d, from)));
}

template <class D, typename Float8>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load_float8(D d, const Float8* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Bits = Float8Bits<Float8>;
  const hn::RebindToUnsigned<D> du;
  return Bits::value(d, hn::BitCast(du, hn::ShiftLeft<Bits::kUp>(load_codes(d, from))));
}

template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load_f32(D d, const Float8E4M3* from) {
  return load_float8(d, from);
}

template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load_f32(D d, const Float8E5M2* from) {
  return load_float8(d, from);
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once for each target
