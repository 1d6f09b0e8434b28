// Load benchmark: every case gives a complete line. Speeds are not asserted.
#include "model/load_bench.h"

#include <gtest/gtest.h>

#include "model/tiny_config.h"

namespace stemma {
namespace {

TEST(LoadBenchTest, EveryCaseHasItsBound) {
  const auto lines =
      bench_load({.config = tiny_model_config("llama2"), .threads = 2, .repeats = 1});
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  ASSERT_EQ(lines->size(), 6u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.bench, "load");
    EXPECT_GT(line.value, 0);
    EXPECT_GT(line.bound, 0);
    EXPECT_EQ(line.bound_name, "plain_read");
  }
  EXPECT_EQ(lines->front().params.front().second, "bf16");
  EXPECT_EQ(lines->back().params.front().second, "int8+int4");
}

}  // namespace
}  // namespace stemma
