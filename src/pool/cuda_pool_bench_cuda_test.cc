// The benchmarks of a GPU's pool run, in a shape that takes no time, and say what they measured.
#include "device/cuda_bench_fixture.h"
#include "device/cuda_fixture.h"
#include "pool/cuda_pool_bench.h"

namespace stemma {
namespace {

using CudaPoolBenchTest = CudaFixture;

CudaPoolBenchOptions small_options() {
  CudaPoolBenchOptions options;
  options.pool_bytes = 256 << 10;
  options.stored_tokens = {16, 40};
  options.moved_bytes = {32 << 10, 128 << 10};
  options.sample_bytes = 64 << 10;
  options.samples = 2;
  return options;
}

std::string what_of(const BenchLine& line) {
  std::string what;
  for (const auto& [name, value] : line.params) {
    if (name == "what" || name == "way") what += value + " ";
  }
  return what;
}

TEST_F(CudaPoolBenchTest, StoresHaveALineForEachNumberOfTokensAndLoads) {
  const auto lines =
      lines_of([&](BenchSink sink) { return bench_cuda_store(device(), small_options(), sink); });
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  ASSERT_EQ(lines->size(), 6u);
  EXPECT_EQ((*lines)[3].bench, "cuda_store");
  EXPECT_EQ((*lines)[3].bound_name, "device_copy");
  EXPECT_EQ((*lines)[3].params[0].second, "40");
  EXPECT_EQ((*lines)[3].params[1].second, "4");
  EXPECT_EQ((*lines)[3].params[2].second, "yes");
  EXPECT_EQ((*lines)[4].params[2].second, "no");
}

TEST_F(CudaPoolBenchTest, PagesHaveALineForEachWayAndDirection) {
  const auto lines =
      lines_of([&](BenchSink sink) { return bench_cuda_pages(device(), small_options(), sink); });
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  std::vector<std::string> whats;
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.bound_name, "link");
    whats.push_back(what_of(line));
  }
  ASSERT_EQ(whats.size(), 20u);  // pieces of 8 KiB of both sizes, of 32 KiB of the larger one
  for (const char* what :
       {"out kernels ", "out engines ", "in kernels ", "in engines ", "backup ", "promote "}) {
    EXPECT_THAT(whats, testing::Contains(what));
  }
}

}  // namespace
}  // namespace stemma
