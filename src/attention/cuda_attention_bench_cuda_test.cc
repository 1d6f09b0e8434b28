// The benchmarks of attention on a GPU run, in a shape that takes no time, and say what they
// measured.
#include <string>

#include "attention/cuda_attention_bench.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

using CudaAttentionBenchTest = CudaFixture;

constexpr CudaAttentionBenchOptions kSmall = {.requests = 2,
                                              .context_tokens = 70,
                                              .prefill_tokens = 40,
                                              .sparse_requests = 2,
                                              .sparse_context_tokens = 70,
                                              .gemm_extent = 64,
                                              .runs = 1,
                                              .samples = 1};

TEST_F(CudaAttentionBenchTest, DecodeHasALineForEachKindOfRowsAndForSharedBegins) {
  const auto lines = bench_cuda_decode(device(), kSmall);
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  const bool hopper = device().traits().capability == 90;
  ASSERT_EQ(lines->size(), hopper ? 12u : 11u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.bench, "cuda_attention");
    EXPECT_EQ(line.bound_name, "read_bandwidth");
  }
  EXPECT_EQ((*lines)[0].params[0].second, "decode");
  EXPECT_EQ((*lines)[9].params[0].second, "decode_shared");
  EXPECT_EQ((*lines)[10].params[0].second, "decode_latent");
  if (hopper) {
    EXPECT_EQ((*lines)[11].params[0].second, "decode_latent_hopper");
  }
}

TEST_F(CudaAttentionBenchTest, SparseRowsHaveLinesOfBytesAndOfWhatTheyGain) {
  const auto lines = bench_cuda_sparse(device(), kSmall);
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  ASSERT_EQ(lines->size(), 4u);
  EXPECT_EQ((*lines)[0].params[0].second, "decode_sparse");
  EXPECT_EQ((*lines)[0].unit, "gb/s");
  EXPECT_EQ((*lines)[1].params[0].second, "sparse_gain");
  // 70 tokens of 512 bytes against 70 labels of 16 and 9 tokens.
  EXPECT_DOUBLE_EQ((*lines)[1].bound, 70.0 * 512 / (70 * 16 + 9 * 512));
}

TEST_F(CudaAttentionBenchTest, PrefillHasALineForEachGroupAndOneOfCodes) {
  const auto lines = bench_cuda_prefill(device(), kSmall);
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  ASSERT_EQ(lines->size(), 3u);
  EXPECT_EQ((*lines)[0].params[0].second, "prefill");
  EXPECT_EQ((*lines)[0].bound_name, "dense_product");
  EXPECT_EQ((*lines)[0].unit, "tflop/s");
}

TEST_F(CudaAttentionBenchTest, HopperPrefillHasTheSameLinesWhereTheGpuHasItsProducts) {
  const auto lines = bench_cuda_hopper_prefill(device(), kSmall);
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  if (device().traits().capability != 90) {
    EXPECT_TRUE(lines->empty());
    return;
  }
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[0].params[0].second, "prefill_hopper");
  EXPECT_EQ((*lines)[0].bound_name, "dense_product");
}

}  // namespace
}  // namespace stemma
