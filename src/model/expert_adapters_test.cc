// Adapters of mixtures, from files: of each expert, of those that every token passes and of the
// router, by the names that PEFT gives them; what a rank of several holds of them.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/temp_directory.h"
#include "model/adapter.h"
#include "model/random_adapter.h"

namespace stemma {
namespace {

using testing::HasSubstr;

constexpr Projection kOfExperts[] = {Projection::kGate, Projection::kUp, Projection::kDown};

class ExpertAdaptersTest : public testing::Test {
 protected:
  void write(const RandomAdapterOptions& options) {
    written_ = options;
    const Status status = write_random_adapter(directory_.path(), options);
    ASSERT_TRUE(status.ok()) << to_string(status.error());
  }
  // As written, but of these tensors.
  void write_tensors(const std::vector<TensorValues>& tensors) {
    const std::string path = directory_.file(std::string(kAdapterWeightsFile));
    ASSERT_TRUE(write_safetensors(path, tensors, WeightType::kF32).ok());
  }

  Result<Adapter> try_load(const Shard& shard = {}) {
    return load_adapter(files_, {"wit", directory_.path()}, written_.config, threads_, shard);
  }
  Adapter load(const Shard& shard = {}) {
    auto adapter = try_load(shard);
    EXPECT_TRUE(adapter.ok()) << to_string(adapter.error());
    return adapter.ok() ? std::move(adapter).value() : Adapter();
  }

  static std::set<std::string> paths_of(std::string_view family) {
    std::set<std::string> paths;
    for (auto& matrix : adaptable_matrices(tiny_model_config(family))) paths.insert(matrix.path);
    return paths;
  }

  static bool is_of_single_experts(const TensorValues& tensor) {
    return tensor.spec.name.find(".mlp.experts.") != std::string::npos ||
           tensor.spec.name.find(".mlp.gate.") != std::string::npos;
  }

  TempDirectory directory_;
  PosixFiles files_;
  ThreadPool threads_{1};
  RandomAdapterOptions written_;
};

TEST_F(ExpertAdaptersTest, MixturesSayWhichOfTheirMatricesCanBeChanged) {
  EXPECT_THAT(paths_of("qwen3_moe"),
              testing::IsSupersetOf({"model.layers.0.mlp.experts.0.gate_proj",
                                     "model.layers.2.mlp.experts.7.down_proj",
                                     "model.layers.0.mlp.gate", "model.layers.1.mlp.up_proj"}));
  for (const std::string_view family : {"deepseek_v2", "deepseek_v3"}) {
    SCOPED_TRACE(family);
    const auto paths = paths_of(family);
    EXPECT_THAT(paths, testing::IsSupersetOf({"model.layers.1.mlp.experts.7.up_proj",
                                              "model.layers.2.mlp.shared_experts.gate_proj",
                                              "model.layers.2.mlp.shared_experts.down_proj"}));
    EXPECT_EQ(paths.count("model.layers.1.mlp.gate"), 0u) << "PEFT sees no linear layer there";
  }
}

TEST_F(ExpertAdaptersTest, EachExpertHasItsOwnTwoMatrices) {
  write({.config = tiny_model_config("qwen3_moe"), .targets = {"up_proj", "gate"}, .rank = 3});
  const Adapter adapter = load();
  ASSERT_EQ(adapter.layers[2].experts.size(), 8u);
  EXPECT_TRUE(adapter.layers[1].experts.empty()) << "a dense layer";
  EXPECT_FALSE(adapter.at(1, Projection::kUp).empty());
  EXPECT_TRUE(adapter.at(2, Projection::kUp).empty()) << "there are no shared experts";
  EXPECT_EQ(adapter.at(2, Projection::kRouter).up.n(), 8);
  EXPECT_TRUE(adapter.of_expert_or_null(2, 5, Projection::kGate)->empty());
  const LowRank& up = *adapter.of_expert_or_null(2, 5, Projection::kUp);
  EXPECT_EQ(up.down.n(), 3);
  EXPECT_EQ(up.down.k(), 64);
  EXPECT_EQ(up.up.n(), 96);
  std::vector<float> row(3);
  up.up.unpack_row(17, row);
  const auto tensors = random_adapter_tensors(written_);
  const auto named = std::find_if(tensors.begin(), tensors.end(), [](const auto& tensor) {
    return tensor.spec.name ==
           "base_model.model.model.layers.2.mlp.experts.5.up_proj.lora_B.weight";
  });
  ASSERT_NE(named, tensors.end());
  EXPECT_TRUE(std::equal(row.begin(), row.end(), named->values.begin() + 17 * 3));
}

// Of the experts that every token passes gate, up and down are those of all rows.
TEST_F(ExpertAdaptersTest, SharedExpertsAreTheLayersMlp) {
  write({.config = tiny_model_config("deepseek_v2"), .targets = {"gate_proj"}});
  const Adapter adapter = load();
  EXPECT_EQ(adapter.at(1, Projection::kGate).up.n(), 96);
  EXPECT_EQ(adapter.of_expert_or_null(1, 0, Projection::kGate)->up.n(), 48);
}

// Of B a rank has its outputs of each expert's matrices, and all of a router's.
TEST_F(ExpertAdaptersTest, ARankHoldsItsOutputsOfEveryExpert) {
  write({.config = tiny_model_config("qwen3_moe"), .rank = 3});
  const Adapter whole = load();
  for (const int rank : {0, 1}) {
    const Adapter part = load({.rank = rank, .ranks = 2});
    EXPECT_EQ(part.digest, whole.digest);
    EXPECT_EQ(part.at(0, Projection::kRouter).up.n(), 8);
    for (const Projection projection : kOfExperts) {
      const LowRank& all = *whole.of_expert_or_null(0, 6, projection);
      const LowRank& own = *part.of_expert_or_null(0, 6, projection);
      ASSERT_EQ(own.up.n(), all.up.n() / 2);
      EXPECT_EQ(own.down.n(), 3);
      EXPECT_EQ(own.down.k(), all.down.k());
      std::vector<float> expected(3);
      std::vector<float> row(3);
      all.up.unpack_row(rank * own.up.n() + 4, expected);
      own.up.unpack_row(4, row);
      EXPECT_EQ(row, expected);
    }
  }
}

TEST_F(ExpertAdaptersTest, TheDigestNamesWhatExpertsGet) {
  write({.config = tiny_model_config("deepseek_v3")});
  const Sha256Digest digest = load().digest;
  auto tensors = random_adapter_tensors(written_);
  const auto last = std::find_if(tensors.rbegin(), tensors.rend(), is_of_single_experts);
  ASSERT_NE(last, tensors.rend());
  last->values.back() += 1;
  write_tensors(tensors);
  EXPECT_NE(load().digest, digest);
}

// As of a model whose experts were one tensor when the adapter was trained.
TEST_F(ExpertAdaptersTest, AllSingleExpertsMayBeMissingButNotSome) {
  write({.config = tiny_model_config("qwen3_moe")});
  const auto tensors = random_adapter_tensors(written_);
  std::vector<TensorValues> without;
  std::remove_copy_if(tensors.begin(), tensors.end(), std::back_inserter(without),
                      is_of_single_experts);
  write_tensors(without);
  const Adapter adapter = load();
  EXPECT_TRUE(adapter.layers[0].experts.empty());
  EXPECT_TRUE(adapter.at(0, Projection::kRouter).empty());
  EXPECT_FALSE(adapter.at(1, Projection::kUp).empty());
  auto some = tensors;
  const auto of_expert = std::find_if(some.begin(), some.end(), is_of_single_experts);
  ASSERT_NE(of_expert, some.end());
  const std::string name = of_expert->spec.name;
  some.erase(of_expert);
  write_tensors(some);
  EXPECT_THAT(to_string(try_load().error()), HasSubstr("tensor '" + name + "'"));
}

}  // namespace
}  // namespace stemma
