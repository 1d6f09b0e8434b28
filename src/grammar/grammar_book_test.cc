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

// A text that can be read in many ways, so that states are costly: some 600 units a byte.
class PortionsTest : public GrammarBookTest {
 protected:
  static constexpr std::int64_t kPortion = 100;

  static Result<OwnedConstraint> open_costly(GrammarBook& book) {
    return book.open("costly", [](ByteGrammar& grammar) {
      return add_regex("[ab]*a[ab]{300}", RegexMatch::kWhole, grammar);
    });
  }
  OwnedConstraint open_costly() { return std::move(open_costly(book_)).value(); }
  // Behind so many bytes.
  OwnedConstraint costly_behind(const OwnedConstraint& begin, int bytes, std::uint64_t seed) const {
    OwnedConstraint out = begin;
    Prng prng(seed);
    for (int i = 0; i < bytes; ++i) accept(out, prng.below(2) == 0 ? "a" : "b");
    return out;
  }
  // Work, portion by portion, until it is ready; how much each took.
  static std::vector<std::int64_t> prepare(const OwnedConstraint& constraint) {
    std::vector<std::int64_t> took;
    while (!constraint.get()->is_ready()) took.push_back(constraint.get()->prepare(kPortion));
    return took;
  }
};

TEST_F(PortionsTest, GiveWhatAllAtOnceGives) {
  const OwnedConstraint all_at_once = costly_behind(open_costly(), 150, 1);
  const std::vector<std::uint64_t> expected = words(all_at_once);
  GrammarBook other(tokenizer_, kTokens);
  const Result<OwnedConstraint> begin = open_costly(other);
  const OwnedConstraint in_portions = costly_behind(*begin, 150, 1);
  EXPECT_FALSE(in_portions.get()->is_ready());
  const std::vector<std::int64_t> took = prepare(in_portions);
  EXPECT_GT(took.size(), 1U);
  for (const std::int64_t units : took) {
    EXPECT_GT(units, 0);
    EXPECT_LE(units, kPortion + 3'000) << "what is begun is done: a byte";
  }
  EXPECT_EQ(words(in_portions), expected);
  EXPECT_EQ(in_portions.get()->prepare(kPortion), 0) << "there is nothing left to do";
}

TEST_F(PortionsTest, OfOneAreForAllInItsState) {
  const OwnedConstraint one = costly_behind(open_costly(), 150, 1);
  const std::vector<OwnedConstraint> others(5, one);
  prepare(one);
  for (const OwnedConstraint& other : others) {
    EXPECT_TRUE(other.get()->is_ready());
    EXPECT_EQ(other.get()->allowed().data(), one.get()->allowed().data()) << "one list for all";
  }
}

TEST_F(PortionsTest, GoOnWhereTheFirstToAskIsGone) {
  const OwnedConstraint begin = open_costly();
  {
    const OwnedConstraint gone = costly_behind(begin, 150, 1);
    gone.get()->prepare(1);
    const OwnedConstraint same = gone;
    EXPECT_FALSE(same.get()->is_ready());
  }
  const OwnedConstraint other = costly_behind(begin, 140, 2);
  prepare(other);
  EXPECT_TRUE(allows(other, token('a')));
}

// In whatever order they have work left, each is done: the states of one grammar take turns.
TEST_F(PortionsTest, OfSeveralByTurnsMakeAllReady) {
  const OwnedConstraint begin = open_costly();
  std::vector<OwnedConstraint> all;
  for (std::uint64_t seed = 0; seed < 8; ++seed) all.push_back(costly_behind(begin, 150, seed));
  for (int turns = 0; turns < 1'000; ++turns) {
    for (const OwnedConstraint& one : all) one.get()->prepare(kPortion);
  }
  for (const OwnedConstraint& one : all) EXPECT_TRUE(one.get()->is_ready());
}

TEST_F(PortionsTest, AreGivenUpWhereAllAtOnceIs) {
  const auto bytes_until_given_up = [&](std::int64_t units) {
    GrammarBook book(tokenizer_, kTokens, /*work_max=*/2'500);
    const Result<OwnedConstraint> constraint = open_costly(book);
    for (int bytes = 0; bytes < 400; ++bytes) {
      while (units > 0 && !constraint->get()->is_ready()) constraint->get()->prepare(units);
      if (constraint->get()->allowed().empty()) return bytes;
      accept(*constraint, "a");
    }
    return -1;
  };
  const int all_at_once = bytes_until_given_up(0);
  EXPECT_GT(all_at_once, 10);
  EXPECT_EQ(bytes_until_given_up(1), all_at_once);
  EXPECT_EQ(bytes_until_given_up(100), all_at_once);
}

// States are let go when they are many. Who waits for its token keeps what it needs for a while,
// and then its list.
TEST_F(PortionsTest, AreDoneAgainWhereStatesWereLetGo) {
  const std::string_view schema = R"({"type":"string","maxLength":30000})";
  const OwnedConstraint waits = open(schema);
  accept(waits, "\"abc");
  const std::vector<std::uint64_t> before = words(waits);
  const OwnedConstraint through = open(schema);
  accept(through, "\"");
  int bytes = 0;
  for (; bytes < 20'000 && waits.get()->is_ready(); ++bytes) {
    prepare(through);
    accept(through, "x");
  }
  EXPECT_GT(bytes, 1'000) << "of some 20 states each";
  EXPECT_FALSE(waits.get()->is_ready());
  EXPECT_EQ(words(waits), before);
  prepare(waits);
  EXPECT_EQ(words(waits), before);
  accept(waits, "\"");
  EXPECT_TRUE(waits.get()->is_whole());
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
