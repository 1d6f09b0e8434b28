#include "grammar/forms_bench.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

TEST(FormsBench, MeasuresEachForm) {
  const std::vector<BenchLine> lines = bench_forms({.vocab_tokens = 2'000, .tokens = 5});
  ASSERT_EQ(lines.size(), 4U);
  for (const BenchLine& line : lines) {
    EXPECT_EQ(line.bench, "forms");
    EXPECT_GT(line.value, 0);
    EXPECT_GT(line.bound, 0);
    EXPECT_EQ(line.repeats, 5);
  }
}

}  // namespace
}  // namespace stemma
