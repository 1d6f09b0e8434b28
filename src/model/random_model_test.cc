// RandomModel: what it writes loads like a published model, and the same options give the same
// bytes.
#include "model/random_model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/temp_directory.h"
#include "model/config.h"
#include "model/tokenizer.h"
#include "model/weight_files.h"

namespace stemma {
namespace {

std::string bytes_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(RandomModel, ItsConfigurationReadsBackAsItWas) {
  for (const std::string_view name : tiny_model_names()) {
    SCOPED_TRACE(name);
    const ModelConfig config = tiny_model_config(name);
    const auto parsed = parse_config(config_json(config), "config.json");
    ASSERT_TRUE(parsed.ok()) << to_string(parsed.error());
    EXPECT_EQ(parsed->family, config.family);
    EXPECT_EQ(parsed->rope, config.rope);
    EXPECT_EQ(parsed->mixture, config.mixture);
    EXPECT_EQ(parsed->latent, config.latent);
    EXPECT_EQ(parsed->windows, config.windows);
    EXPECT_EQ(parsed->windowed_rope, config.windowed_rope);
    EXPECT_EQ(parsed->windowed_pool_shape(), config.windowed_pool_shape());
    EXPECT_EQ(parsed->activation, config.activation);
    EXPECT_EQ(parsed->branch_norms, config.branch_norms);
    EXPECT_EQ(parsed->score_dim, config.score_dim);
    EXPECT_EQ(parsed->score_cap, config.score_cap);
    EXPECT_EQ(parsed->logit_cap, config.logit_cap);
    EXPECT_EQ(parsed->pool_shape(), config.pool_shape());
    EXPECT_EQ(parsed->qkv_bias, config.qkv_bias);
    EXPECT_EQ(parsed->output_bias, config.output_bias);
    EXPECT_EQ(parsed->mlp_bias, config.mlp_bias);
    EXPECT_EQ(parsed->head_norms, config.head_norms);
    EXPECT_EQ(parsed->tied_embeddings, config.tied_embeddings);
    EXPECT_EQ(parsed->norm_epsilon, config.norm_epsilon);
    EXPECT_EQ(parsed->query_columns(), config.query_columns());
    EXPECT_EQ(parsed->kv_columns(), config.kv_columns());
    EXPECT_EQ(parsed->end_tokens, config.end_tokens);
  }
}

TEST(RandomModel, ItsTokensAreBytes) {
  TempDirectory directory;
  ASSERT_TRUE(write_random_model(directory.path(), {.config = tiny_model_config("qwen3")}).ok());
  const auto tokenizer = Tokenizer::load(directory.path());
  ASSERT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  std::string text;
  std::vector<TokenId> expected;
  for (const char letter : std::string("He said:\n\t\"\xC3\xA9t\xC3\xA9\" \xE2\x82\xAC 42")) {
    text += letter;
    expected.push_back(static_cast<unsigned char>(letter));
  }
  const auto tokens = tokenizer->encode(text, {});
  ASSERT_TRUE(tokens.ok()) << to_string(tokens.error());
  EXPECT_EQ(*tokens, expected);
  EXPECT_EQ(tokenizer->decode(expected, true), text);
  EXPECT_TRUE(tokenizer->is_special(256));
}

TEST(RandomModel, TensorsMayHaveOtherTypes) {
  TempDirectory directory;
  ASSERT_TRUE(write_random_model(directory.path(), {.config = tiny_model_config("llama2"),
                                                    .type = WeightType::kBf16,
                                                    .others = {{"0.mlp.up_proj.weight"}}})
                  .ok());
  PosixFiles files;
  const auto opened = WeightFiles::open(files, directory.path());
  ASSERT_TRUE(opened.ok());
  const auto type_of = [&](const std::string& layer) {
    return opened->find_or_null("model.layers." + layer + ".mlp.up_proj.weight")->weight_type();
  };
  EXPECT_EQ(type_of("0"), WeightType::kF32);
  EXPECT_EQ(type_of("1"), WeightType::kBf16);
}

TEST(RandomModel, TheSameSeedGivesTheSameBytes) {
  TempDirectory first;
  TempDirectory second;
  TempDirectory other;
  const ModelConfig config = tiny_model_config("llama2");
  ASSERT_TRUE(write_random_model(first.path(), {.config = config, .seed = 5}).ok());
  ASSERT_TRUE(write_random_model(second.path(), {.config = config, .seed = 5}).ok());
  ASSERT_TRUE(write_random_model(other.path(), {.config = config, .seed = 6}).ok());
  const std::string bytes = bytes_of(first.file("model.safetensors"));
  EXPECT_GT(bytes.size(), 100'000u);
  EXPECT_EQ(bytes, bytes_of(second.file("model.safetensors")));
  EXPECT_NE(bytes, bytes_of(other.file("model.safetensors")));
}

}  // namespace
}  // namespace stemma
