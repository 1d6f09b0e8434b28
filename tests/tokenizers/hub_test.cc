// What is covered: the tokenizers of published models against Hugging Face's own. How: texts that
// tests/hub draws, with the tokens and the texts that library makes of them; `tools/check hub` has
// it make them. Skipped with a message where they are absent.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/tokenizer.h"

namespace stemma {
namespace {

namespace fs = std::filesystem;

const fs::path kHubTokens = STEMMA_SOURCE_DIR "/build/hub/tokens";

void expect_vector(const Tokenizer& tokenizer, const nlohmann::json& vector) {
  const auto text = vector["text"].get<std::string>();
  const auto ids = vector["ids"].get<std::vector<TokenId>>();
  SCOPED_TRACE(vector["text"].dump());
  const auto tokens = tokenizer.encode(text, {});
  ASSERT_TRUE(tokens.ok()) << to_string(tokens.error());
  EXPECT_EQ(*tokens, ids);
  const auto around = tokenizer.encode(text, {.add_special_tokens = true});
  ASSERT_TRUE(around.ok()) << to_string(around.error());
  EXPECT_EQ(*around, vector["around"].get<std::vector<TokenId>>());
  EXPECT_EQ(tokenizer.decode(ids, false), vector["decoded"].get<std::string>());
  EXPECT_EQ(tokenizer.decode(ids, true), vector["shown"].get<std::string>());
}

TEST(HubTokenizers, MakeTheTokensThatHuggingFaceMakes) {
  if (!fs::exists(kHubTokens)) {
    GTEST_SKIP() << "no texts at " << kHubTokens << ": `tools/check hub` makes them";
  }
  int models = 0;
  for (const auto& entry : fs::directory_iterator(kHubTokens)) {
    std::ifstream file(entry.path());
    const nlohmann::json known = nlohmann::json::parse(file);
    SCOPED_TRACE(entry.path().filename().string());
    std::ifstream model(known["file"].get<std::string>(), std::ios::binary);
    const std::string json(std::istreambuf_iterator<char>(model), {});
    const auto tokenizer = Tokenizer::parse(json, "tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
    for (const nlohmann::json& vector : known["vectors"]) expect_vector(*tokenizer, vector);
    ++models;
  }
  EXPECT_GE(models, 16);
}

}  // namespace
}  // namespace stemma
