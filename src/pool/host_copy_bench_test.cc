// Host copy benchmark: every case gives a complete line. Speeds are not asserted.
#include "pool/host_copy_bench.h"

#include <gtest/gtest.h>

#include <cmath>

namespace stemma {
namespace {

TEST(HostCopyBench, EveryCaseHasItsBound) {
  HostCopyBenchOptions options;
  options.pool_bytes = std::int64_t{8} << 20;
  options.moved_bytes = std::int64_t{1} << 20;
  options.threads_max = 1;
  const Result<std::vector<BenchLine>> lines = bench_host_copies(options);
  ASSERT_TRUE(lines.ok());
  // The sum, the copy with its sum; two shapes × two layouts × two directions.
  EXPECT_EQ(lines->size(), 10u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.bench, "tier");
    EXPECT_GT(line.value, 0);
    EXPECT_TRUE(std::isfinite(line.bound) && line.bound > 0);
    EXPECT_NEAR(line.ratio, line.value / line.bound, 1e-9 * line.ratio);
    EXPECT_EQ(line.bound_name, "memcpy");
    EXPECT_EQ(line.params.front().first, "what");
  }
}

}  // namespace
}  // namespace stemma
