// The row kernels. Reference twins in double are in row_ops_test.cc.
//
// A row is walked in whole vectors; its ragged end is copied into a padded vector, goes through the
// same function and is copied back. So an element's bits depend neither on its lane nor on how much
// follows it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "device/row_kernels.h"
#include "device/simd_targets.h"  // before Highway
#include "device/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/row_ops_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// After foreach_target.
#include <hwy/contrib/math/math-inl.h>

#include "device/load_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr D kD;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));

// The last `n` < kLanes values from `from`, padded with zeros.
template <typename T>
V load_end(const T* from, std::int64_t n) {
  HWY_ALIGN T padded[kLanes] = {};
  std::memcpy(padded, from, static_cast<std::size_t>(n) * sizeof(T));
  return load_f32(kD, padded);
}

void store_end(V values, float* to, std::int64_t n) {
  HWY_ALIGN float padded[kLanes];
  hn::Store(values, kD, padded);
  std::memcpy(to, padded, static_cast<std::size_t>(n) * sizeof(float));
}

// The sum of squares, in kChains chains of vectors that take turns, added pairwise at the end.
float sum_of_squares(const float* x, std::int64_t n) {
  constexpr std::int64_t kChains = 4;
  V sums[kChains];
  STEMMA_UNROLL
  for (V& sum : sums) sum = hn::Zero(kD);
  std::int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
    STEMMA_UNROLL
    for (std::int64_t chain = 0; chain < kChains; ++chain) {
      const V values = hn::LoadU(kD, x + i + chain * kLanes);
      sums[chain] = hn::MulAdd(values, values, sums[chain]);
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    const V values = hn::LoadU(kD, x + i);
    sums[0] = hn::MulAdd(values, values, sums[0]);
  }
  const V values = load_end(x + i, n - i);
  sums[1] = hn::MulAdd(values, values, sums[1]);
  const V all = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  return hn::GetLane(hn::SumOfLanes(kD, all));
}

void rms_norm(const float* x, const float* weight, float epsilon, float* out, std::int64_t n) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const V scale = hn::Set(kD, 1.0f / std::sqrt(mean + epsilon));
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V scaled = hn::Mul(hn::LoadU(kD, x + i), scale);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(kD, weight + i)), kD, out + i);
  }
  const V scaled = hn::Mul(load_end(x + i, n - i), scale);
  store_end(hn::Mul(scaled, load_end(weight + i, n - i)), out + i, n - i);
}

struct Pair {
  V first;
  V second;
};

Pair rotated(const Pair& x, V cosine, V sine) {
  return Pair{hn::NegMulAdd(x.second, sine, hn::Mul(x.first, cosine)),
              hn::MulAdd(x.first, sine, hn::Mul(x.second, cosine))};
}

void rotate_halves(float* x, const float* cosines, const float* sines, std::int64_t half) {
  std::int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Pair pair{hn::LoadU(kD, x + i), hn::LoadU(kD, x + half + i)};
    const Pair turned = rotated(pair, hn::LoadU(kD, cosines + i), hn::LoadU(kD, sines + i));
    hn::StoreU(turned.first, kD, x + i);
    hn::StoreU(turned.second, kD, x + half + i);
  }
  const std::int64_t rest = half - i;
  const Pair pair{load_end(x + i, rest), load_end(x + half + i, rest)};
  const Pair turned = rotated(pair, load_end(cosines + i, rest), load_end(sines + i, rest));
  store_end(turned.first, x + i, rest);
  store_end(turned.second, x + half + i, rest);
}

// exp overflows to infinity at 89 and is not defined far beyond: 100 stands for everything larger.
// NaN passes through the numerator.
V silu(V gate) {
  const V exponent = hn::Min(hn::Set(kD, 100.0f), hn::Neg(gate));
  return hn::Div(gate, hn::Add(hn::Set(kD, 1.0f), hn::Exp(kD, exponent)));
}

void silu_multiply(const float* gate, const float* up, float* out, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Mul(silu(hn::LoadU(kD, gate + i)), hn::LoadU(kD, up + i)), kD, out + i);
  }
  const V product = hn::Mul(silu(load_end(gate + i, n - i)), load_end(up + i, n - i));
  store_end(product, out + i, n - i);
}

// Beyond 20 the tanh is ±1; what stands for it keeps its cube finite.
V gelu(V whole_gate) {
  const V gate = hn::Max(hn::Set(kD, -20.0f), hn::Min(hn::Set(kD, 20.0f), whole_gate));
  const V cube = hn::Mul(hn::Mul(gate, gate), gate);
  const V inner =
      hn::Mul(hn::Set(kD, 0.797884560802865356f), hn::MulAdd(hn::Set(kD, 0.044715f), cube, gate));
  return hn::Mul(hn::Mul(hn::Set(kD, 0.5f), whole_gate),
                 hn::Add(hn::Set(kD, 1.0f), hn::Tanh(kD, inner)));
}

void gelu_multiply(const float* gate, const float* up, float* out, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Mul(gelu(hn::LoadU(kD, gate + i)), hn::LoadU(kD, up + i)), kD, out + i);
  }
  const V product = hn::Mul(gelu(load_end(gate + i, n - i)), load_end(up + i, n - i));
  store_end(product, out + i, n - i);
}

void cap_by_tanh(float* x, float cap, std::int64_t n) {
  const V limit = hn::Set(kD, cap);
  const auto capped = [&](V value) { return hn::Mul(limit, hn::Tanh(kD, hn::Div(value, limit))); };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(capped(hn::LoadU(kD, x + i)), kD, x + i);
  store_end(capped(load_end(x + i, n - i)), x + i, n - i);
}

void add_to(float* x, const float* y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(kD, x + i), hn::LoadU(kD, y + i)), kD, x + i);
  }
  store_end(hn::Add(load_end(x + i, n - i), load_end(y + i, n - i)), x + i, n - i);
}

template <typename T>
void convert_typed(const T* values, float* out, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(load_f32(kD, values + i), kD, out + i);
  store_end(load_end(values + i, n - i), out + i, n - i);
}

void convert_to_f32(const void* values, WeightType type, float* out, std::int64_t n) {
  switch (type) {
    case WeightType::kF32:
      return convert_typed(static_cast<const float*>(values), out, n);
    case WeightType::kF16:
      return convert_typed(static_cast<const Float16*>(values), out, n);
    case WeightType::kBf16:
      return convert_typed(static_cast<const BFloat16*>(values), out, n);
  }
}

using Wide = hn::ScalableTag<double>;
constexpr Wide kWide;
constexpr std::int64_t kWideLanes = static_cast<std::int64_t>(hn::MaxLanes(Wide()));

// Comparisons with NaN are false; Highway's exp takes no infinity.
void exp_of_scaled(const float* x, double zero, double unit, double* out, std::int64_t n) {
  const hn::Rebind<float, Wide> narrow;
  const auto least = hn::Set(kWide, -690.0);
  const auto exponential = [&](const float* from) {
    const auto distance =
        hn::Sub(hn::PromoteTo(kWide, hn::LoadU(narrow, from)), hn::Set(kWide, zero));
    const auto scaled = hn::Div(distance, hn::Set(kWide, unit));
    const auto counts = hn::Ge(scaled, least);
    return hn::IfThenElseZero(counts, hn::Exp(kWide, hn::IfThenElse(counts, scaled, least)));
  };
  std::int64_t i = 0;
  for (; i + kWideLanes <= n; i += kWideLanes) hn::StoreU(exponential(x + i), kWide, out + i);
  HWY_ALIGN float padded[kWideLanes] = {};
  HWY_ALIGN double exponentials[kWideLanes];
  std::copy(x + i, x + n, padded);
  hn::Store(exponential(padded), kWide, exponentials);
  std::copy(exponentials, exponentials + (n - i), out + i);
}

// Where `wanted` is for the first time; n if nowhere.
std::int64_t find(const float* x, std::int64_t n, float wanted) {
  const V same = hn::Set(kD, wanted);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    if (!hn::AllFalse(kD, hn::Eq(hn::LoadU(kD, x + i), same))) break;
  }
  return std::find(x + i, x + n, wanted) - x;
}

// The largest value first, in chains of vectors that take turns, then where it is. Comparisons with
// NaN are false, so NaN never replaces anything.
std::int64_t argmax(const float* x, std::int64_t n) {
  constexpr std::int64_t kChains = 4;
  V largest[kChains];
  STEMMA_UNROLL
  for (V& chain : largest) chain = hn::Set(kD, -std::numeric_limits<float>::infinity());
  const auto raise = [&](V& chain, const float* from) {
    const V values = hn::LoadU(kD, from);
    chain = hn::IfThenElse(hn::Gt(values, chain), values, chain);
  };
  std::int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
    STEMMA_UNROLL
    for (std::int64_t chain = 0; chain < kChains; ++chain) {
      raise(largest[chain], x + i + chain * kLanes);
    }
  }
  for (; i + kLanes <= n; i += kLanes) raise(largest[0], x + i);
  STEMMA_UNROLL
  for (std::int64_t chain = 1; chain < kChains; ++chain) {
    largest[0] = hn::IfThenElse(hn::Gt(largest[chain], largest[0]), largest[chain], largest[0]);
  }
  HWY_ALIGN float lanes[kLanes];  // Highway's portable MaxOfLanes does not know minus infinity
  hn::Store(largest[0], kD, lanes);
  float best = *std::max_element(lanes, lanes + kLanes);
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  const std::int64_t found = find(x, n, best);
  return found == n ? 0 : found;
}

}  // namespace

// A function, so that HWY_EXPORT can dispatch on it.
const RowKernels& kernels_of_target() {
  static constexpr RowKernels kKernels{rms_norm,       rotate_halves, silu_multiply,
                                       gelu_multiply,  cap_by_tanh,   add_to,
                                       convert_to_f32, argmax,        exp_of_scaled};
  return kKernels;
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(kernels_of_target);

const RowKernels& row_kernels() {
  return HWY_DYNAMIC_DISPATCH(kernels_of_target)();
}

}  // namespace stemma
#endif  // HWY_ONCE
