// The benchmark of drawing tokens runs, over few logits, and says what it measured.
#include "cuda/cuda_sample_bench.h"
#include "device/cuda_bench_fixture.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

using CudaSampleBenchTest = CudaFixture;

TEST_F(CudaSampleBenchTest, EveryRuleHasALineForEachNumberOfRows) {
  const auto lines = lines_of([&](BenchSink sink) {
    return bench_cuda_sampling(device(), {.rows = {1, 2}, .columns = 40, .calls = 1, .samples = 1},
                               sink);
  });
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  ASSERT_EQ(lines->size(), 10u);
  for (const BenchLine& line : *lines) EXPECT_EQ(line.bench, "cuda_sample");
  EXPECT_EQ(lines->back().params[0].second, "all");
  EXPECT_EQ(lines->back().params[1].second, "2");
}

}  // namespace
}  // namespace stemma
