#include "server/thought_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar_book.h"
#include "grammar/json_schema.h"
#include "model/tokenizer_examples.h"
#include "server/output_grammar.h"

namespace stemma {
namespace {

// Tokens 0 to 255 are the bytes; then come "th" and "</", then what a test adds.
class ThoughtBudgetTest : public testing::Test {
 protected:
  static constexpr std::int64_t kVocabTokens = 320;

  static Tokenizer tokenizer(const std::string& added_tokens) {
    ExampleFile file;
    file.pre_tokenizer = file.decoder = R"({"type":"ByteLevel","add_prefix_space":false})";
    file.model = byte_level_model({{"t", "h"}, {"<", "/"}});
    file.added_tokens = added_tokens;
    return std::move(Tokenizer::parse(file.json(), "tokenizer.json")).value();
  }

  OwnedConstraint open(std::int64_t tokens, ThoughtPlace place, OwnedConstraint form = {}) const {
    const ThoughtBudget budget = {.tokens = tokens, .place = place};
    return with_thought_budget(std::move(form), budget, tokenizer_, kVocabTokens);
  }

  TokenId token(std::string_view text) const { return *tokenizer_.token_id(text); }
  static std::vector<TokenId> allowed_by(const OwnedConstraint& constraint) {
    const auto words = constraint.get()->allowed();
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < words.size() * 64; ++i) {
      if ((words[i / 64] >> (i % 64) & 1) != 0) tokens.push_back(static_cast<TokenId>(i));
    }
    return tokens;
  }
  static bool is_free(const OwnedConstraint& constraint) {
    return std::ssize(allowed_by(constraint)) == kVocabTokens;
  }
  // A byte a token. All have to be allowed.
  static void write(const OwnedConstraint& constraint, std::string_view text) {
    for (const char byte : text) {
      const auto token = static_cast<TokenId>(static_cast<std::uint8_t>(byte));
      const std::vector<TokenId> allowed = allowed_by(constraint);
      ASSERT_NE(std::find(allowed.begin(), allowed.end(), token), allowed.end()) << byte;
      constraint.get()->accept(token);
    }
  }
  // What comes where nothing else may, as text.
  std::string forced(const OwnedConstraint& constraint, int* tokens = nullptr) const {
    std::vector<TokenId> written;
    for (auto allowed = allowed_by(constraint); allowed.size() == 1;
         allowed = allowed_by(constraint)) {
      EXPECT_FALSE(constraint.get()->may_end());
      written.push_back(allowed.front());
      constraint.get()->accept(allowed.front());
    }
    if (tokens != nullptr) *tokens = static_cast<int>(written.size());
    return tokenizer_.decode(written, false);
  }

  Tokenizer tokenizer_ = tokenizer("[]");
};

TEST_F(ThoughtBudgetTest, BehindSoManyTokensOnlyTheMarkMayCome) {
  const OwnedConstraint constraint = open(3, ThoughtPlace::kInside);
  write(constraint, "ab");
  EXPECT_TRUE(is_free(constraint));
  EXPECT_TRUE(constraint.get()->may_end()) << "a model may end in its thoughts";
  write(constraint, "c");
  EXPECT_EQ(forced(constraint), "</think>");
  EXPECT_TRUE(is_free(constraint));
}

TEST_F(ThoughtBudgetTest, TheAnswerBehindThemIsAsLongAsItLikes) {
  const OwnedConstraint constraint = open(9, ThoughtPlace::kInside);
  write(constraint, "a</think>abcdefghij<think>abcdefghij");
  EXPECT_TRUE(is_free(constraint));
  EXPECT_TRUE(constraint.get()->may_end());
  EXPECT_FALSE(constraint.get()->is_whole());
}

TEST_F(ThoughtBudgetTest, AnAnswerThatThinksByItselfIsCountedFromItsMarkOn) {
  const OwnedConstraint constraint = open(2, ThoughtPlace::kBefore);
  write(constraint, "\n<think>ab");
  EXPECT_EQ(forced(constraint), "</think>");
}

TEST_F(ThoughtBudgetTest, AnAnswerWithoutThoughtsIsNotCounted) {
  const OwnedConstraint constraint = open(0, ThoughtPlace::kBefore);
  write(constraint, "It is <think>so.");
  EXPECT_TRUE(is_free(constraint));
}

TEST_F(ThoughtBudgetTest, WithoutABudgetTheyEndAtOnce) {
  EXPECT_EQ(forced(open(0, ThoughtPlace::kInside)), "</think>");
  const OwnedConstraint constraint = open(0, ThoughtPlace::kBefore);
  write(constraint, "<think>");
  EXPECT_EQ(forced(constraint), "</think>");
}

TEST_F(ThoughtBudgetTest, TheMarkIsWrittenInTheFewestTokens) {
  int tokens = 0;
  EXPECT_EQ(forced(open(0, ThoughtPlace::kInside), &tokens), "</think>");
  EXPECT_EQ(tokens, 6) << "</, th, i, n, k, >";
  const std::string mark = R"([{"id":300,"content":"</think>","special":true}])";
  tokenizer_ = tokenizer(mark);
  tokenizer_.show("</think>");
  EXPECT_EQ(allowed_by(open(0, ThoughtPlace::kInside)), std::vector<TokenId>{300});
}

TEST_F(ThoughtBudgetTest, OfAMarkThatIsBegunTheRestComes) {
  const OwnedConstraint constraint = open(4, ThoughtPlace::kInside);
  write(constraint, "a</t");
  EXPECT_EQ(forced(constraint), "hink>");
  EXPECT_TRUE(is_free(constraint));
}

TEST_F(ThoughtBudgetTest, ACharacterThatIsBegunIsFinished) {
  const OwnedConstraint constraint = open(2, ThoughtPlace::kInside);
  write(constraint, "a\xE2");
  EXPECT_TRUE(is_free(constraint));
  write(constraint, "\x82");
  EXPECT_TRUE(is_free(constraint));
  write(constraint, "\xAC");
  EXPECT_EQ(forced(constraint), "</think>");
}

// Of bytes that never become one there are three more.
TEST_F(ThoughtBudgetTest, AndOneThatNeverIsDoesNotLastForEver) {
  const OwnedConstraint constraint = open(2, ThoughtPlace::kInside);
  write(constraint, "a\xF0\xF0\xF0");
  EXPECT_TRUE(is_free(constraint));
  write(constraint, "\xF0");
  EXPECT_EQ(forced(constraint), "</think>");
}

TEST_F(ThoughtBudgetTest, ACopyCountsByItself) {
  const OwnedConstraint one = open(2, ThoughtPlace::kInside);
  write(one, "a");
  const OwnedConstraint other = one;
  write(one, "b");
  EXPECT_TRUE(is_free(other));
  EXPECT_EQ(forced(one), "</think>");
  write(other, "b");
  EXPECT_EQ(forced(other), "</think>");
}

TEST_F(ThoughtBudgetTest, AFormBeginsBehindThem) {
  GrammarBook book(tokenizer_, kVocabTokens);
  const auto digits = [](ByteGrammar& grammar) -> Result<ByteGrammar::Part> {
    const ByteGrammar::Part digit = grammar.repeated(grammar.one_of("0123456789"), 2, 2);
    return add_thoughts(ThoughtPlace::kInside, digit, grammar);
  };
  const OwnedConstraint constraint = open(3, ThoughtPlace::kInside, *book.open("digits", digits));
  write(constraint, "abc");
  EXPECT_EQ(forced(constraint), "</think>");
  EXPECT_FALSE(constraint.get()->may_end());
  write(constraint, "12");
  EXPECT_TRUE(constraint.get()->is_whole());
}

TEST_F(ThoughtBudgetTest, ThereIsNoneWhereNothingIsThought) {
  EXPECT_EQ(open(1, ThoughtPlace::kBehind).get(), nullptr);
}

// As a vocabulary without the byte '<' would.
TEST_F(ThoughtBudgetTest, NorWhereTheMarkCannotBeWritten) {
  ExampleFile file;
  file.model = R"({"type":"BPE","vocab":{"t":0,"h":1},"merges":[]})";
  tokenizer_ = std::move(Tokenizer::parse(file.json(), "tokenizer.json")).value();
  EXPECT_EQ(open(1, ThoughtPlace::kInside).get(), nullptr);
}

}  // namespace
}  // namespace stemma
