// Covers the benchmark of memory: a small cache is filled, and both page sizes have their line.
#include "cache/memory_bench.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

TEST(MemoryBench, HasALineForEachPageSizeOfACacheThatIsNearlyFull) {
  const auto lines = bench_memory({.cached_tokens = 200'000});
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  ASSERT_EQ(lines->size(), 2u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.params[1].first, "cached_tokens");
    EXPECT_GT(std::stoll(line.params[1].second), 190'000);
    EXPECT_GT(line.value, 0);
  }
}

}  // namespace
}  // namespace stemma
