// Logits under an adapter against the double-precision reference, whose matrices are W + scale · B
// A: in every family, with all that an adapter can change there changed, the largest error of a row
// is below 1e-4 of its largest logit; and rows beside them without an adapter have the logits, bit
// for bit, of a model that was loaded without any.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "model/model_runner.h"
#include "model/random_adapter.h"
#include "model/runner_trial.h"
#include "numerics/random_reference.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 60;
constexpr std::uint64_t kSeed = 17;

// Adds scale · B A of each changed matrix to the model's own.
void merge(const RandomAdapterOptions& options, double scale, ReferenceModel::Tensors& tensors) {
  const std::vector<TensorValues> changes = random_adapter_tensors(options);
  const std::string prefix = "base_model.model.";
  const std::string suffix = ".lora_A.weight";
  for (std::size_t i = 0; i < changes.size(); i += 2) {
    const std::string& name = changes[i].spec.name;
    const ReferenceModel::Row down = stored(changes[i].values, options.type);
    const ReferenceModel::Row up = stored(changes[i + 1].values, options.type);
    const auto path = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
    ReferenceModel::Row& matrix = tensors.at(path + ".weight");
    const auto rank = static_cast<std::size_t>(options.rank);
    const std::size_t inputs = down.size() / rank;
    for (std::size_t at = 0; at < matrix.size(); ++at) {
      double sum = 0;
      for (std::size_t r = 0; r < rank; ++r) {
        sum += up[at / inputs * rank + r] * down[r * inputs + at % inputs];
      }
      matrix[at] += scale * sum;
    }
  }
}

// Writes a model and two adapters of it, and computes requests with each and with none, side by
// side.
class AdapterNumerics : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    config_ = tiny_model_config(GetParam());
    ASSERT_TRUE(write_random_model(model_.path(), {.config = config_, .seed = kSeed}).ok());
    adapters_[0] = {.config = config_, .rank = 3, .alpha = 6, .seed = 5};
    adapters_[1] = {.config = config_,
                    .rank = 20,
                    .alpha = 5,
                    .by_root = true,
                    .type = WeightType::kBf16,
                    .seed = 6};
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(write_random_adapter(directories_[i].path(), adapters_[i]).ok());
    }
    tokens_ = random_tokens(kTokens, config_.vocab_tokens, kSeed);
  }

  // The logits of the same tokens with each of `adapters`, computed in batches of all of them.
  std::vector<std::vector<float>> logits(const std::vector<AdapterId>& adapters,
                                         bool with_adapters = true) {
    ThreadPool threads(2);
    ModelRunnerOptions options = {.outputs_max = 512};
    if (with_adapters) {
      options.adapters = {{"a", directories_[0].path()}, {"b", directories_[1].path()}};
    }
    const auto runner = ModelRunner::load(model_.path(), options, threads);
    EXPECT_TRUE(runner.ok()) << to_string(runner.error());
    KvShape shape = (*runner)->pool_shape();
    shape.page_size = 16;
    shape.pages = 20;
    shape.dtype = DType::kF32;
    const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads);
    RunnerTrial trial(**runner, **pool);
    for (const AdapterId adapter : adapters) trial.add(tokens_, adapter);
    for (std::int64_t first = 0; first < kTokens; first += 20) {
      std::vector<RunnerTrial::Piece> pieces;
      for (std::size_t i = 0; i < adapters.size(); ++i) pieces.push_back({i, 20});
      EXPECT_TRUE(trial.step(pieces).ok());
    }
    std::vector<std::vector<float>> all;
    for (std::size_t i = 0; i < adapters.size(); ++i) all.push_back(trial.logits(i));
    return all;
  }

  double error_of(const std::vector<float>& logits, std::size_t adapter, double scale) {
    ReferenceModel::Tensors tensors = reference_tensors(config_, WeightType::kF32, kSeed);
    merge(adapters_[adapter], scale, tensors);
    const auto expected =
        reference_of(config_, std::move(tensors), WeightType::kF32).logits(tokens_);
    const std::vector<double> errors = relative_errors(expected, logits);
    const double error = *std::max_element(errors.begin(), errors.end());
    std::printf("%-16s adapter of rank %-2lld relative error %.2e\n",
                std::string(GetParam()).c_str(), static_cast<long long>(adapters_[adapter].rank),
                error);
    return error;
  }

  TempDirectory model_;
  TempDirectory directories_[2];
  ModelConfig config_;
  RandomAdapterOptions adapters_[2];
  std::vector<TokenId> tokens_;
};

TEST_P(AdapterNumerics, IsWithinOneInTenThousandOfTheMergedModel) {
  const auto got = logits({AdapterId(1), AdapterId(), AdapterId(0)});
  EXPECT_LT(error_of(got[0], 1, 5 / std::sqrt(20.0)), 1e-4);
  EXPECT_LT(error_of(got[2], 0, 2), 1e-4);
  EXPECT_NE(got[0], got[1]);
  EXPECT_NE(got[0], got[2]);
}

TEST_P(AdapterNumerics, TheModelAloneIsAsIfThereWereNone) {
  const auto alone = logits({AdapterId()}, /*with_adapters=*/false);
  EXPECT_EQ(logits({AdapterId()}), alone);
  EXPECT_EQ(logits({AdapterId(0), AdapterId(), AdapterId(1)})[1], alone[0]);
}

TEST_P(AdapterNumerics, ARowIsTheSameBesideAnyOthers) {
  const std::vector<float> alone = logits({AdapterId(0)})[0];
  EXPECT_EQ(logits({AdapterId(1), AdapterId(0), AdapterId(), AdapterId(0)})[3], alone);
  EXPECT_EQ(logits({AdapterId(), AdapterId(0)})[1], alone);
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterNumerics, testing::ValuesIn(tiny_model_names()),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace stemma
