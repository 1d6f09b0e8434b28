// Machine probe: its loops compute what they claim to, and every bound comes out positive. Speeds
// are not asserted.
#include "device/machine_probe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/prng.h"
#include "device/machine_probe_kernel.h"
#include "device/simd_target.h"

namespace stemma {
namespace {

TEST(MachineProbeTest, ReadsEveryByteOnEveryTarget) {
  ThreadPool pool(1);
  Prng prng(3);
  Buffer buffer = std::move(Buffer::allocate(64 * 64)).value();
  std::uint64_t expected = 0;
  for (std::uint64_t& word : buffer.as<std::uint64_t>()) {
    word = prng();
    expected ^= word;
  }
  for (const std::string_view target : simd_target_names()) {
    ASSERT_TRUE(try_select_simd_target(target));
    EXPECT_EQ(read_lines(buffer.bytes(), buffer.size_bytes()), expected) << target;
  }
  select_best_simd_target();
}

TEST(MachineProbeTest, CountsItsMultiplyAdds) {
  for (const std::string_view target : simd_target_names()) {
    ASSERT_TRUE(try_select_simd_target(target));
    float sink = 0.5f;
    const std::int64_t once = multiply_add_rounds(1, sink);
    EXPECT_GT(once, 0);
    EXPECT_EQ(multiply_add_rounds(3, sink), 3 * once);
    EXPECT_TRUE(std::isfinite(sink));
    EXPECT_NE(sink, 0.5f);
  }
  select_best_simd_target();
}

TEST(MachineProbeTest, CountsItsProductsOfPairs) {
  for (const std::string_view target : simd_target_names()) {
    ASSERT_TRUE(try_select_simd_target(target));
    float unused = 0.5f;
    std::int32_t sink = 3;
    const std::int64_t once = multiply_add_pairs_rounds(1, sink);
    EXPECT_EQ(once, 2 * multiply_add_rounds(1, unused)) << "twice as many lanes";
    EXPECT_EQ(multiply_add_pairs_rounds(3, sink), 3 * once);
    EXPECT_NE(sink, 3);
    EXPECT_LT(std::abs(sink), 1 << 20) << "sums that grow would overflow";
  }
  select_best_simd_target();
}

TEST(MachineProbeTest, MeasuresPositiveBounds) {
  ThreadPool pool(2);
  EXPECT_GT(llc_bytes(), 0u);
  EXPECT_GT(fma_peak_gflop_per_s(pool), 0);
  EXPECT_GT(fma_peak_now_gflop_per_s(pool), 0);
  EXPECT_GT(pair_peak_gflop_per_s(pool), 0);
  EXPECT_GT(pair_peak_now_gflop_per_s(pool), 0);
  EXPECT_GT(two_core_ratio(pool), 0);
  constexpr std::size_t kSmall = std::size_t{8} << 20;
  Result<MachineProbe> probe = MachineProbe::create(pool, kSmall);
  ASSERT_TRUE(probe.ok());
  EXPECT_LE(probe->size_bytes(), kSmall);
  EXPECT_GT(probe->read_gb_per_s(pool), 0);
  EXPECT_GT(probe->copy_gb_per_s(pool), 0);
  EXPECT_GT(probe->compare_gb_per_s(pool), 0);
}

}  // namespace
}  // namespace stemma
