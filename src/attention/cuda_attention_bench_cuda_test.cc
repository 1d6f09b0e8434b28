// The benchmarks of attention on a GPU run, in a shape that takes no time, and say what they
// measured.
#include <string>
#include <string_view>
#include <vector>

#include "attention/cuda_attention_bench.h"
#include "device/cuda_bench_fixture.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

class CudaAttentionBenchTest : public CudaFixture {
 protected:
  using Bench = Status (*)(CudaDevice&, const CudaAttentionBenchOptions&, BenchSink);

  Result<std::vector<BenchLine>> run(Bench bench);
  bool has_warpgroups() { return device().traits().capability == 90; }
};

constexpr CudaAttentionBenchOptions kSmall = {.requests = 2,
                                              .context_tokens = 70,
                                              .prefill_tokens = 40,
                                              .sparse_requests = 2,
                                              .sparse_context_tokens = 70,
                                              .gemm_extent = 64,
                                              .runs = 1,
                                              .samples = 1};

Result<std::vector<BenchLine>> CudaAttentionBenchTest::run(Bench bench) {
  return lines_of([&](BenchSink sink) { return bench(device(), kSmall, sink); });
}

std::string param_of(const BenchLine& line, std::string_view wanted) {
  for (const auto& [name, value] : line.params) {
    if (name == wanted) return value;
  }
  return "";
}

TEST_F(CudaAttentionBenchTest, DecodeHasALineForEachKindOfRowsAndForSharedBegins) {
  const auto lines = run(bench_cuda_decode);
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  ASSERT_EQ(lines->size(), 8u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.bench, "cuda_attention");
    EXPECT_EQ(line.bound_name, "read_bandwidth");
  }
  EXPECT_EQ((*lines)[0].params[0].second, "decode");
  EXPECT_EQ((*lines)[6].params[0].second, "decode_shared");
  EXPECT_EQ((*lines)[7].params[0].second, "decode_latent");
}

TEST_F(CudaAttentionBenchTest, DecodeOverCodesHasALineForEachTypeOfThem) {
  const auto lines = run(bench_cuda_decode_codes);
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  ASSERT_EQ(lines->size(), 3u);
  EXPECT_EQ(param_of((*lines)[0], "dtype"), "fp8_e4m3");
  EXPECT_EQ(param_of((*lines)[2], "dtype"), "int8");
}

TEST_F(CudaAttentionBenchTest, LatentRowsByWarpgroupsHaveTheBitsOfOthers) {
  const auto lines = run(bench_cuda_hopper_latent);
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  ASSERT_EQ(lines->size(), has_warpgroups() ? 1u : 0u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.params[0].second, "decode_latent_hopper");
    EXPECT_EQ(param_of(line, "same_bits"), "yes");
  }
}

TEST_F(CudaAttentionBenchTest, SparseRowsHaveLinesOfBytesAndOfWhatTheyGain) {
  const auto lines = run(bench_cuda_sparse);
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  ASSERT_EQ(lines->size(), 4u);
  EXPECT_EQ((*lines)[0].params[0].second, "decode_sparse");
  EXPECT_EQ((*lines)[0].unit, "gb/s");
  EXPECT_EQ((*lines)[1].params[0].second, "sparse_gain");
  // 70 tokens of 512 bytes against 70 labels of 16 and 9 tokens.
  EXPECT_DOUBLE_EQ((*lines)[1].bound, 70.0 * 512 / (70 * 16 + 9 * 512));
}

TEST_F(CudaAttentionBenchTest, PrefillHasALineForEachGroupAndOneOfCodes) {
  const auto lines = run(bench_cuda_prefill);
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[0].params[0].second, "prefill");
  EXPECT_EQ((*lines)[0].bound_name, "dense_product");
  EXPECT_EQ((*lines)[0].unit, "tflop/s");
  const auto codes = run(bench_cuda_prefill_codes);
  ASSERT_TRUE(codes.ok()) << codes.error().detail;
  ASSERT_EQ(codes->size(), 1u);
  EXPECT_EQ(param_of((*codes)[0], "dtype"), "fp8_e4m3");
}

TEST_F(CudaAttentionBenchTest, HopperPrefillHasTheSameLinesWhereTheGpuHasItsProducts) {
  const auto lines = run(bench_cuda_hopper_prefill);
  ASSERT_TRUE(lines.ok()) << lines.error().detail;
  ASSERT_EQ(lines->size(), has_warpgroups() ? 2u : 0u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.params[0].second, "prefill_hopper");
    EXPECT_EQ(line.bound_name, "dense_product");
    EXPECT_EQ(param_of(line, "same_bits"), "yes");
  }
}

#ifdef STEMMA_SIMT
// What was measured before is all that is known of a GPU that fails.
TEST_F(CudaAttentionBenchTest, LinesBeforeAFailureAreGiven) {
  int given = 0;
  const Status done = bench_cuda_decode(device(), kSmall, [&](const BenchLine&) {
    if (++given == 2) machine().fail_after_kernels(1);
  });
  EXPECT_FALSE(done.ok());
  EXPECT_EQ(given, 2);
}
#endif

}  // namespace
}  // namespace stemma
