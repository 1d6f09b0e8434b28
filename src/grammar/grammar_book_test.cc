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

// "[ab]*a" and then so many letters, each of steps of its own: a text can be at all of them.
std::string costly_expression(int letters) {
  std::string expression = "[ab]*a";
  for (int i = 0; i < letters; ++i) expression += "(a|b|[ab])";
  return expression;
}

// Tokens 0 to 255 are the bytes.
class GrammarBookTest : public testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 320;

  static Tokenizer tokenizer() {
    return std::move(Tokenizer::parse(byte_level_file().json(), "tokenizer.json")).value();
  }

  OwnedConstraint open(std::string_view schema) {
    ++asked_;
    Result<OwnedConstraint> constraint = book_.open(schema, [&](ByteGrammar& grammar) {
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

// Of which no more than a digest is kept.
TEST_F(GrammarBookTest, LongFormsAreTheSameOnlyToTheirLastByte) {
  const std::string begin = R"({"description":")" + std::string(1 << 20, 'd') + R"(","const":)";
  const OwnedConstraint one = open(begin + "1}");
  const OwnedConstraint other = open(begin + "2}");
  const OwnedConstraint again = open(begin + "1}");
  EXPECT_EQ(written_, 2);
  EXPECT_FALSE(allows(one, token('2')));
  EXPECT_FALSE(allows(other, token('1')));
  EXPECT_TRUE(allows(again, token('1')));
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

// Outputs beside it, and whoever asks for it later, go on where less is needed.
TEST_F(GrammarBookTest, ATextBehindWhichTooMuchWorkIsNeededAllowsNothing) {
  GrammarBook book(tokenizer_, kTokens, {.work = 400});
  const auto open = [&] {
    return book.open("x", [](ByteGrammar& grammar) {
      return add_regex(costly_expression(300), RegexMatch::kWhole, grammar);
    });
  };
  const Result<OwnedConstraint> constraint = open();
  ASSERT_TRUE(constraint.ok());
  EXPECT_TRUE(allows(*constraint, token('a')));
  const OwnedConstraint other = *constraint;
  for (int i = 0; i < 100 && !constraint->get()->allowed().empty(); ++i) accept(*constraint, "a");
  EXPECT_TRUE(constraint->get()->allowed().empty());
  const OwnedConstraint same = *constraint;
  EXPECT_TRUE(same.get()->allowed().empty()) << "whoever comes by";
  EXPECT_TRUE(allows(other, token('a')));
  accept(other, "ab");
  EXPECT_TRUE(allows(other, token('a')));
  ASSERT_TRUE(open().ok());
  EXPECT_TRUE(allows(*open(), token('a')));
}

// A text that can be read in many ways, so that states are costly: some 600 units a byte.
class PortionsTest : public GrammarBookTest {
 protected:
  static constexpr std::int64_t kPortion = 100;

  static Result<OwnedConstraint> open_costly(GrammarBook& book) {
    return book.open("costly", [](ByteGrammar& grammar) {
      return add_regex(costly_expression(300), RegexMatch::kWhole, grammar);
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
    GrammarBook book(tokenizer_, kTokens, {.work = 2'500});
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

// What was found is let go when it is much. Who waits for its token keeps its list, and stays
// ready.
TEST_F(PortionsTest, OfWhoIsReadyAreNotUndoneWhereStatesAreLetGo) {
  const std::string_view schema = R"({"type":"string","maxLength":30000})";
  const OwnedConstraint waits = open(schema);
  accept(waits, "\"abc");
  const std::vector<std::uint64_t> before = words(waits);
  const OwnedConstraint through = open(schema);
  accept(through, "\"");
  for (int bytes = 0; bytes < 5'000; ++bytes) {  // of some 20 states each
    prepare(through);
    accept(through, "x");
    ASSERT_TRUE(waits.get()->is_ready());
  }
  EXPECT_EQ(words(waits), before);
  const OwnedConstraint late = open(schema);
  accept(late, "\"abcx");
  accept(waits, "x");
  EXPECT_EQ(words(waits), words(late));
  accept(waits, "\"");
  EXPECT_TRUE(waits.get()->is_whole());
}

// What accepting a token took, where its states had been let go, is left out of later portions.
TEST_F(PortionsTest, AreLessWhereATokenWasWorkToAccept) {
  GrammarBook book(tokenizer_, kTokens, {.work = 4'000});
  const Result<OwnedConstraint> begin = open_costly(book);
  const OwnedConstraint waits = costly_behind(*begin, 150, 1);
  words(waits);
  const OwnedConstraint other = costly_behind(*begin, 150, 2);
  words(other);  // for which what is behind the first one goes
  accept(waits, "a");
  EXPECT_EQ(waits.get()->prepare(1), 1);
  EXPECT_EQ(waits.get()->prepare(100), 100);
  EXPECT_FALSE(waits.get()->is_ready());
  prepare(waits);
  EXPECT_TRUE(allows(waits, token('a')));
}

// Who asked is gone, and who was in the same state, with a list of its own, has moved on.
TEST_F(PortionsTest, EndWithTheLastWhoIsInTheirState) {
  GrammarBook book(tokenizer_, kTokens, {.work = 4'000});
  const Result<OwnedConstraint> begin = open_costly(book);
  // Each is ready before it accepts, as where tokens are chosen.
  const auto ready_behind = [&](std::uint64_t seed) {
    OwnedConstraint one = *begin;
    Prng prng(seed);
    for (int i = 0; i < 150; ++i) {
      EXPECT_FALSE(one.get()->allowed().empty());
      accept(one, prng.below(2) == 0 ? "b" : "a");
    }
    return one;
  };
  const OwnedConstraint ready = ready_behind(1);
  words(ready);
  const OwnedConstraint other = ready_behind(2);
  words(other);
  {
    const OwnedConstraint gone = ready_behind(1);
    ASSERT_FALSE(gone.get()->is_ready()) << "what the first one found was let go";
    gone.get()->prepare(1'000);
    ASSERT_FALSE(gone.get()->is_ready());
  }
  accept(ready, "a");
  accept(other, "b");
  prepare(ready);
  EXPECT_TRUE(allows(ready, token('a')));
}

// Whether too much is needed behind a text does not depend on what others found there before.
TEST_F(PortionsTest, AreGivenUpWhereverTheyAreAlone) {
  const auto bytes_until_given_up = [&](int others) {
    GrammarBook book(tokenizer_, kTokens, {.work = 2'500});
    const Result<OwnedConstraint> begin = open_costly(book);
    std::vector<OwnedConstraint> ahead(static_cast<std::size_t>(others), *begin);
    for (std::size_t i = 0; i < ahead.size(); ++i) {
      for (std::size_t bytes = 0; bytes < i && !ahead[i].get()->allowed().empty(); ++bytes) {
        accept(ahead[i], "a");
      }
    }
    for (int bytes = 0; bytes < 400; ++bytes) {
      for (const OwnedConstraint& one : ahead) {
        one.get()->prepare(kPortion);
        if (one.get()->is_ready() && !one.get()->allowed().empty()) accept(one, "a");
      }
      if (begin->get()->allowed().empty()) return bytes;
      accept(*begin, "a");
    }
    return -1;
  };
  const int alone = bytes_until_given_up(0);
  EXPECT_GT(alone, 10);
  for (const int others : {1, 3, 8}) EXPECT_EQ(bytes_until_given_up(others), alone);
}

class GrammarMemoryTest : public PortionsTest {
 protected:
  static constexpr std::int64_t kMiB = std::int64_t{1} << 20;

  // Different ones have different numbers.
  static OwnedConstraint open_large(GrammarBook& book, int number) {
    const std::string expression = costly_expression(400 + number);
    return std::move(book.open(expression,
                               [&](ByteGrammar& grammar) {
                                 return add_regex(expression, RegexMatch::kWhole, grammar);
                               }))
        .value();
  }
  void follow(const OwnedConstraint& one, int bytes, std::uint64_t seed) const {
    Prng prng(seed);
    for (int i = 0; i < bytes; ++i) {
      one.get()->allowed();
      accept(one, prng.below(2) == 0 ? "a" : "b");
    }
  }
};

// Each output is ready for its next token nearly always.
TEST_F(GrammarMemoryTest, OfOneFormIsBoundedWhoeverUsesIt) {
  const OwnedConstraint begin = open_large(book_, 0);
  std::int64_t most = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const OwnedConstraint one = begin;
    follow(one, 1'000, seed);
    most = std::max(most, book_.bytes());
  }
  EXPECT_GT(most, 2 * kMiB);
  EXPECT_LT(most, 40 * kMiB);
}

TEST_F(GrammarMemoryTest, OfAllFormsTogetherIsBounded) {
  const GrammarBook::Limits limits = {.bytes = 8 * kMiB, .idle_bytes = 4 * kMiB};
  GrammarBook book(tokenizer_, kTokens, limits);
  std::vector<OwnedConstraint> all;
  std::int64_t most = 0;
  for (int number = 0; number < 8; ++number) {
    all.push_back(open_large(book, number));
    follow(all.back(), 700, 1);
    most = std::max(most, book.bytes());
  }
  EXPECT_GT(most, limits.bytes / 2);
  EXPECT_LE(most, limits.bytes);
  const std::vector<std::uint64_t> begun = words(all.front());
  all.erase(all.begin() + 1, all.end());
  EXPECT_EQ(words(all.front()), begun) << "who is left has what it had";
  all.clear();
  EXPECT_LE(book.bytes(), limits.idle_bytes);
}

// The largest goes first: others are asked for again as they are.
TEST_F(GrammarMemoryTest, OfFormsThatNobodyUsesIsBounded) {
  GrammarBook book(tokenizer_, kTokens, {.idle_bytes = kMiB});
  const auto open_small = [&] {
    return book.open("small", [&](ByteGrammar& grammar) {
      ++written_;
      return add_regex("[ab]*", RegexMatch::kWhole, grammar);
    });
  };
  ASSERT_TRUE(open_small().ok());
  follow(open_large(book, 0), 700, 1);
  EXPECT_LE(book.bytes(), kMiB);
  ASSERT_TRUE(open_small().ok());
  EXPECT_EQ(written_, 1);
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

// A text may be at each of the letters, as all before may be left out: more than a byte may need.
std::string many_letters(const std::string& begin) {
  return "root ::= " + begin + " (\"b\"?){120000} \"x\"\n";
}

TEST_F(GrammarBookTest, AGrammarThatBeginsInTooManyWaysIsRefused) {
  GrammarBook book(tokenizer_, kTokens, {.work = 200'000});
  const Result<OwnedConstraint> opened =
      book.open("begin", [](ByteGrammar& grammar) { return add_ebnf(many_letters(""), grammar); });
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().detail, "a text of this form can be read in too many ways");
}

TEST_F(GrammarBookTest, AGrammarThatWasRefusedIsRefusedAtOnce) {
  const auto is_refused = [&](const std::string& form) {
    const Result<OwnedConstraint> opened =
        book_.open(form, [&](ByteGrammar& grammar) -> Result<ByteGrammar::Part> {
          ++written_;
          const ByteGrammar::Part rule = grammar.rule();
          grammar.define(rule, rule);
          return rule;
        });
    return !opened.ok() && opened.error().detail == "there is no finite text of this form";
  };
  EXPECT_FALSE(book_.open_known("x").has_value());
  EXPECT_TRUE(is_refused("x"));
  EXPECT_TRUE(is_refused("x"));
  EXPECT_EQ(written_, 1);
  const auto known = book_.open_known("x");
  EXPECT_TRUE(known.has_value() && !known->ok());
  for (std::size_t i = 0; i < GrammarBook::kRefusedMax; ++i) {
    EXPECT_TRUE(is_refused(std::to_string(i)));
  }
  written_ = 0;
  EXPECT_TRUE(is_refused("1"));
  EXPECT_EQ(written_, 0) << "those that came last are remembered";
  EXPECT_TRUE(is_refused("x"));
  EXPECT_EQ(written_, 1);
}

// Which says where in a request something is wrong: the same form may be elsewhere in another.
TEST_F(GrammarBookTest, WhatTheWriterOfAGrammarRefusesIsAskedAnew) {
  for (const char* const detail : {"here", "there"}) {
    const auto opened = book_.open("x", [&](ByteGrammar&) -> Result<ByteGrammar::Part> {
      return Error{ErrorCode::kInvalidArgument, detail};
    });
    EXPECT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().detail, detail);
  }
}

TEST_F(GrammarBookTest, OpensAtOnceOnlyWhatItKnows) {
  const std::string schema = R"({"type":"null"})";
  EXPECT_FALSE(book_.open_known(schema).has_value());
  open(schema);
  const auto known = book_.open_known(schema);
  ASSERT_TRUE(known.has_value() && known->ok());
  EXPECT_TRUE(allows(known->value(), token('n')));
}

TEST_F(GrammarBookTest, AGrammarThatGoesOnInTooManyWaysAllowsNothing) {
  const Result<OwnedConstraint> opened = book_.open(
      "later", [](ByteGrammar& grammar) { return add_ebnf(many_letters("\"q\""), grammar); });
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(opened->get()->allowed().empty());
}

// r0 is r1 twice, that is r2 twice, ..., and the last may be nothing: nothing is read in 2^30 ways,
// which are followed as one.
TEST_F(GrammarBookTest, AGrammarOfNothingInManyWaysIsKeptTo) {
  std::string rules = "root ::= \"q\" r0 \"x\"\n";
  for (int i = 0; i < 30; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    rules += "r" + std::to_string(i) + " ::= " + next + " " + next + " | \"\"\n";
  }
  rules += "r30 ::= \"\"\n";
  const Result<OwnedConstraint> opened =
      book_.open("nothing", [&](ByteGrammar& grammar) { return add_ebnf(rules, grammar); });
  ASSERT_TRUE(opened.ok());
  accept(*opened, "q");
  EXPECT_TRUE(allows(*opened, token('x')));
  EXPECT_FALSE(allows(*opened, token('q')));
}

TEST_F(GrammarBookTest, AnExpressionOfNothingManyTimesIsKeptTo) {
  const Result<OwnedConstraint> opened = book_.open("nothing", [](ByteGrammar& grammar) {
    return add_regex("((((()?){100}){100}){100}){100}a", RegexMatch::kWhole, grammar);
  });
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(allows(*opened, token('a')));
  EXPECT_FALSE(allows(*opened, token('b')));
}

}  // namespace
}  // namespace stemma
