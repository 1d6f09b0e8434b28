// Reading is measured as the kernels read: vectors in order, several accumulators, prefetched
// ahead.
#include "device/machine_probe_kernel.h"
#include "device/prefetch.h"
#include "device/simd_targets.h"  // before Highway
#include "device/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/machine_probe_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/code_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Enough independent chains to fill two multiply-add units of latency 4 or 5, few enough for 16
// registers.
constexpr int kChains = 12;
constexpr int kStepsPerRound = 64;
constexpr std::size_t kPrefetchBytes = 2048;

}  // namespace

std::int64_t run_multiply_adds(std::int64_t rounds, float& sink) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, 0.999f);
  const V term = hn::Set(d, sink);
  V chains[kChains];
  STEMMA_UNROLL
  for (int i = 0; i < kChains; ++i) chains[i] = hn::Set(d, static_cast<float>(i));
  for (std::int64_t step = 0; step < rounds * kStepsPerRound; ++step) {
    STEMMA_UNROLL
    for (V& chain : chains) chain = hn::MulAdd(chain, factor, term);
  }
  V sum = hn::Zero(d);
  STEMMA_UNROLL
  for (const V& chain : chains) sum = hn::Add(sum, chain);
  sink += hn::GetLane(hn::SumOfLanes(d, sum));
  return rounds * kStepsPerRound * kChains * 2 * static_cast<std::int64_t>(hn::Lanes(d));
}

// What is multiplied is what was summed, so that no product is that of the step before. A sum's low
// half counts -2 times, which changes its sign, and its high half, 0 or -1, less than 256 times: it
// stays below 1,024 for any number of rounds.
std::int64_t run_multiply_add_pairs(std::int64_t rounds, std::int32_t& sink) {
  const V32 factors = hn::Set(kD32, (sink & 0xff) << 16 | 0xfffe);
  V32 chains[kChains];
  STEMMA_UNROLL
  for (int i = 0; i < kChains; ++i) chains[i] = hn::Set(kD32, i);
  V32 zero = hn::Zero(kD32);
  for (std::int64_t step = 0; step < rounds * kStepsPerRound; ++step) {
    STEMMA_UNROLL
    for (V32& chain : chains) chain = add_dots(chain, chain, factors, zero);
  }
  V32 sum = zero;
  STEMMA_UNROLL
  for (const V32& chain : chains) sum = hn::Add(sum, chain);
  sink ^= hn::GetLane(hn::SumOfLanes(kD32, sum));
  return rounds * kStepsPerRound * kChains * 4 * static_cast<std::int64_t>(hn::Lanes(kD32));
}

std::uint64_t run_read_lines(const std::byte* from, std::size_t size_bytes) {
  const hn::ScalableTag<std::uint64_t> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t kLineBytes = 64;
  constexpr std::size_t kVectors = kLineBytes / sizeof(std::uint64_t) / hn::MaxLanes(d);
  V sums[2 * kVectors];
  STEMMA_UNROLL
  for (V& sum : sums) sum = hn::Zero(d);
  const std::byte* const end = from + size_bytes / (2 * kLineBytes) * (2 * kLineBytes);
  for (; from != end; from += 2 * kLineBytes) {
    prefetch_soon(from + kPrefetchBytes);
    prefetch_soon(from + kPrefetchBytes + kLineBytes);
    const auto* const words = reinterpret_cast<const std::uint64_t*>(from);
    STEMMA_UNROLL
    for (std::size_t i = 0; i < 2 * kVectors; ++i) {
      sums[i] = hn::Xor(sums[i], hn::Load(d, words + i * hn::MaxLanes(d)));
    }
  }
  V all = hn::Zero(d);
  STEMMA_UNROLL
  for (const V& sum : sums) all = hn::Xor(all, sum);
  HWY_ALIGN std::uint64_t lanes[hn::MaxLanes(d)];
  hn::Store(all, d, lanes);
  std::uint64_t digest = 0;
  for (const std::uint64_t lane : lanes) digest ^= lane;
  return digest;
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(run_multiply_adds);
HWY_EXPORT(run_multiply_add_pairs);
HWY_EXPORT(run_read_lines);

std::int64_t multiply_add_rounds(std::int64_t rounds, float& sink) {
  return HWY_DYNAMIC_DISPATCH(run_multiply_adds)(rounds, sink);
}

std::int64_t multiply_add_pairs_rounds(std::int64_t rounds, std::int32_t& sink) {
  return HWY_DYNAMIC_DISPATCH(run_multiply_add_pairs)(rounds, sink);
}

std::uint64_t read_lines(const std::byte* from, std::size_t size_bytes) {
  return HWY_DYNAMIC_DISPATCH(run_read_lines)(from, size_bytes);
}

}  // namespace stemma
#endif  // HWY_ONCE
