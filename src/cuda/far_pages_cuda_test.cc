// CudaRunner over pages that lie more than 2^31 elements behind a pool's first, as most do on a
// GPU: the bits of logits are those over a small pool. On the emulated GPU only what is touched
// takes memory.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/cuda_runner_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 52;  // longer than the windows
constexpr std::size_t kMemoryBytes = std::size_t{40} << 30;

class CudaFarPages : public CudaRunnerFixture {
 protected:
  void SetUp() override {
    CudaRunnerFixture::SetUp();
    if (IsSkipped() || device().traits().emulated) return;
    const auto has = static_cast<std::size_t>(device().traits().memory_bytes);
    if (has < kMemoryBytes) GTEST_SKIP() << "this GPU has no more than " << has << " bytes";
  }
  simt::Machine::Options machine_options() const override {
    simt::Machine::Options options = CudaRunnerFixture::machine_options();
    options.memory_bytes = kMemoryBytes;
    return options;
  }

  // The last tokens are computed one by one.
  std::vector<float> logits(const CudaVariant& variant, const std::vector<TokenId>& tokens) {
    const CudaBench alone = bench(variant);
    RunnerTrial& trial = *alone.trial;
    EXPECT_TRUE(trial.step({{{trial.add(tokens), kTokens - 3}}}).ok());
    EXPECT_TRUE(trial.finish(0, 1).ok());
    return trial.logits(0);
  }

  void expect_same_bits_far_away(CudaVariant variant) {
    for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
      SCOPED_TRACE(std::string(kv_layout_name(layout)));
      variant.layout = layout;
      variant.pages_before = 0;
      const auto tokens = prompt(kTokens, 6);
      const auto near = logits(variant, tokens);
      for (const float value : near) ASSERT_TRUE(std::isfinite(value));
      const std::int64_t row_elements = bench(variant).runner->pool_shape().row_elements();
      variant.pages_before = (std::int64_t{1} << 31) / (variant.page_size * row_elements);
      expect_same_bits(near, logits(variant, tokens));
    }
  }
};

TEST_F(CudaFarPages, OfKeysAndValues) {
  write_model("llama2");
  for (const DType dtype : {DType::kBF16, DType::kInt8}) {
    SCOPED_TRACE(std::string(dtype_name(dtype)));
    expect_same_bits_far_away({.dtype = dtype});
  }
}

TEST_F(CudaFarPages, OfWindows) {
  write_model("gemma2");
  expect_same_bits_far_away({});
}

TEST_F(CudaFarPages, OfLatentRows) {
  write_model("deepseek_v2_lite");
  expect_same_bits_far_away({});
}

TEST_F(CudaFarPages, OfChosenTokens) {
  write_model("llama2");
  write_calibration();
  expect_same_bits_far_away({.dial = SparseDial{.dense_tokens = 16, .kept_of = 4}});
}

}  // namespace
}  // namespace stemma
