// The benchmark of experts runs, in a shape that takes no time, and says what it measured.
#include "cuda/cuda_experts_bench.h"
#include "device/cuda_bench_fixture.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

using CudaExpertsBenchTest = CudaFixture;

TEST_F(CudaExpertsBenchTest, ProductsAndTheWholeHaveALineForEachNumberOfRows) {
  const auto lines = lines_of([&](BenchSink sink) {
    return bench_cuda_experts(device(),
                              {.hidden = 64,
                               .width = 16,
                               .experts = 8,
                               .row_experts = 3,
                               .rows = {1, 9},
                               .calls = 2,
                               .samples = 1,
                               .read_bytes = 64 << 10},
                              sink);
  });
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  ASSERT_EQ(lines->size(), 4u);
  for (const BenchLine& line : *lines) EXPECT_EQ(line.bench, "cuda_experts");
  EXPECT_EQ((*lines)[0].params[0].second, "products");
  EXPECT_EQ((*lines)[3].params[0].second, "mixture");
  EXPECT_EQ((*lines)[3].params[1].second, "9");
}

}  // namespace
}  // namespace stemma
