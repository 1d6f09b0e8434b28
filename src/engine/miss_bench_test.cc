// The benchmark of prompts that share nothing runs and measures what it says, on a tiny model.
#include "engine/miss_bench.h"

#include <gtest/gtest.h>

#include "model/tiny_config.h"

namespace stemma {
namespace {

TEST(MissBench, GivesALine) {
  MissBenchOptions options;
  options.model = tiny_model_config("qwen2");
  options.requests = 2;
  options.prompt_tokens = 24;
  options.output_tokens = 4;
  options.pairs = 3;
  const auto lines = bench_misses(options);
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  ASSERT_EQ(lines->size(), 1u);
  EXPECT_EQ(lines->front().bench, "misses");
  EXPECT_GT(lines->front().value, 0);
  EXPECT_GT(lines->front().bound, 0);
  EXPECT_GT(lines->front().ratio, 0);
}

}  // namespace
}  // namespace stemma
