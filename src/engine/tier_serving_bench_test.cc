// The benchmark of serving with tiers runs and measures what it says, on a tiny model.
#include "engine/tier_serving_bench.h"

#include <gtest/gtest.h>

#include "model/random_model.h"

namespace stemma {
namespace {

TEST(TierServingBench, EveryCaseGivesALine) {
  TierServingBenchOptions options;
  options.model = tiny_model_config("qwen2");
  options.prefix_tokens = 128;
  options.unshared_tokens = 64;
  options.pairs = 2;
  const auto lines = bench_tier_serving(options);
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  ASSERT_EQ(lines->size(), 3u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.bench, "tier");
    EXPECT_GT(line.value, 0);
    EXPECT_GT(line.bound, 0);
    EXPECT_GT(line.ratio, 0);
  }
}

}  // namespace
}  // namespace stemma
