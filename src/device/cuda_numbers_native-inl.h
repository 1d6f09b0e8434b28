// Stored types and f32 in the dialect of kernels, in CUDA C++. cuda_dialect.h says what each
// function is.
//
// Thread:     see cuda_dialect.h.
// Memory:     none.
// Cost:       one instruction or two a number; of f32 and whole numbers as a comment says.
// Not here:   the same on the emulated GPU (cuda_numbers_simt-inl.h).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace stemma {

STEMMA_ON_DEVICE float widen(float value) {
  return value;
}
STEMMA_ON_DEVICE float widen(BFloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
STEMMA_ON_DEVICE float widen(Float16 value) {
  return __half2float(__ushort_as_half(value.bits));
}
STEMMA_ON_DEVICE float widen(Float8E4M3 value) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(value.bits, __NV_E4M3)));
}
STEMMA_ON_DEVICE float widen(Float8E5M2 value) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(value.bits, __NV_E5M2)));
}
STEMMA_ON_DEVICE float widen(std::int8_t value) {
  return static_cast<float>(value);
}

// An instruction for two codes, of whole numbers two.
template <typename Code>
STEMMA_ON_DEVICE void codes_as_halves(std::uint32_t word, std::uint32_t (&to)[2]);
template <>
STEMMA_ON_DEVICE void codes_as_halves<Float8E4M3>(std::uint32_t word, std::uint32_t (&to)[2]) {
#if __CUDA_ARCH__ >= 890
  // Written so that the conversion takes either half of the word as it is.
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(to[0]), "=r"(to[1])
      : "r"(word));
#else
  // No such instruction: as parts of f16, whose exponents count from 8 below, codes are 2^-8 of
  // what they are. (A NaN, which only rows have whose scale is one, becomes a number.)
  const __half2 up = __floats2half2_rn(256.0f, 256.0f);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t codes = __byte_perm(word, 0, i == 0 ? 0x1404u : 0x3424u);
    const std::uint32_t bits = (codes & 0x80008000u) | (codes & 0x7F007F00u) >> 1;
    const __half2 halves = __hmul2(*reinterpret_cast<const __half2*>(&bits), up);
    to[i] = *reinterpret_cast<const std::uint32_t*>(&halves);
  }
#endif
}
// The first byte of a number of 16 bits.
template <>
STEMMA_ON_DEVICE void codes_as_halves<Float8E5M2>(std::uint32_t word, std::uint32_t (&to)[2]) {
  to[0] = __byte_perm(word, 0, 0x1404);
  to[1] = __byte_perm(word, 0, 0x3424);
}
// Behind the leading digits of 2^10, which is taken off again.
template <>
STEMMA_ON_DEVICE void codes_as_halves<std::int8_t>(std::uint32_t word, std::uint32_t (&to)[2]) {
  const std::uint32_t raised = word ^ 0x80808080u;  // each 128 more than it is
  const __half2 above = __floats2half2_rn(1152.0f, 1152.0f);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t bits = __byte_perm(raised, 0x64646464u, i == 0 ? 0x4140u : 0x4342u);
    const __half2 halves = __hsub2(*reinterpret_cast<const __half2*>(&bits), above);
    to[i] = *reinterpret_cast<const std::uint32_t*>(&halves);
  }
}
STEMMA_ON_DEVICE std::uint32_t swap_middle_bytes(std::uint32_t word) {
  return __byte_perm(word, 0, 0x3120);
}

template <typename T>
STEMMA_ON_DEVICE T narrow(float value);
template <>
STEMMA_ON_DEVICE float narrow<float>(float value) {
  return value;
}
template <>
STEMMA_ON_DEVICE BFloat16 narrow<BFloat16>(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}
template <>
STEMMA_ON_DEVICE Float16 narrow<Float16>(float value) {
  return {__half_as_ushort(__float2half_rn(value))};
}
template <>
STEMMA_ON_DEVICE Float8E4M3 narrow<Float8E4M3>(float value) {
  return {__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3)};
}
template <>
STEMMA_ON_DEVICE Float8E5M2 narrow<Float8E5M2>(float value) {
  return {__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2)};
}
// To -127 … 127, nearest, ties to even.
template <>
STEMMA_ON_DEVICE std::int8_t narrow<std::int8_t>(float value) {
  return static_cast<std::int8_t>(__float2int_rn(fminf(fmaxf(value, -127.0f), 127.0f)));
}

// Four codes in one word, the first in the lowest byte.
template <typename Code>
STEMMA_ON_DEVICE std::uint32_t narrow_codes(const float (&values)[4]);
template <__nv_fp8_interpretation_t kKind>
STEMMA_ON_DEVICE std::uint32_t narrow_float8_codes(const float (&values)[4]) {
  const unsigned low =
      __nv_cvt_float2_to_fp8x2(make_float2(values[0], values[1]), __NV_SATFINITE, kKind);
  const unsigned high =
      __nv_cvt_float2_to_fp8x2(make_float2(values[2], values[3]), __NV_SATFINITE, kKind);
  return __byte_perm(low, high, 0x5410);
}
template <>
STEMMA_ON_DEVICE std::uint32_t narrow_codes<Float8E4M3>(const float (&values)[4]) {
  return narrow_float8_codes<__NV_E4M3>(values);
}
template <>
STEMMA_ON_DEVICE std::uint32_t narrow_codes<Float8E5M2>(const float (&values)[4]) {
  return narrow_float8_codes<__NV_E5M2>(values);
}
// Added to 1.5 x 2^23 a number is rounded to a whole one, whose last byte is the code.
template <>
STEMMA_ON_DEVICE std::uint32_t narrow_codes<std::int8_t>(const float (&values)[4]) {
  unsigned bits[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    bits[i] = __float_as_uint(fminf(fmaxf(values[i], -127.0f), 127.0f) + 12582912.0f);
  }
  return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040),
                     0x5410);
}

// Two neighbours in one word, the first in the low half.
template <typename T>
STEMMA_ON_DEVICE std::uint32_t narrow_pair(float low, float high);
template <>
STEMMA_ON_DEVICE std::uint32_t narrow_pair<BFloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
template <>
STEMMA_ON_DEVICE std::uint32_t narrow_pair<Float16>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// The first of `a` minus the first of `b`, and the second minus the second, each rounded once.
template <typename T>
STEMMA_ON_DEVICE std::uint32_t subtract_pairs(std::uint32_t a, std::uint32_t b);
template <>
STEMMA_ON_DEVICE std::uint32_t subtract_pairs<BFloat16>(std::uint32_t a, std::uint32_t b) {
  const __nv_bfloat162 difference = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                            *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const std::uint32_t*>(&difference);
}
template <>
STEMMA_ON_DEVICE std::uint32_t subtract_pairs<Float16>(std::uint32_t a, std::uint32_t b) {
  const __half2 difference =
      __hsub2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const std::uint32_t*>(&difference);
}

}  // namespace stemma
