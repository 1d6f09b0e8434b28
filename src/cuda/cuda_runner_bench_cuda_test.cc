// The benchmark of a model's steps runs, in a shape that takes no time, and says what it measured.
#include <tuple>

#include "cuda/cuda_runner_bench.h"
#include "device/cuda_bench_fixture.h"
#include "device/cuda_fixture.h"
#include "model/tiny_config.h"
#include "model/weights.h"

namespace stemma {
namespace {

using CudaRunnerBenchTest = CudaFixture;

TEST_F(CudaRunnerBenchTest, EveryWayHasALineForPrefillAndForEachNumberOfRequests) {
  CudaRunnerBenchOptions options;
  options.model = tiny_model_config("llama3");
  options.decode_requests = {1, 3};
  options.context_tokens = 20;
  options.step_tokens = 40;
  options.decode_steps = 2;
  options.samples = 1;
  options.read_bytes = 64 << 10;
  using enum CudaRunnerWay;
  for (const auto& [way, products, weights] : {std::tuple{kLibrary, "library", "bf16"},
                                               {kLibraryUnrecorded, "library", "bf16"},
                                               {kOrdered, "ordered", "bf16"},
                                               {kInt8, "ordered", "int8"},
                                               {kInt4, "ordered", "int4"}}) {
    const auto lines =
        lines_of([&](BenchSink sink) { return bench_cuda_runner(device(), options, way, sink); });
    ASSERT_TRUE(lines.ok()) << to_string(lines.error());
    ASSERT_EQ(lines->size(), 3u);
    for (const BenchLine& line : *lines) {
      EXPECT_EQ(line.bench, "cuda_step");
      EXPECT_GT(line.value, 0);
      EXPECT_GT(line.bound, 0);
      EXPECT_EQ(line.params[2].second, products);
      EXPECT_EQ(line.params[3].second, way == kLibraryUnrecorded ? "no" : "yes");
      EXPECT_EQ(line.params[4].second, weights);
    }
    EXPECT_EQ((*lines)[0].bound_name, "library_products");
    EXPECT_EQ((*lines)[2].bound_name, "read_bandwidth");
    EXPECT_EQ((*lines)[2].params[1].second, "3");
  }
}

TEST(CudaRunnerBenchOptions, TheDefaultIsAModelOfEightBillionParameters) {
  double parameters = 0;
  for (const TensorSpec& tensor : needed_tensors(default_cuda_runner_bench().model)) {
    double elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= static_cast<double>(extent);
    parameters += elements;
  }
  EXPECT_NEAR(parameters, 8.03e9, 0.005e9);
}

}  // namespace
}  // namespace stemma
