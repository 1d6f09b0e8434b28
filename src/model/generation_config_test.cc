// What is covered: the fields of generation_config.json, what takes their place where they or the
// file are absent, and that every error names file and field. How: small files in a directory of
// the test's own.
#include "model/generation_config.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class GenerationConfigFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(::testing::TempDir()) /
           (std::string("stemma_generation_config_") + test->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }

  std::filesystem::path dir_;
};

std::string error_of(const std::string& json) {
  const auto config = parse_generation_config(json, "generation_config.json");
  return config.ok() ? "" : config.error().detail;
}

TEST(GenerationConfig, ReadsEveryField) {
  const auto config = parse_generation_config(
      R"({"bos_token_id": 1, "eos_token_id": [2, 7, 2], "pad_token_id": 0, "do_sample": true,
          "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05,
          "repetition_penalty": 1.05, "max_new_tokens": 512, "transformers_version": "4.51.0"})",
      "f");
  ASSERT_TRUE(config.ok()) << to_string(config.error());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2, 7));
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_EQ(config->pad_token_id, 0);
  EXPECT_EQ(config->max_new_tokens, 512);
  EXPECT_TRUE(config->is_eos(7));
  EXPECT_FALSE(config->is_eos(1));
  const SamplingParams params = config->sampling_defaults();
  EXPECT_EQ(params.temperature, 0.6f);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_EQ(params.top_p, 0.95f);
  EXPECT_EQ(params.min_p, 0.05f);
  EXPECT_EQ(params.repetition_penalty, 1.05f);
}

TEST(GenerationConfig, WithoutDoSampleTheDefaultIsGreedy) {
  const auto config = parse_generation_config(R"({"eos_token_id": 2, "temperature": 0.6})", "f");
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
  EXPECT_EQ(config->sampling_defaults().temperature, 0);
}

TEST(GenerationConfig, NullAndMinusOneMeanAbsent) {
  const auto config = parse_generation_config(
      R"({"eos_token_id": null, "pad_token_id": -1, "temperature": null, "top_k": -1,
          "max_new_tokens": -1})",
      "f");
  ASSERT_TRUE(config.ok()) << to_string(config.error());
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
  EXPECT_FALSE(config->pad_token_id.has_value());
  EXPECT_FALSE(config->temperature.has_value());
  EXPECT_FALSE(config->max_new_tokens.has_value());
  EXPECT_EQ(config->sampling_defaults().top_k, 0) << "all";
}

// No token is called so, to Hugging Face's transformers either.
TEST(GenerationConfig, MinusOneEndsNoText) {
  const auto ends = [](const std::string& ids) {
    const auto config = parse_generation_config(R"({"eos_token_id":)" + ids + "}", "f");
    EXPECT_TRUE(config.ok()) << to_string(config.error());
    return config.ok() ? config->eos_token_ids : std::vector<TokenId>{-2};
  };
  EXPECT_THAT(ends("-1"), IsEmpty());
  EXPECT_THAT(ends("[2, -1]"), ElementsAre(2));
}

TEST(GenerationConfig, TopPOfZeroIsTheLikeliestTokenAsInRequests) {
  const auto config = parse_generation_config(R"({"do_sample": true, "top_p": 0.0})", "f");
  ASSERT_TRUE(config.ok()) << to_string(config.error());
  EXPECT_EQ(config->sampling_defaults().top_p, kLeastTopP);
}

TEST(GenerationConfig, TellsWhichFieldsItIgnores) {
  const auto ignored = [](const std::string& json) {
    const auto config = parse_generation_config(json, "f");
    EXPECT_TRUE(config.ok()) << to_string(config.error());
    return config.ok() ? config->ignored : std::vector<std::string>();
  };
  EXPECT_THAT(ignored(R"({"no_repeat_ngram_size": 3, "suppress_tokens": [1, 2], "top_k": 5,
                          "num_beams": 4, "_from_model_config": true})"),
              ElementsAre("suppress_tokens", "no_repeat_ngram_size", "num_beams"));
  EXPECT_THAT(ignored(R"({"no_repeat_ngram_size": 0, "suppress_tokens": [], "num_beams": 1,
                          "begin_suppress_tokens": null, "typical_p": 1.0, "min_length": 0,
                          "forced_eos_token_id": -1, "max_length": 4096})"),
              IsEmpty())
      << "what changes nothing";
}

TEST(GenerationConfig, ErrorsNameFileAndField) {
  EXPECT_EQ(error_of("{"), "generation_config.json: not valid JSON at byte 2");
  EXPECT_EQ(error_of("[]"), "generation_config.json: must be a JSON object");
  EXPECT_EQ(error_of(R"({"eos_token_id": "</s>"})"),
            "generation_config.json: eos_token_id must be a token id or a list of token ids");
  EXPECT_EQ(error_of(R"({"eos_token_id": [2, -2]})"),
            "generation_config.json: eos_token_id must be a token id or a list of token ids");
  EXPECT_EQ(error_of(R"({"bos_token_id": 1.5})"),
            "generation_config.json: bos_token_id must be a token id");
  EXPECT_EQ(error_of(R"({"bos_token_id": 4294967296})"),
            "generation_config.json: bos_token_id must be a token id");
  EXPECT_EQ(error_of(R"({"do_sample": 1})"),
            "generation_config.json: do_sample must be true or false");
  EXPECT_EQ(error_of(R"({"top_k": 18446744073709551615})"),
            "generation_config.json: top_k must be a whole number");
  EXPECT_EQ(error_of(R"({"top_p": "high"})"), "generation_config.json: top_p must be a number");
  EXPECT_THAT(error_of(R"({"top_p": 1.5})"),
              HasSubstr("generation_config.json: top_p must be above 0"));
  EXPECT_THAT(error_of(R"({"temperature": 1e300})"), HasSubstr("temperature must be a number"));
  EXPECT_THAT(error_of(R"({"max_new_tokens": 0})"), HasSubstr("max_new_tokens must be above 0"));
}

TEST(GenerationConfig, ValuesThatNestDeeplyAreRefused) {
  constexpr std::size_t kLevels = 100'000;
  const std::string deep = std::string(kLevels, '[') + "2" + std::string(kLevels, ']');
  for (const char* const field : {"eos_token_id", "bos_token_id", "top_k", "anything"}) {
    EXPECT_THAT(error_of("{\"" + std::string(field) + "\": " + deep + "}"),
                StartsWith("generation_config.json: JSON nested deeper than"))
        << field;
  }
}

TEST(GenerationConfig, TheLastOfANameCounts) {
  const auto config = parse_generation_config(R"({"eos_token_id": 2, "eos_token_id": 5})", "f");
  ASSERT_TRUE(config.ok()) << to_string(config.error());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(5));
}

TEST_F(GenerationConfigFiles, AbsentFilesGiveAnEmptyConfig) {
  const auto config = load_generation_config(dir_);
  ASSERT_TRUE(config.ok()) << to_string(config.error());
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
}

TEST_F(GenerationConfigFiles, EosFallsBackToTheModelConfig) {
  write("config.json", R"({"eos_token_id": [5, 6], "bos_token_id": 1})");
  auto config = load_generation_config(dir_);
  ASSERT_TRUE(config.ok()) << to_string(config.error());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(5, 6));
  EXPECT_EQ(config->bos_token_id, 1);

  write("generation_config.json", R"({"eos_token_id": 9})");
  config = load_generation_config(dir_);
  ASSERT_TRUE(config.ok()) << to_string(config.error());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(9));
  EXPECT_EQ(config->bos_token_id, 1);
}

TEST_F(GenerationConfigFiles, ErrorsOfEitherFileNameItsPath) {
  write("config.json", R"({"eos_token_id": true})");
  const auto model = load_generation_config(dir_);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().detail, HasSubstr((dir_ / "config.json").string() + ": eos_token_id"));

  write("generation_config.json", "not json");
  const auto generation = load_generation_config(dir_);
  ASSERT_FALSE(generation.ok());
  EXPECT_THAT(generation.error().detail,
              HasSubstr((dir_ / "generation_config.json").string() + ": not valid JSON"));
}

}  // namespace
}  // namespace stemma
