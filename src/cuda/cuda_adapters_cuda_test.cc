// Adapters on a GPU: logits near those of the CPU, bits that depend on a row and its adapter alone,
// and models without an adapter's changes as they are without adapters.
#include <cmath>

#include "cuda/cuda_adapters.h"
#include "cuda/cuda_runner_fixture.h"
#include "model/random_adapter.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 40;

class CudaAdaptersTest : public CudaRunnerFixture {
 protected:
  // The model, and two adapters of it: of all that can be changed, and of two matrices a layer.
  void write_all(std::string_view name, WeightType type) {
    write_model(name, type);
    write_adapter(all_,
                  {.config = config(), .targets = all_targets_, .rank = 4, .alpha = 2, .seed = 11});
    write_adapter(some_, {.config = config(),
                          .targets = targets_,
                          .rank = 6,
                          .alpha = 2,
                          .ranks = {{targets_.front(), 9}},
                          .alphas = {{targets_.back(), 3}},
                          .type = WeightType::kBf16,
                          .seed = 12});
  }
  static void write_adapter(const TempDirectory& directory, const RandomAdapterOptions& options) {
    ASSERT_TRUE(write_random_adapter(directory.path(), options).ok());
  }
  std::vector<AdapterSource> sources() const {
    return {{"all", all_.path()}, {"some", some_.path()}};
  }

  CudaBench adapted(CudaVariant variant = {}) {
    variant.adapters = sources();
    return bench(variant);
  }
  std::vector<float> adapted_alone(const CudaVariant& variant, const std::vector<TokenId>& tokens,
                                   AdapterId adapter, std::int64_t chunk_tokens) {
    const CudaBench alone = adapted(variant);
    EXPECT_TRUE(alone.trial->finish(alone.trial->add(tokens, adapter), chunk_tokens).ok());
    return alone.trial->logits(0);
  }

  // As cuda_runner_cuda_test allows, and two roundings more a layer: what is added to gate and up.
  // Changes are about as large as what they change: larger ones would carry roundings further.
  double distance_allowed(WeightType type) const {
    const double sums = std::ldexp(std::sqrt(160.0), -24);
    const double unit = type == WeightType::kF32 ? sums : std::ldexp(1.0, -8);
    return unit * std::sqrt(static_cast<double>(10 * config().layers + 1));
  }

  void expect_logits_of_cpu(std::string_view name, WeightType type, DType dtype) {
    write_all(name, type);
    const auto tokens = prompt(kTokens, 3);
    const auto plain = logits_of_cpu(dtype, tokens);
    for (const AdapterId adapter : {AdapterId(0), AdapterId(1)}) {
      SCOPED_TRACE(adapter.value());
      const auto expected = logits_of_cpu(dtype, tokens, {.adapters = sources()}, adapter);
      const auto got = adapted_alone({.dtype = dtype}, tokens, adapter, kTokens);
      EXPECT_LT(relative_distance(expected, got), distance_allowed(type));
      EXPECT_GT(relative_distance(plain, got), 4 * distance_allowed(type)) << "it changes a lot";
    }
  }

  // Prompts in pieces and then single tokens, of which graphs are made, with both adapters and
  // none.
  void expect_bits_alone() {
    const AdapterId adapters[] = {AdapterId(1), AdapterId(), AdapterId(0), AdapterId(1)};
    const CudaBench together = adapted({.page_size = 4, .seed = 9});
    RunnerTrial& trial = *together.trial;
    for (std::uint64_t i = 0; i < 4; ++i) trial.add(prompt(20, 30 + i), adapters[i]);
    ASSERT_TRUE(trial.step({{{0, 7}, {1, 1}, {2, 11}}}).ok());
    ASSERT_TRUE(trial.step({{{3, 16}, {2, 5}, {1, 15}, {0, 9}}}).ok());
    for (int step = 0; step < 4; ++step) {
      ASSERT_TRUE(trial.step({{{0, 1}, {1, 1}, {2, 1}, {3, 1}}}).ok());
    }
    for (std::uint64_t i = 0; i < 4; ++i) {
      SCOPED_TRACE(i);
      const std::vector<float>& got = trial.logits(i);
      auto expected = adapted_alone({}, prompt(20, 30 + i), adapters[i], 20);
      expected.resize(got.size());
      expect_same_bits(expected, got);
    }
  }

  TempDirectory all_;
  TempDirectory some_;
  std::vector<std::string> all_targets_ = {};                   // of all_; empty: all
  std::vector<std::string> targets_ = {"v_proj", "down_proj"};  // of some_
};

TEST_F(CudaAdaptersTest, LogitsAreThoseOfTheCpu) {
  expect_logits_of_cpu("llama3", WeightType::kF32, DType::kF32);
  expect_logits_of_cpu("qwen2", WeightType::kBf16, DType::kBF16);
  expect_logits_of_cpu("gemma2", WeightType::kF32, DType::kF32);
  round_weights(WeightRounding::kInt4);
  expect_logits_of_cpu("llama3", WeightType::kBf16, DType::kBF16);
}

TEST_F(CudaAdaptersTest, WithoutAnAdapterBitsAreThoseOfAModelWithoutThem) {
  write_all("qwen3", WeightType::kBf16);
  const auto tokens = prompt(kTokens, 4);
  expect_same_bits(logits_alone({}, tokens, 16), adapted_alone({}, tokens, AdapterId(), 16));
}

TEST_F(CudaAdaptersTest, BitsDoNotDependOnWhoSharesTheBatch) {
  write_all("qwen2", WeightType::kBf16);
  expect_bits_alone();
}

// The second is of a larger rank than the first, and comes when steps of the first were recorded;
// the third gets the place, and the memory, of the one that went.
TEST_F(CudaAdaptersTest, ComeAndGoBetweenSteps) {
  write_all("qwen2", WeightType::kBf16);
  const CudaBench later = bench({});
  CudaRunner& runner = *later.runner;
  const auto place = [&](const AdapterSource& source) {
    auto adapter = runner.read_adapter(source, threads());
    ASSERT_TRUE(adapter.ok()) << to_string(adapter.error());
    ASSERT_TRUE(runner.place_adapter(std::move(adapter).value()).ok());
  };
  const auto expect_logits_of = [&](std::string_view name, AdapterId adapter, std::uint64_t seed) {
    SCOPED_TRACE(name);
    EXPECT_EQ(runner.adapters()->find(name).place(), adapter);
    const std::size_t request = later.trial->add(prompt(20, seed), adapter);
    ASSERT_TRUE(later.trial->finish(request, 1).ok());
    const AdapterId begun(name == "all" ? 0 : 1);
    expect_same_bits(adapted_alone({}, prompt(20, seed), begun, 20), later.trial->logits(request));
  };
  place({"all", all_.path()});
  expect_logits_of("all", AdapterId(0), 5);
  place({"some", some_.path()});
  expect_logits_of("some", AdapterId(1), 6);
  ASSERT_TRUE(runner.take_out_adapter("all").ok());
  runner.drop_ended_adapters();
  expect_logits_of("some", AdapterId(1), 7);
  place({"all", all_.path()});
  expect_logits_of("all", AdapterId(0), 8);
  expect_logits_of("some", AdapterId(1), 9);
  const std::size_t without = later.trial->add(prompt(20, 10));
  ASSERT_TRUE(later.trial->finish(without, 20).ok());
  expect_same_bits(logits_alone({}, prompt(20, 10), 20), later.trial->logits(without));
}

TEST_F(CudaAdaptersTest, OneThatIsRefusedLeavesTheOthers) {
  write_all("qwen2", WeightType::kBf16);
  const CudaBench later = bench({.adapters = {{"all", all_.path()}}});
  CudaRunner& runner = *later.runner;
  auto adapter = runner.read_adapter({"some", some_.path()}, threads());
  ASSERT_TRUE(adapter.ok());
  Adapter stranger = std::move(adapter).value();
  stranger.name = "all";
  EXPECT_EQ(runner.place_adapter(std::move(stranger)).error().code, ErrorCode::kInvalidArgument);
  const std::size_t request = later.trial->add(prompt(20, 3), AdapterId(1));
  EXPECT_EQ(later.trial->finish(request, 20).error().code, ErrorCode::kInvalidArgument)
      << "there is no adapter 1";
  const std::size_t kept = later.trial->add(prompt(20, 4), AdapterId(0));
  ASSERT_TRUE(later.trial->finish(kept, 20).ok());
  expect_same_bits(adapted_alone({}, prompt(20, 4), AdapterId(0), 20), later.trial->logits(kept));
}

#ifdef STEMMA_SIMT
TEST_F(CudaAdaptersTest, OneThatGetsNoMemoryLeavesTheOthersAndMayComeAgain) {
  write_all("qwen2", WeightType::kBf16);
  const CudaBench later = bench({.adapters = {{"all", all_.path()}}});
  CudaRunner& runner = *later.runner;
  const auto place = [&] {
    auto adapter = runner.read_adapter({"some", some_.path()}, threads());
    EXPECT_TRUE(adapter.ok());
    return runner.place_adapter(std::move(adapter).value());
  };
  const auto bits_of = [&](AdapterId adapter) {
    const std::size_t request = later.trial->add(prompt(20, 4), adapter);
    EXPECT_TRUE(later.trial->finish(request, 20).ok());
    return later.trial->logits(request);
  };
  machine().fail_allocations(1);
  EXPECT_EQ(place().error().code, ErrorCode::kOutOfMemory);
  EXPECT_FALSE(runner.adapters()->find("some"));
  expect_same_bits(adapted_alone({}, prompt(20, 4), AdapterId(0), 20), bits_of(AdapterId(0)));
  EXPECT_TRUE(place().ok());
  expect_same_bits(adapted_alone({}, prompt(20, 4), AdapterId(1), 20), bits_of(AdapterId(1)));
}
#endif

// Changes of W_UK and W_UV are absorbed as these are. One model compresses q, the other does not.
TEST_F(CudaAdaptersTest, LatentAttentionIsChangedAsOnTheCpu) {
  targets_ = {"kv_b_proj", "kv_a_proj_with_mqa", "q_proj"};
  expect_logits_of_cpu("deepseek_v2_lite", WeightType::kF32, DType::kF32);
  targets_ = {"kv_b_proj", "kv_a_proj_with_mqa", "q_b_proj"};
  expect_logits_of_cpu("deepseek_v3", WeightType::kF32, DType::kF32);
  all_targets_ = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"};
  expect_logits_of_cpu("deepseek_v3", WeightType::kBf16, DType::kBF16);
}

TEST_F(CudaAdaptersTest, LatentBitsDoNotDependOnWhoSharesTheBatch) {
  targets_ = {"kv_b_proj", "q_a_proj"};
  write_all("deepseek_v3", WeightType::kBf16);
  expect_bits_alone();
}

// Experts, those that every token passes, and routers.
TEST_F(CudaAdaptersTest, MixturesAreChangedAsOnTheCpu) {
  targets_ = {"gate", "down_proj"};
  expect_logits_of_cpu("qwen3_moe", WeightType::kF32, DType::kF32);
  targets_ = {"gate_proj", "up_proj"};
  expect_logits_of_cpu("deepseek_v2", WeightType::kF32, DType::kF32);
}

// Where rounding moves two scores past each other a row goes to another expert than on the CPU, and
// those behind it see that: fewer than one row in four.
TEST_F(CudaAdaptersTest, Of16BitsMixturesAreChangedAsOnTheCpuButWhereScoresAreNear) {
  for (const std::string_view name : {"qwen3_moe", "deepseek_v3"}) {
    targets_ = {"up_proj", "down_proj"};
    write_all(name, WeightType::kBf16);
    const auto tokens = prompt(kTokens, 3);
    for (const AdapterId adapter : {AdapterId(0), AdapterId(1)}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(adapter.value()));
      const auto expected = logits_of_cpu(DType::kBF16, tokens, {.adapters = sources()}, adapter);
      const auto got = adapted_alone({}, tokens, adapter, kTokens);
      const auto distances = distances_of_rows(expected, got, kTokens);
      EXPECT_LT(distances[kTokens * 3 / 4], distance_allowed(WeightType::kBf16));
    }
  }
}

TEST_F(CudaAdaptersTest, BitsOfMixturesDoNotDependOnWhoSharesTheBatch) {
  targets_ = {"gate", "up_proj", "down_proj"};
  write_all("qwen3_moe", WeightType::kBf16);
  expect_bits_alone();
}

// The first that changes experts comes when others are there, and steps of these were recorded.
TEST_F(CudaAdaptersTest, OneOfExpertsComesBesideOthers) {
  targets_ = {"q_proj", "v_proj"};
  write_all("qwen3_moe", WeightType::kBf16);
  const CudaBench later = bench({.adapters = {{"some", some_.path()}}});
  const auto expect_logits_of = [&](AdapterId here, AdapterId begun, std::uint64_t seed) {
    const std::size_t request = later.trial->add(prompt(20, seed), here);
    ASSERT_TRUE(later.trial->finish(request, 1).ok());
    expect_same_bits(adapted_alone({}, prompt(20, seed), begun, 20), later.trial->logits(request));
  };
  expect_logits_of(AdapterId(0), AdapterId(1), 5);
  auto adapter = later.runner->read_adapter({"all", all_.path()}, threads());
  ASSERT_TRUE(adapter.ok());
  ASSERT_TRUE(later.runner->place_adapter(std::move(adapter).value()).ok());
  expect_logits_of(AdapterId(1), AdapterId(0), 6);
  expect_logits_of(AdapterId(0), AdapterId(1), 7);
}

}  // namespace
}  // namespace stemma
