// The benchmark beside a neighbour runs and measures what it says, on a tiny model.
#include "engine/neighbour_bench.h"

#include <gtest/gtest.h>

#include "model/tiny_config.h"

namespace stemma {
namespace {

TEST(NeighbourBench, EveryLineHasFigureAndBound) {
  NeighbourBenchOptions options;
  options.model = tiny_model_config("qwen2");
  options.prefill_tokens = 32;
  options.prefill_steps = 2;
  options.decode_steps = 4;
  options.pairs = 2;
  const auto lines = bench_neighbour(options);
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.bench, "neighbour");
    EXPECT_GT(line.value, 0);
    EXPECT_GT(line.bound, 0);
    EXPECT_GT(line.ratio, 0);
  }
}

}  // namespace
}  // namespace stemma
