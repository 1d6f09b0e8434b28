// The benchmark of a step runs and measures what it says, on a small cache.
#include "engine/step_bench.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

TEST(StepBench, EveryCaseGivesALine) {
  StepBenchOptions options;
  options.cases = {{.requests = 4, .cached_pages = 600, .context_tokens = 64},
                   {.requests = 2, .cached_pages = 300, .context_tokens = 32}};
  options.windows = 2;
  const auto lines = bench_step(options);
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  ASSERT_EQ(lines->size(), 2u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.bench, "step");
    EXPECT_GT(line.value, 0);
    EXPECT_GT(line.bound, 0);
    EXPECT_GT(line.ratio, 0);
  }
}

}  // namespace
}  // namespace stemma
