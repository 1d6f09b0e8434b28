// The logits of every family against the double-precision reference, on random weights, and the
// figures that this repository states: with K and V in f32 the largest error of a row is below 1e-4
// of its largest logit, whatever the type of the weights (they are computed from exactly); with K
// and V in f16, bf16 and the dtypes of 8 bits it is what their rounding costs. In a mixture
// of experts that rounding sends a token to another expert where two are nearly as good for it: the
// bound then holds for the rows whose experts were chosen clearly, which are most of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/temp_directory.h"
#include "model/model_runner.h"
#include "model/random_model.h"
#include "model/runner_trial.h"
#include "numerics/random_reference.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 150;  // more than one partition of attention

// Experts whose scores are closer than this may change places when K and V are rounded.
constexpr double kClearGap = 2e-3;

struct Case {
  WeightType weights = WeightType::kF32;
  WeightRounding rounding = WeightRounding::kNone;
  bool reference_rounds = false;  // too: what is measured is the computation alone
  DType kv = DType::kF32;
  std::string attention = "cpu";
};

// The largest error of a row: of all, and of those whose experts were chosen clearly.
struct Measured {
  double error = 0;
  double clear_error = 0;
  std::int64_t clear_rows = 0;
};

Measured measured_errors(std::string_view name, const Case& subject) {
  constexpr std::uint64_t kSeed = 17;
  const ModelConfig config = tiny_model_config(name);
  TempDirectory directory;
  EXPECT_TRUE(write_random_model(directory.path(),
                                 {.config = config, .type = subject.weights, .seed = kSeed})
                  .ok());
  ThreadPool threads(2);
  const auto runner = ModelRunner::load(
      directory.path(),
      {.attention = subject.attention, .outputs_max = 512, .weights = subject.rounding}, threads);
  EXPECT_TRUE(runner.ok()) << to_string(runner.error());
  KvShape shape = (*runner)->pool_shape();
  shape.page_size = 16;
  shape.pages = 20;
  shape.dtype = subject.kv;
  const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads);
  const auto tokens = random_tokens(kTokens, config.vocab_tokens, kSeed);
  RunnerTrial trial(**runner, **pool);
  EXPECT_TRUE(trial.finish(trial.add(tokens), 64).ok());
  std::vector<ReferenceModel::Choices> choices;
  ReferenceModel::Tensors tensors = reference_tensors(config, subject.weights, kSeed);
  if (subject.reference_rounds) round_tensors(config, subject.rounding, tensors);
  const auto expected =
      reference_of(config, std::move(tensors), subject.weights).logits(tokens, choices);
  const std::vector<double> errors = relative_errors(expected, trial.logits(0));
  Measured measured;
  for (std::size_t row = 0; row < errors.size(); ++row) {
    measured.error = std::max(measured.error, errors[row]);
    if (choices[row].gap >= kClearGap) {
      measured.clear_error = std::max(measured.clear_error, errors[row]);
      ++measured.clear_rows;
    }
  }
  ::testing::Test::RecordProperty(std::string(name), std::to_string(measured.error));
  std::printf(
      "%-10s weights %-9s kv %-4s attention %-9s relative error %.2e, %.2e of %lld clear rows\n",
      std::string(name).c_str(), (*runner)->compute_format().c_str(),
      std::string(dtype_name(subject.kv)).c_str(), subject.attention.c_str(), measured.error,
      measured.clear_error, static_cast<long long>(measured.clear_rows));
  return measured;
}

double measured_error(std::string_view name, const Case& subject) {
  return measured_errors(name, subject).error;
}

class Numerics : public ::testing::TestWithParam<std::string_view> {};

TEST_P(Numerics, F32IsWithinOneInTenThousand) {
  EXPECT_LT(measured_error(GetParam(), {}), 1e-4);
}

TEST_P(Numerics, HalfPrecisionWeightsAreComputedExactly) {
  EXPECT_LT(measured_error(GetParam(), {.weights = WeightType::kBf16}), 1e-4);
  EXPECT_LT(measured_error(GetParam(), {.weights = WeightType::kF16}), 1e-4);
}

TEST_P(Numerics, RoundedKeysAndValuesCostWhatTheirMantissasSay) {
  const Measured f16 =
      measured_errors(GetParam(), {.weights = WeightType::kBf16, .kv = DType::kF16});
  EXPECT_LT(f16.clear_error, 4e-3);
  const Measured bf16 =
      measured_errors(GetParam(), {.weights = WeightType::kBf16, .kv = DType::kBF16});
  EXPECT_LT(bf16.clear_error, 3e-2);
  EXPECT_GE(bf16.clear_rows, kTokens * 3 / 4);
}

// Activations of 16 bits: what is computed with rounded weights is what they say. Heads of latent
// rows are rounded transposed, which the reference does not know.
TEST_P(Numerics, RoundedWeightsAreComputedFromSixteenBits) {
  if (tiny_model_config(GetParam()).latent.rank > 0) GTEST_SKIP() << "latent heads";
  for (const WeightRounding rounding : {WeightRounding::kInt8, WeightRounding::kInt4}) {
    const Measured measured =
        measured_errors(GetParam(), {.rounding = rounding, .reference_rounds = true});
    EXPECT_LT(measured.clear_error, 5e-4);
  }
}

// Against the weights before rounding, in the worst of a row's logits. Models of random weights
// pass errors on as no trained one does; in their mixtures, where experts are chosen nearly by lot,
// rounding chooses others.
TEST_P(Numerics, RoundedWeightsCostWhatTheirBitsSay) {
  if (tiny_model_config(GetParam()).mixture.experts > 0) GTEST_SKIP() << "other experts";
  EXPECT_LT(measured_errors(GetParam(), {.rounding = WeightRounding::kInt8}).clear_error, 0.05);
  EXPECT_LT(measured_errors(GetParam(), {.rounding = WeightRounding::kInt4}).clear_error, 0.75);
}

TEST_P(Numerics, ReferenceAttentionAgrees) {
  EXPECT_LT(measured_error(GetParam(), {.attention = "reference"}), 1e-4);
}

class ScaledNumerics : public ::testing::TestWithParam<std::string_view> {};

TEST_P(ScaledNumerics, CodesOfKeysAndValuesCostWhatTheyRoundTo) {
  const std::vector<std::pair<DType, double>> bounds = {
      {DType::kInt8, 4e-2}, {DType::kFp8E4M3, 1.5e-1}, {DType::kFp8E5M2, 3.5e-1}};
  for (const auto& [dtype, error_max] : bounds) {
    const double error = measured_error(GetParam(), {.weights = WeightType::kBf16, .kv = dtype});
    EXPECT_LT(error, error_max) << dtype_name(dtype);
  }
}

// Families without experts: with 8 bits, tokens whose choice of experts was clear are sent to
// others too, because of those before them that were.
std::vector<std::string_view> families_without_experts() {
  std::vector<std::string_view> names = tiny_model_names();
  std::erase_if(names,
                [](std::string_view name) { return tiny_model_config(name).mixture.experts > 0; });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, ScaledNumerics, ::testing::ValuesIn(families_without_experts()),
                         [](const auto& family) { return std::string(family.param); });

INSTANTIATE_TEST_SUITE_P(Families, Numerics, ::testing::ValuesIn(tiny_model_names()),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace stemma
