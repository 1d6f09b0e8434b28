#include "grammar/grammar_book.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "grammar/byte_regex.h"
#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "model/tokenizer_examples.h"

namespace stemma {
namespace {

// Tokens 0 to 255 are the bytes.
class GrammarBookTest : public testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 320;

  static Tokenizer tokenizer() {
    return std::move(Tokenizer::parse(byte_level_file().json(), "tokenizer.json")).value();
  }

  OwnedConstraint open(std::string_view schema) {
    ++asked_;
    Result<OwnedConstraint> constraint = book_.open(std::string(schema), [&](ByteGrammar& grammar) {
      ++written_;
      return add_json_schema(TemplateJson::parse(schema), {}, grammar);
    });
    EXPECT_TRUE(constraint.ok());
    return std::move(constraint).value();
  }

  TokenId token(char byte) const { return *tokenizer_.token_id(std::string(1, byte)); }
  void accept(const OwnedConstraint& constraint, std::string_view text) const {
    for (const char byte : text) constraint.get()->accept(token(byte));
  }
  static bool allows(const OwnedConstraint& constraint, TokenId token) {
    const auto words = constraint.get()->allowed();
    return (words[static_cast<std::size_t>(token) / 64] >> (token % 64) & 1) != 0;
  }
  static std::vector<std::uint64_t> words(const OwnedConstraint& constraint) {
    const auto allowed = constraint.get()->allowed();
    return {allowed.begin(), allowed.end()};
  }

  const Tokenizer tokenizer_ = tokenizer();
  GrammarBook book_{tokenizer_, kTokens};
  int asked_ = 0;
  int written_ = 0;
};

TEST_F(GrammarBookTest, ConstrainsTokensToTheGrammar) {
  const OwnedConstraint constraint = open(R"({"type":"integer"})");
  EXPECT_TRUE(allows(constraint, token('1')));
  EXPECT_TRUE(allows(constraint, token('-')));
  EXPECT_FALSE(allows(constraint, token('a')));
  EXPECT_FALSE(allows(constraint, 300)) << "special tokens are no text";
  EXPECT_FALSE(constraint.get()->may_end());
  accept(constraint, "12");
  EXPECT_TRUE(constraint.get()->may_end());
  EXPECT_FALSE(constraint.get()->is_whole());
  EXPECT_FALSE(allows(constraint, token('-')));
}

TEST_F(GrammarBookTest, KnowsWhenNothingCanFollow) {
  const OwnedConstraint constraint = open(R"({"type":"array"})");
  accept(constraint, "[");
  EXPECT_FALSE(constraint.get()->is_whole());
  accept(constraint, "]");
  EXPECT_TRUE(constraint.get()->is_whole());
  EXPECT_TRUE(constraint.get()->may_end());
}

TEST_F(GrammarBookTest, ACopyGoesItsOwnWay) {
  const OwnedConstraint one = open(R"({"enum":["aa","bb"]})");
  accept(one, "\"");
  const OwnedConstraint other = one;
  accept(one, "a");
  accept(other, "b");
  EXPECT_TRUE(allows(one, token('a')));
  EXPECT_FALSE(allows(one, token('b')));
  EXPECT_TRUE(allows(other, token('b')));
  EXPECT_FALSE(allows(other, token('a')));
}

TEST_F(GrammarBookTest, CompilesAGrammarOnce) {
  const OwnedConstraint one = open(R"({"type":"null"})");
  const OwnedConstraint other = open(R"({"type":"null"})");
  EXPECT_EQ(written_, 1);
  EXPECT_EQ(book_.grammars(), 1U);
}

TEST_F(GrammarBookTest, KeepsGrammarsThatAreUsedAndSomeOthers) {
  const OwnedConstraint kept = open(R"({"const":"kept"})");
  for (std::size_t i = 0; i < 2 * GrammarBook::kIdleMax; ++i) {
    open(R"({"const":)" + std::to_string(i) + "}");
  }
  EXPECT_EQ(book_.grammars(), GrammarBook::kIdleMax + 1);
  written_ = 0;
  open(R"({"const":"kept"})");
  open(R"({"const":)" + std::to_string(2 * GrammarBook::kIdleMax - 1) + "}");
  EXPECT_EQ(written_, 0) << "those used last are kept";
  open(R"({"const":0})");
  EXPECT_EQ(written_, 1);
}

TEST_F(GrammarBookTest, GivesTheErrorOfTheGrammar) {
  const auto refused = book_.open("x", [](ByteGrammar& grammar) -> Result<ByteGrammar::Part> {
    const ByteGrammar::Part rule = grammar.rule();
    grammar.define(rule, rule);
    return rule;
  });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().detail, "there is no finite text of this form");
  EXPECT_EQ(book_.grammars(), 0U);
}

// Of 9,000 characters there are more states than are kept: what may come is the same for whoever
// was there when states were let go, and for whoever comes after.
TEST_F(GrammarBookTest, WhatMayComeDependsOnTheOutputAlone) {
  const std::string_view schema = R"({"type":"string","maxLength":9000})";
  const OwnedConstraint early = open(schema);
  accept(early, "\"abc");
  const std::vector<std::uint64_t> before = words(early);
  const OwnedConstraint through = open(schema);
  accept(through, "\"");
  for (int i = 0; i < 9000; ++i) {
    words(through);
    accept(through, "x");
  }
  EXPECT_FALSE(allows(through, token('x')));
  EXPECT_TRUE(allows(through, token('"')));
  EXPECT_EQ(words(early), before);
  accept(early, "\"");
  EXPECT_TRUE(early.get()->is_whole());
  const OwnedConstraint late = open(schema);
  accept(late, "\"abc");
  EXPECT_EQ(words(late), before);
}

TEST_F(GrammarBookTest, AGrammarThatNeedsTooMuchWorkAllowsNothing) {
  GrammarBook book(tokenizer_, kTokens, /*work_max=*/400);
  const auto open = [&] {
    return book.open("x", [](ByteGrammar& grammar) {
      return add_regex("[ab]*a[ab]{300}", RegexMatch::kWhole, grammar);
    });
  };
  const Result<OwnedConstraint> constraint = open();
  ASSERT_TRUE(constraint.ok());
  EXPECT_TRUE(allows(*constraint, token('a')));
  const OwnedConstraint other = *constraint;
  for (int i = 0; i < 100 && !constraint->get()->allowed().empty(); ++i) accept(*constraint, "a");
  EXPECT_TRUE(constraint->get()->allowed().empty());
  EXPECT_TRUE(other.get()->allowed().empty()) << "whoever comes by";
  accept(other, "ab");
  ASSERT_FALSE(open().ok());
  EXPECT_EQ(open().error().detail, "a text of this form can be read in too many ways");
}

// Each thread opens, copies, follows and leaves; two forms by turns, so that grammars come and go.
TEST_F(GrammarBookTest, ThreadsShareGrammars) {
  const auto write = [](std::string_view schema) {
    return [schema](ByteGrammar& grammar) {
      return add_json_schema(TemplateJson::parse(schema), {}, grammar);
    };
  };
  std::atomic<int> wrong = 0;
  const auto run = [&](int seed) {
    for (int i = 0; i < 60; ++i) {
      const std::string schema =
          (i + seed) % 2 == 0 ? R"({"type":"array"})" : R"({"const":)" + std::to_string(i) + "}";
      const auto one = book_.open(schema, write(schema));
      const OwnedConstraint other = *one;
      const bool is_array = (i + seed) % 2 == 0;
      if (allows(other, token('[')) != is_array) ++wrong;
      if (!is_array) continue;
      accept(*one, "[[1,");
      accept(other, "[");
      if (!allows(*one, token('2')) || !allows(other, token(']'))) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int seed = 0; seed < 4; ++seed) threads.emplace_back(run, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// r0 is r1 twice, that is r2 twice, ..., and the last may be nothing: nothing is read in 2^30 ways.
std::string doubling_rules(const std::string& root) {
  std::string rules = "root ::= " + root + "\n";
  for (int i = 0; i < 30; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    rules += "r" + std::to_string(i) + " ::= " + next + " " + next + " | \"\"\n";
  }
  return rules + "r30 ::= \"\"\n";
}

TEST_F(GrammarBookTest, AGrammarThatBeginsInTooManyWaysIsRefused) {
  const Result<OwnedConstraint> opened = book_.open(
      "begin", [](ByteGrammar& grammar) { return add_ebnf(doubling_rules("r0 \"x\""), grammar); });
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().detail, "a text of this form can be read in too many ways");
}

TEST_F(GrammarBookTest, AGrammarThatGoesOnInTooManyWaysAllowsNothing) {
  const Result<OwnedConstraint> opened = book_.open("later", [](ByteGrammar& grammar) {
    return add_ebnf(doubling_rules("\"q\" r0 \"x\""), grammar);
  });
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(opened->get()->allowed().empty());
}

TEST_F(GrammarBookTest, AnExpressionOfNothingManyTimesIsRefused) {
  const Result<OwnedConstraint> opened = book_.open("nothing", [](ByteGrammar& grammar) {
    return add_regex("((((()?){100}){100}){100}){100}a", RegexMatch::kWhole, grammar);
  });
  EXPECT_FALSE(opened.ok());
}

}  // namespace
}  // namespace stemma
