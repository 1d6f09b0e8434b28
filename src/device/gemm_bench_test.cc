// GEMM benchmark: every case gives a complete line. Speeds are not asserted.
#include "device/gemm_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace stemma {
namespace {

TEST(GemmBenchTest, EveryCaseHasItsBound) {
  GemmBenchOptions options;
  options.threads_max = 1;
  options.prefill_rows = 2;
  options.repeats = 1;
  options.weight_bytes = 1;
  const Result<std::vector<BenchLine>> lines = bench_gemm(options);
  ASSERT_TRUE(lines.ok());
  ASSERT_GE(lines->size(), 21u);
  for (const BenchLine& line : *lines) {
    if (line.repeats == 0) {
      EXPECT_EQ(line.params.back().first, "missing");
      continue;
    }
    EXPECT_EQ(line.bench, "gemm");
    EXPECT_GT(line.value, 0);
    EXPECT_TRUE(std::isfinite(line.bound) && line.bound > 0);
    EXPECT_NEAR(line.ratio, line.value / line.bound, 1e-9 * line.ratio);
    const bool rounded = line.params[3].second.starts_with("int");
    EXPECT_TRUE(line.bound_name == (rounded ? "pair_peak" : "fma_peak") ||
                line.bound_name == "read_bandwidth" || line.bound_name == "openblas_sgemm");
    EXPECT_EQ(line.params.front().first, "rows");
  }
}

}  // namespace
}  // namespace stemma
