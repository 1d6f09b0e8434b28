// Where in a text its tokens begin, and how each reads there: special tokens that the text has, and
// those that were put around it.
#include "server/token_chances.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/tokenizer_examples.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;

class TokenChancesTest : public testing::Test {
 protected:
  struct Read {
    std::vector<std::string> texts;
    std::vector<std::int64_t> places;
  };
  Read read(const TokenChances::Rules& rules, std::span<const TokenId> tokens) const {
    TokenChances chances(*tokenizer_, rules);
    Read read;
    for (const TokenId token : tokens) {
      const TokenChance chance = chances.given(token);
      read.texts.push_back(chance.token.text);
      read.places.push_back(chance.first_character);
    }
    return read;
  }

  // "hi<s>hi" with its begin before it and its end behind: <s> hi <s> hi </s>.
  static constexpr TokenId kTokens[] = {1, 263, 1, 263, 2};
  Result<Tokenizer> tokenizer_ = Tokenizer::parse(sentence_piece_file().json(), "file");
};

TEST_F(TokenChancesTest, SpecialTokensThatAreTextTakeTheirPlaceInIt) {
  const Read all = read({}, kTokens);
  EXPECT_THAT(all.texts, ElementsAre("<s>", " hi", "<s>", " hi", "</s>"));
  EXPECT_THAT(all.places, ElementsAre(0, 3, 6, 9, 12));
  EXPECT_EQ(tokenizer_->decode(kTokens, /*skip_special_tokens=*/false), "<s> hi<s> hi</s>");
}

TEST_F(TokenChancesTest, TokensPutAroundATextTakeNone) {
  const Read sent = read({.begin = 1, .end = 4}, kTokens);
  EXPECT_THAT(sent.texts, ElementsAre("<s>", "hi", "<s>", " hi", "</s>"));
  EXPECT_THAT(sent.places, ElementsAre(0, 0, 2, 5, 8));
}

TEST_F(TokenChancesTest, SpecialTokensThatAreSkippedTakeNone) {
  const Read skipped = read({.skip_special_tokens = true}, kTokens);
  EXPECT_THAT(skipped.texts, ElementsAre("<s>", "hi", "<s>", " hi", "</s>"));
  EXPECT_THAT(skipped.places, ElementsAre(0, 0, 2, 2, 5));
}

TEST_F(TokenChancesTest, TokensThatAreOnlyCountedAreReadThereAfterAll) {
  const GivenTokens given = {&*tokenizer_, {.begin = 1, .end = 4}, {kTokens, kTokens + 3}};
  TokenChances rest = given.behind();
  const TokenChance fourth = rest.given(kTokens[3]);
  EXPECT_EQ(fourth.token.text, " hi");
  EXPECT_EQ(fourth.first_character, 5);
  const std::vector<TokenChance> chances = given.read();
  ASSERT_EQ(chances.size(), 3U);
  EXPECT_EQ(chances[1].token.text, "hi");
  EXPECT_EQ(chances[2].first_character, 2);
}

}  // namespace
}  // namespace stemma
