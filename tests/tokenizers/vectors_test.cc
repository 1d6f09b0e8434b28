// The tokenizers of real models: every text of the vector files gives the frozen ids, decodes to
// what it was, and decodes piece by piece to the same. Skipped where the vector files, which are
// not part of the repository, are absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/prng.h"
#include "model/detokenizer.h"
#include "model/tokenizer.h"

namespace stemma {
namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> texts_of(const std::string& file) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (std::size_t end = file.find(separator); end != std::string::npos;
       end = file.find(separator, at)) {
    texts.push_back(file.substr(at, end - at));
    at = end + separator.size();
  }
  if (at < file.size()) {
    texts.push_back(file.substr(at));
  }
  return texts;
}

std::vector<std::vector<TokenId>> id_lines_of(const std::string& file) {
  std::vector<std::vector<TokenId>> lines;
  std::istringstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream numbers(line);
    lines.emplace_back(std::istream_iterator<TokenId>(numbers), std::istream_iterator<TokenId>());
  }
  return lines;
}

class Vectors : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = fs::path(STEMMA_SOURCE_DIR) / ".." / "shared" / "data" / "tokenizers" / GetParam();
    if (!fs::exists(folder_ / "tokenizer.json")) {
      GTEST_SKIP() << "no vectors at " << folder_;
    }
  }

  Tokenizer load() const {
    Result<Tokenizer> tokenizer = Tokenizer::load(folder_);
    EXPECT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
    return std::move(tokenizer).value();
  }

  fs::path folder_;
};

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens, bool skip) {
  Detokenizer detokenizer(tokenizer, skip);
  std::string text;
  for (const TokenId token : tokens) {
    text += detokenizer.push(token);
  }
  return text + detokenizer.flush();
}

TEST_P(Vectors, EveryTextGivesItsFrozenIds) {
  const Tokenizer tokenizer = load();
  const std::vector<std::string> texts = texts_of(read_all(folder_ / "vectors.inp"));
  const std::vector<std::vector<TokenId>> ids = id_lines_of(read_all(folder_ / "vectors.out"));
  ASSERT_GT(texts.size(), 10u);
  ASSERT_EQ(texts.size(), ids.size());
  for (std::size_t vector = 0; vector < texts.size(); ++vector) {
    const auto tokens = tokenizer.encode(texts[vector], {});
    ASSERT_TRUE(tokens.ok()) << to_string(tokens.error());
    EXPECT_EQ(tokens.value(), ids[vector]) << "vector " << vector << ": " << texts[vector];
    EXPECT_EQ(tokenizer.decode(ids[vector], true), texts[vector]) << "vector " << vector;
    EXPECT_EQ(streamed(tokenizer, ids[vector], true), texts[vector]) << "vector " << vector;
  }
}

TEST_P(Vectors, StreamedPiecesJoinToTheDecodedText) {
  const Tokenizer tokenizer = load();
  constexpr std::uint64_t kSeed = 20'240;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng prng(kSeed);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<TokenId> tokens;
    // Byte tokens and byte-level characters lie among the first few hundred ids: half of the draws.
    const std::int64_t tokens_wanted = prng.below(24);
    for (std::int64_t drawn = 0; drawn < tokens_wanted; ++drawn) {
      const std::int64_t end = prng.below(2) == 0 ? 300 : tokenizer.vocab_tokens() + 2;
      tokens.push_back(static_cast<TokenId>(prng.below(end)));
    }
    const bool skip = prng.below(2) == 0;
    ASSERT_EQ(streamed(tokenizer, tokens, skip), tokenizer.decode(tokens, skip))
        << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Vectors,
                         testing::Values("gpt-2", "llama-spm", "mpt", "starcoder"),
                         [](const testing::TestParamInfo<const char*>& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace stemma
