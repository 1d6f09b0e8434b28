#include "grammar/forms_bench.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

TEST(FormsBench, MeasuresEachForm) {
  const std::vector<BenchLine> lines = bench_forms({.vocab_tokens = 2'000, .tokens = 5});
  ASSERT_EQ(lines.size(), 10U);
  for (const BenchLine& line : lines) {
    EXPECT_EQ(line.bench, "forms");
    EXPECT_GT(line.value, 0);
    EXPECT_GT(line.bound, 0);
  }
  EXPECT_EQ(lines[0].repeats, 1) << "where nothing was found before";
  EXPECT_EQ(lines[1].repeats, 4) << "behind it";
}

}  // namespace
}  // namespace stemma
