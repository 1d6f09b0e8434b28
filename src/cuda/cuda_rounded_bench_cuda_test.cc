// The benchmark of products with rounded weights runs, in a shape that takes no time, and says what
// it measured.
#include "cuda/cuda_rounded_bench.h"
#include "device/cuda_bench_fixture.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

using CudaRoundedBenchTest = CudaFixture;

TEST_F(CudaRoundedBenchTest, EveryFormatHasALineForEachNumberOfRows) {
  CudaRoundedBenchOptions options;
  options.hidden = 64;
  options.intermediate = 72;
  options.qkv_columns = 96;
  options.rows = {1, 17};
  options.calls = 2;
  options.samples = 1;
  options.read_bytes = 64 << 10;
  const auto lines =
      lines_of([&](BenchSink sink) { return bench_cuda_rounded(device(), options, sink); });
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  ASSERT_EQ(lines->size(), 8u);
  for (const BenchLine& line : *lines) EXPECT_EQ(line.bench, "cuda_rounded");
  EXPECT_EQ((*lines)[0].params[0].second, "bf16");
  EXPECT_EQ((*lines)[3].params[0].second, "int8");
  EXPECT_EQ((*lines)[5].params[0].second, "int4");
  EXPECT_EQ((*lines)[7].params[0].second, "int4_shifted");
  EXPECT_EQ((*lines)[7].params[1].second, "17");
}

}  // namespace
}  // namespace stemma
