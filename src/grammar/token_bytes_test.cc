#include "grammar/token_bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"
#include "model/tokenizer.h"
#include "model/tokenizer_examples.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

Tokenizer tokenizer_of(const ExampleFile& file) {
  return std::move(Tokenizer::parse(file.json(), "tokenizer.json")).value();
}

TEST(TokenBytes, OfAByteLevelVocabulary) {
  const Tokenizer tokenizer = tokenizer_of(byte_level_file());
  const std::vector<std::string> bytes = bytes_of_tokens(tokenizer, 303);
  EXPECT_EQ(bytes[static_cast<std::size_t>(*tokenizer.token_id("Ġw"))], " w");
  EXPECT_EQ(bytes[static_cast<std::size_t>(*tokenizer.token_id("he"))], "he");
  EXPECT_EQ(bytes[300], "") << "special tokens are no text";
  EXPECT_EQ(bytes[302], "") << "there is no such token";
}

TEST(TokenBytes, OfASentencePieceVocabulary) {
  const Tokenizer tokenizer = tokenizer_of(sentence_piece_file());
  EXPECT_EQ(token_bytes(tokenizer, *tokenizer.token_id("▁hi")), " hi");
  EXPECT_EQ(token_bytes(tokenizer, *tokenizer.token_id("<0xE2>")), "\xE2");
  EXPECT_EQ(token_bytes(tokenizer, 1), "");
}

TEST(TokenBytes, OfAnAddedTokenThatIsText) {
  ExampleFile file = byte_level_file();
  file.added_tokens = R"([{"id":300,"content":"<tool call>é","special":false}])";
  const Tokenizer tokenizer = tokenizer_of(file);
  EXPECT_EQ(token_bytes(tokenizer, 300), "<tool call>é");
}

// Whatever the tokens, what they write together is what a decoder gives for them.
class TokenBytesOf : public testing::TestWithParam<ExampleFile> {};

TEST_P(TokenBytesOf, AreThoseThatADecoderJoins) {
  const Tokenizer tokenizer = tokenizer_of(GetParam());
  Prng prng(1);
  int compared = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<TokenId> tokens;
    std::string bytes;
    const std::int64_t length = 1 + prng.below(5);
    for (std::int64_t k = 0; k < length; ++k) {
      tokens.push_back(static_cast<TokenId>(prng.below(tokenizer.vocab_tokens())));
      bytes += token_bytes(tokenizer, tokens.back());
    }
    if (!is_utf8(bytes) || bytes.starts_with(' ')) continue;  // decoders may take that space off
    ++compared;
    ASSERT_EQ(tokenizer.decode(tokens, /*skip_special_tokens=*/true), bytes);
  }
  EXPECT_GT(compared, 2'000);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenBytesOf,
                         testing::Values(byte_level_file(), sentence_piece_file()));

}  // namespace
}  // namespace stemma
