// Adapters from files: what each family lets be changed, the digest that names an adapter by what
// it computes, and each kind of broken adapter as one line that names the file and the field or
// the tensor. Those of mixtures: expert_adapters_test. What they compute: adapter_pass_test,
// tests/numerics, tests/transparency.
#include "model/adapter.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/faulty_files.h"
#include "base/temp_directory.h"
#include "model/adapter_config.h"
#include "model/random_adapter.h"

namespace stemma {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

class AdapterTest : public testing::Test {
 protected:
  void SetUp() override { write({.config = tiny_model_config("llama2")}); }

  void write(const RandomAdapterOptions& options) {
    written_ = options;
    const Status status = write_random_adapter(directory_.path(), options);
    ASSERT_TRUE(status.ok()) << to_string(status.error());
  }

  Result<Adapter> load(Files& files) {
    return load_adapter(files, {"wit", directory_.path()}, written_.config, threads_);
  }
  Adapter load() {
    auto adapter = load(files_);
    EXPECT_TRUE(adapter.ok()) << to_string(adapter.error());
    return adapter.ok() ? std::move(adapter).value() : Adapter();
  }
  Result<Adapter> load_part(const Shard& shard) {
    return load_adapter(files_, {"wit", directory_.path()}, written_.config, threads_, shard);
  }
  std::string load_error() {
    const auto adapter = load(files_);
    return adapter.ok() ? "none" : to_string(adapter.error());
  }

  // What loading says where a field of adapter_config.json is another; nullptr: where it is
  // missing.
  std::string error_with(const std::string& field, const Json& value) {
    write(written_);
    const std::string path = directory_.file(std::string(kAdapterConfigFile));
    Json config = Json::parse(std::ifstream(path));
    config[field] = value;
    if (value.is_null()) config.erase(field);
    EXPECT_TRUE(write_file(path, config.dump()).ok());
    std::string error = load_error();
    write(written_);
    const std::size_t at = error.find(path + ": ");
    return at == std::string::npos ? error : error.substr(at + path.size() + 2);
  }

  // What loading says of a file of these tensors.
  std::string error_of(const std::vector<TensorValues>& tensors) {
    const std::string path = directory_.file(std::string(kAdapterWeightsFile));
    EXPECT_TRUE(write_safetensors(path, tensors, WeightType::kF32).ok());
    std::string error = load_error();
    write(written_);
    return error;
  }

  TempDirectory directory_;
  PosixFiles files_;
  ThreadPool threads_{1};
  RandomAdapterOptions written_;
};

TEST_F(AdapterTest, HoldsTheTwoMatricesOfEachThatItChanges) {
  write({.config = tiny_model_config("llama2"), .targets = {"q_proj", "down_proj"}, .rank = 3});
  const Adapter adapter = load();
  EXPECT_EQ(adapter.name, "wit");
  ASSERT_EQ(adapter.layers.size(), 2u);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const LowRank& query = adapter.at(layer, Projection::kQuery);
    EXPECT_EQ(query.down.n(), 3);
    EXPECT_EQ(query.down.k(), 64);
    EXPECT_EQ(query.up.n(), 64);
    EXPECT_EQ(query.up.k(), 3);
    EXPECT_EQ(adapter.at(layer, Projection::kDown).down.k(), 160);
    EXPECT_TRUE(adapter.at(layer, Projection::kKey).empty());
  }
  std::vector<float> row(3);
  adapter.at(1, Projection::kQuery).up.unpack_row(5, row);
  const auto tensors = random_adapter_tensors(written_);
  EXPECT_EQ(tensors[5].spec.name, "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight");
  EXPECT_TRUE(std::equal(row.begin(), row.end(), tensors[5].values.begin() + 15));
}

// Of B a rank has its outputs of the matrix; A it has whole, and B of what makes latent rows.
TEST_F(AdapterTest, ARankHoldsItsOutputs) {
  const auto expect_rows = [](const PackedWeights& whole, const PackedWeights& part,
                              std::int64_t first) {
    std::vector<float> expected(static_cast<std::size_t>(whole.k()));
    std::vector<float> row(static_cast<std::size_t>(part.k()));
    for (std::int64_t i = 0; i < part.n(); ++i) {
      whole.unpack_row(first + i, expected);
      part.unpack_row(i, row);
      ASSERT_EQ(row, expected) << "row " << i;
    }
  };
  write({.config = tiny_model_config("deepseek_v3"), .rank = 3});
  const Adapter whole = load();
  for (const int rank : {0, 1}) {
    const auto part = load_part({.rank = rank, .ranks = 2});
    ASSERT_TRUE(part.ok()) << to_string(part.error());
    EXPECT_EQ(part->digest, whole.digest);
    for (const Projection projection : {Projection::kQueryDown, Projection::kQueryUp,
                                        Projection::kLatentDown, Projection::kOutput}) {
      SCOPED_TRACE(static_cast<int>(projection));
      const LowRank& all = whole.at(1, projection);
      const LowRank& own = part->at(1, projection);
      const bool is_cut = projection == Projection::kQueryUp || projection == Projection::kOutput;
      ASSERT_EQ(own.down.n(), 3);
      ASSERT_EQ(own.up.n(), all.up.n() / (is_cut ? 2 : 1));
      expect_rows(all.down, own.down, 0);
      expect_rows(all.up, own.up, is_cut ? rank * own.up.n() : 0);
    }
    const LatentChange& all = whole.layers[1].latent;
    const LatentChange& own = part->layers[1].latent;
    ASSERT_EQ(own.key_down.size(), all.key_down.size() / 2);
    ASSERT_EQ(own.value_up.size(), all.value_up.size() / 2);
    for (std::size_t head = 0; head < own.key_down.size(); ++head) {
      const std::size_t same = head + static_cast<std::size_t>(rank) * own.key_down.size();
      expect_rows(all.key_down[same], own.key_down[head], 0);
      expect_rows(all.value_up[same], own.value_up[head], 0);
    }
    expect_rows(all.latent_down, own.latent_down, 0);
    expect_rows(all.latent_up, own.latent_up, 0);
  }
}

TEST_F(AdapterTest, EveryFamilySaysWhichOfItsMatricesCanBeChanged) {
  const auto names = [](std::string_view family) {
    std::set<std::string> found;
    for (const AdaptableMatrix& matrix : adaptable_matrices(tiny_model_config(family))) {
      found.insert(std::to_string(matrix.layer) + matrix.path.substr(matrix.path.rfind('.')));
    }
    return found;
  };
  const std::set<std::string> all = {"0.q_proj",    "0.k_proj",  "0.v_proj",   "0.o_proj",
                                     "0.gate_proj", "0.up_proj", "0.down_proj"};
  for (const std::string_view family :
       {"llama3", "qwen2", "qwen3", "mistral", "gemma2", "gemma3"}) {
    const auto found = names(family);
    EXPECT_TRUE(std::includes(found.begin(), found.end(), all.begin(), all.end())) << family;
  }
  EXPECT_THAT(names("qwen3_moe"), testing::IsSupersetOf({"0.q_proj", "2.o_proj", "1.up_proj"}));
  EXPECT_THAT(names("deepseek_v2"),
              testing::IsSupersetOf({"2.q_a_proj", "2.kv_b_proj", "2.q_b_proj",
                                     "2.kv_a_proj_with_mqa", "2.o_proj", "0.down_proj"}));
  EXPECT_THAT(names("deepseek_v2_lite"), testing::Contains("2.q_proj"));
}

TEST_F(AdapterTest, LoadsForEveryFamilyInEveryType) {
  for (const std::string_view family : tiny_model_names()) {
    for (const WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBf16}) {
      write({.config = tiny_model_config(family), .type = type});
      EXPECT_EQ(load_error(), "none") << family;
    }
  }
}

TEST_F(AdapterTest, ItsScaleIsAlphaByRankOrByItsRoot) {
  write({.config = tiny_model_config("llama2"), .rank = 16, .alpha = 32});
  EXPECT_EQ(load().at(0, Projection::kQuery).scale, 2.0f);
  write({.config = tiny_model_config("llama2"), .rank = 16, .alpha = 32, .by_root = true});
  EXPECT_EQ(load().at(0, Projection::kQuery).scale, 8.0f);
}

TEST_F(AdapterTest, SomeMatricesHaveARankAndAnAlphaOfTheirOwn) {
  write({.config = tiny_model_config("llama2"),
         .rank = 4,
         .alpha = 8,
         .ranks = {{"q_proj", 2}, {"up_proj", 16}},
         .alphas = {{"v_proj", 2}, {"up_proj", 4}}});
  const Adapter adapter = load();
  const auto expect = [&](Projection projection, std::int64_t rank, float scale) {
    const LowRank& change = adapter.at(1, projection);
    EXPECT_EQ(change.down.n(), rank);
    EXPECT_EQ(change.up.k(), rank);
    EXPECT_EQ(change.scale, scale);
  };
  expect(Projection::kQuery, 2, 4.0f);
  expect(Projection::kKey, 4, 2.0f);
  expect(Projection::kValue, 4, 0.5f);
  expect(Projection::kUp, 16, 0.25f);
  write({.config = tiny_model_config("deepseek_v3"), .alpha = 8, .ranks = {{"kv_b_proj", 7}}});
  const Adapter latent = load();
  EXPECT_EQ(latent.layers[0].latent.latent_down.n(), 7);
  EXPECT_EQ(latent.layers[0].latent.scale, 8.0f / 7);
}

// The end of a path, from the beginning of a name on; of several the first.
TEST(AdapterConfigTest, PatternsAreExpressionsOfThePathsEnd) {
  const auto config = parse_adapter_config(
      R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": "all-linear",
          "rank_pattern": {"layers.1.self_attn.q_proj": 3, "q_proj": 2, "proj": 5,
                           "mlp\\.(up|gate)_proj": 4},
          "alpha_pattern": {"v_proj": 4, "model\\.layers\\.0\\..*": 32}})",
      "f");
  ASSERT_TRUE(config.ok()) << config.error().detail;
  EXPECT_EQ(config->strength_of("model.layers.1.self_attn.q_proj")->rank, 3);
  EXPECT_EQ(config->strength_of("model.layers.11.self_attn.q_proj")->rank, 2);
  EXPECT_EQ(config->strength_of("model.layers.0.mlp.gate_proj")->rank, 4);
  EXPECT_EQ(config->strength_of("model.layers.0.mlp.down_proj")->rank, 8) << "proj is no name here";
  EXPECT_EQ(config->strength_of("model.layers.0.self_attn.v_proj")->scale, 0.5f) << "the first";
  EXPECT_EQ(config->strength_of("model.layers.0.self_attn.k_proj")->scale, 4.0f);
  EXPECT_EQ(config->strength_of("model.layers.1.self_attn.q_proj")->scale, 16.0f / 3);
  EXPECT_EQ(config->usual_scale(), 2.0f);
}

TEST(AdapterConfigTest, AnExpressionThatTakesTooManyStepsIsAnErrorAndNotAMatrixOfTheUsualRank) {
  const auto config = parse_adapter_config(
      R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": "all-linear",
          "rank_pattern": {"(?:(?:\\w+)+\\.?)+[!?]": 3}})",
      "f");
  ASSERT_TRUE(config.ok()) << config.error().detail;
  const std::string path = "model." + std::string(200, 'a') + ".q_proj";
  EXPECT_EQ(config->strength_of(path).error().code, ErrorCode::kTooLarge);
}

TEST_F(AdapterTest, ItsDigestNamesTheScalesOfSingleMatrices) {
  const RandomAdapterOptions same = {.config = tiny_model_config("llama2")};
  const Sha256Digest digest = load().digest;
  RandomAdapterOptions other = same;
  other.alphas = {{"q_proj", 4}};
  write(other);
  EXPECT_EQ(load().digest, digest) << "what all have";
  other.alphas = {{"q_proj", 5}};
  write(other);
  const Sha256Digest of_queries = load().digest;
  EXPECT_NE(of_queries, digest);
  other.alphas = {{"k_proj", 5}};
  write(other);
  EXPECT_NE(load().digest, of_queries);
}

TEST_F(AdapterTest, ItsDigestNamesWhatItComputesAndNotWhereItLies) {
  const RandomAdapterOptions same = {.config = tiny_model_config("llama2")};
  const Sha256Digest digest = load().digest;
  TempDirectory elsewhere;
  RandomAdapterOptions other = same;
  other.reversed = true;
  ASSERT_TRUE(write_random_adapter(elsewhere.path(), other).ok());
  const auto moved = load_adapter(files_, {"other name", elsewhere.path()}, same.config, threads_);
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(moved->digest, digest) << "another directory, name and order of the file";

  std::set<Sha256Digest> seen = {digest};
  const auto is_another = [&](RandomAdapterOptions changed) {
    write(changed);
    return seen.insert(load().digest).second;
  };
  other = same;
  other.alpha = 8;
  EXPECT_TRUE(is_another(other)) << "alpha";
  other = same;
  other.by_root = true;
  EXPECT_FALSE(is_another(other)) << "half alpha divided by half the rank: the same products";
  other.alpha = 12;
  EXPECT_TRUE(is_another(other)) << "alpha divided by the root";
  other = same;
  other.seed = 2;
  EXPECT_TRUE(is_another(other)) << "values";
  other = same;
  other.type = WeightType::kBf16;
  EXPECT_TRUE(is_another(other)) << "type";
  other = same;
  other.targets = {"q_proj", "v_proj"};
  EXPECT_TRUE(is_another(other)) << "matrices";
  // One matrix says what another said.
  auto tensors = random_adapter_tensors(same);
  std::swap(tensors[0].values, tensors[2].values);
  write(same);
  ASSERT_TRUE(write_safetensors(directory_.file(std::string(kAdapterWeightsFile)), tensors,
                                WeightType::kF32)
                  .ok());
  EXPECT_TRUE(seen.insert(load().digest).second) << "which matrix";
}

TEST_F(AdapterTest, WhatIsNotSupportedIsRefusedByItsField) {
  EXPECT_THAT(error_with("peft_type", "IA3"), HasSubstr("peft_type: 'IA3' is not supported"));
  EXPECT_EQ(error_with("bias", "all"),
            "bias: 'all' is not supported: an adapter leaves biases as they are");
  EXPECT_EQ(error_with("use_dora", true), "use_dora: DoRA is not supported");
  EXPECT_THAT(error_with("rank_pattern", {{"q_proj", 8}}), HasSubstr("expected shape [8, 64]"));
  for (const char* field : {"fan_in_fan_out", "lora_bias", "use_qalora", "use_bdlora"}) {
    EXPECT_THAT(error_with(field, true), testing::StartsWith(field));
    EXPECT_EQ(error_with(field, false), "none");
  }
  for (const char* field :
       {"modules_to_save", "exclude_modules", "target_parameters", "trainable_token_indices"}) {
    EXPECT_THAT(error_with(field, {"embed_tokens"}), testing::StartsWith(field));
    EXPECT_EQ(error_with(field, Json::array()), "none");
  }
  EXPECT_EQ(error_with("alora_invocation_tokens", {151, 152}),
            "alora_invocation_tokens: an adapter from some tokens on is not supported");
  for (const char* field :
       {"arrow_config", "use_bdlora", "kasa_config", "monteclora_config", "megatron_config"}) {
    EXPECT_THAT(error_with(field, {{"any", 1}}), testing::StartsWith(field));
    EXPECT_EQ(error_with(field, Json::object()), "none");
  }
  EXPECT_EQ(error_with("init_lora_weights", "pissa"),
            "init_lora_weights: \"pissa\" changes the model's own weights: convert the adapter");
  EXPECT_EQ(error_with("init_lora_weights", "gaussian"), "none");
}

TEST_F(AdapterTest, LayersAreChosenAmongThoseCalledSo) {
  const auto error_with_layers = [&](const std::string& pattern, const std::string& layers) {
    const auto config = parse_adapter_config(
        R"({"peft_type":"LORA","r":8,"lora_alpha":16,"target_modules":["q_proj"],)"
        R"("layers_pattern":)" +
            pattern + R"(,"layers_to_transform":)" + layers + "}",
        "a.json");
    return config.ok() ? "none" : config.error().detail;
  };
  EXPECT_EQ(error_with_layers(R"("blocks")", "[0]"),
            "a.json: layers_pattern: \"blocks\" is not supported; known is \"layers\"");
  EXPECT_EQ(error_with_layers(R"("blocks")", "null"), "none") << "it says nothing then";
  for (const char* const same : {R"("layers")", R"(["h","layers"])", "null", "[]", R"("")"}) {
    EXPECT_EQ(error_with_layers(same, "[0]"), "none") << same;
  }
}

TEST_F(AdapterTest, WhatIsWrongOrMissingIsNamedByItsField) {
  EXPECT_EQ(error_with("r", nullptr), "r: missing");
  EXPECT_EQ(error_with("r", 0), "r: must be an integer from 1 to 65536 (got 0)");
  EXPECT_EQ(error_with("lora_alpha", nullptr), "lora_alpha: missing");
  EXPECT_EQ(error_with("lora_alpha", -1), "lora_alpha: must be a number above 0 (got -1)");
  EXPECT_EQ(error_with("lora_alpha", 1e300), "lora_alpha: is too large");
  EXPECT_EQ(error_with("rank_pattern", {{"q_proj", 1.5}}),
            "rank_pattern: 'q_proj' must have a number from 1 on, not too large");
  EXPECT_EQ(error_with("alpha_pattern", {{"q(", 1}}), "alpha_pattern: 'q(' is no expression");
  EXPECT_EQ(error_with("alpha_pattern", {1}),
            "alpha_pattern: must be an object of names and numbers");
  EXPECT_EQ(error_with("peft_type", nullptr), "peft_type: missing");
  const std::string wanted = "target_modules: must be a list of names, or \"all-linear\"";
  EXPECT_EQ(error_with("target_modules", nullptr), wanted);
  EXPECT_EQ(error_with("target_modules", ".*_proj"), wanted);
  EXPECT_EQ(error_with("target_modules", Json::array()), wanted);
  EXPECT_EQ(error_with("target_modules", {1}), "target_modules: must hold names");
  EXPECT_EQ(error_with("target_modules", {"q_proj", "lm_head"}),
            "target_modules: 'lm_head' is not a matrix of this model that adapters can change "
            "(q_proj k_proj v_proj o_proj gate_proj up_proj down_proj)");
  EXPECT_EQ(error_with("layers_to_transform", {"one"}),
            "layers_to_transform: must hold numbers of layers");
  ASSERT_TRUE(write_file(directory_.file(std::string(kAdapterConfigFile)), "{").ok());
  EXPECT_THAT(load_error(), HasSubstr("adapter_config.json: "));
}

TEST_F(AdapterTest, EveryMatrixThatIsNamedIsThere) {
  auto tensors = random_adapter_tensors(written_);
  const std::string name = tensors[3].spec.name;
  tensors.erase(tensors.begin() + 3);
  EXPECT_THAT(error_of(tensors), HasSubstr("tensor '" + name + "' [64, 4] is missing"));
  // Layers that the configuration leaves out may be missing, others not.
  RandomAdapterOptions options = written_;
  options.targets = {"q_proj"};
  write(options);
  tensors = random_adapter_tensors(options);
  tensors.resize(2);
  EXPECT_THAT(error_of(tensors), HasSubstr("layers.1.self_attn.q_proj.lora_A.weight' [4, 64]"));
  const std::string path = directory_.file(std::string(kAdapterConfigFile));
  Json config = Json::parse(std::ifstream(path));
  config["layers_to_transform"] = 0;
  ASSERT_TRUE(write_file(path, config.dump()).ok());
  ASSERT_TRUE(write_safetensors(directory_.file(std::string(kAdapterWeightsFile)), tensors,
                                WeightType::kF32)
                  .ok());
  EXPECT_EQ(load_error(), "none");
}

TEST_F(AdapterTest, EveryTensorIsUsed) {
  auto tensors = random_adapter_tensors(written_);
  tensors.push_back({{"base_model.model.lm_head.lora_A.weight", {1, 4}}, {1, 2, 3, 4}});
  EXPECT_THAT(
      error_of(tensors),
      HasSubstr("adapter_model.safetensors: tensor 'base_model.model.lm_head.lora_A.weight' "
                "is not of a matrix of this model that adapters can change (q_proj "));
  // A mixture of eight experts has no ninth.
  write({.config = tiny_model_config("qwen3_moe"), .targets = {"q_proj"}});
  tensors = random_adapter_tensors(written_);
  tensors.push_back({{adapter_down_name("model.layers.0.mlp.experts.8.up_proj"), {1, 1}}, {1}});
  EXPECT_THAT(error_of(tensors), HasSubstr("mlp.experts.8.up_proj.lora_A.weight' is not of"));
}

TEST_F(AdapterTest, TheConfigurationNamesEveryMatrixThatTheFileHas) {
  const std::string path = "model.layers.0.self_attn.k_proj";
  EXPECT_EQ(
      error_with("target_modules", {"q_proj"}),
      "target_modules: leaves out '" + path + "', of which adapter_model.safetensors has tensors");
  EXPECT_THAT(error_with("layers_to_transform", 0), HasSubstr("'model.layers.1.self_attn.q_proj'"));
  EXPECT_EQ(error_with("layers_to_transform", {0, 2}),
            "layers_to_transform: 2 is not one of this model's 2 layers");
}

TEST_F(AdapterTest, ShapesAndTypesAreThoseOfTheModelAndTheRank) {
  auto tensors = random_adapter_tensors(written_);
  tensors[0].spec.shape = {8, 32};
  EXPECT_THAT(error_of(tensors),
              HasSubstr("adapter_model.safetensors: tensor '" + tensors[0].spec.name +
                        "': expected shape [4, 64], found [8, 32]"));
  EXPECT_THAT(error_with("r", 8), HasSubstr("expected shape [8, 64], found [4, 64]"));
  const std::string path = directory_.file(std::string(kAdapterWeightsFile));
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  std::string bytes = text.str();
  bytes.replace(bytes.find("\"F32\""), 5, "\"I32\"");
  ASSERT_TRUE(write_file(path, bytes).ok());
  EXPECT_THAT(load_error(), HasSubstr("dtype I32 is not supported; known are F32 F16 BF16"));
}

TEST_F(AdapterTest, AMissingFileIsNamed) {
  std::filesystem::remove(directory_.file(std::string(kAdapterWeightsFile)));
  EXPECT_THAT(load_error(), HasSubstr("adapter_model.safetensors"));
  std::filesystem::remove(directory_.file(std::string(kAdapterConfigFile)));
  EXPECT_THAT(load_error(), HasSubstr("adapter_config.json"));
}

TEST_F(AdapterTest, EveryFailedReadIsReported) {
  std::int64_t fail_at = 0;
  for (;; ++fail_at) {
    FaultyFiles faulty(files_, fail_at);
    const auto adapter = load(faulty);
    if (!faulty.failed()) break;
    ASSERT_FALSE(adapter.ok()) << "operation " << fail_at;
    EXPECT_EQ(adapter.error().code, ErrorCode::kIo);
  }
  EXPECT_GE(fail_at, 30);  // the configuration, the header, each of 28 tensors
}

}  // namespace
}  // namespace stemma
