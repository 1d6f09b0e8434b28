// The benchmark of the whole engine runs and measures what it says, on a tiny model.
#include "engine/engine_bench.h"

#include <gtest/gtest.h>

#include "model/tiny_config.h"

namespace stemma {
namespace {

TEST(EngineBench, EveryCaseGivesALineForEachNumberOfThreads) {
  EngineBenchOptions options;
  options.model = tiny_model_config("qwen2");
  options.prefill_tokens = 32;
  options.decode_requests = 2;
  options.repeats = 2;
  options.decode_steps = 2;
  const auto lines = bench_engine(options);
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  ASSERT_EQ(lines->size(), 6u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.bench, "engine");
    EXPECT_GT(line.value, 0);
    EXPECT_GT(line.bound, 0);
    EXPECT_GT(line.ratio, 0);
  }
}

}  // namespace
}  // namespace stemma
