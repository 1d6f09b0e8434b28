#include "grammar/byte_grammar.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar_texts.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

// What of `texts` is of the grammar.
std::vector<std::string> accepted(const ByteGrammar& grammar, Part whole,
                                  const std::vector<std::string>& texts) {
  ByteAutomaton automaton = automaton_of(grammar, whole);
  std::vector<std::string> kept;
  for (const std::string& text : texts) {
    if (accepts(automaton, text)) kept.push_back(text);
  }
  return kept;
}

TEST(ByteGrammar, ATextIsItselfAndNothingElse) {
  ByteGrammar grammar;
  const Part whole = grammar.text("ab");
  EXPECT_THAT(accepted(grammar, whole, {"", "a", "ab", "abc", "b", "ba"}),
              testing::ElementsAre("ab"));
}

TEST(ByteGrammar, NothingIsATextToo) {
  ByteGrammar grammar;
  EXPECT_THAT(accepted(grammar, grammar.sequence({}), {"", "a"}), testing::ElementsAre(""));
}

TEST(ByteGrammar, PartsFollowEachOther) {
  ByteGrammar grammar;
  const Part whole = grammar.sequence(
      {grammar.either({grammar.text("a"), grammar.text("bc")}), grammar.one_of("xy")});
  EXPECT_THAT(accepted(grammar, whole, {"ax", "ay", "bcx", "bx", "a", "x", "axy"}),
              testing::ElementsAre("ax", "ay", "bcx"));
}

TEST(ByteGrammar, RepeatsFromLeastToMost) {
  ByteGrammar grammar;
  const Part some = grammar.repeated(grammar.text("ab"), 1, 3);
  EXPECT_THAT(accepted(grammar, some, {"", "ab", "abab", "ababab", "abababab", "aba"}),
              testing::ElementsAre("ab", "abab", "ababab"));
}

TEST(ByteGrammar, RepeatsAsOftenAsOneLikes) {
  ByteGrammar grammar;
  const Part many = grammar.repeated(grammar.text("a"), 2, std::nullopt);
  EXPECT_THAT(accepted(grammar, many, {"", "a", "aa", std::string(1000, 'a')}),
              testing::ElementsAre("aa", std::string(1000, 'a')));
}

TEST(ByteGrammar, WhatMayBeNothingIsRepeatedWithoutEnd) {
  ByteGrammar grammar;
  const Part many = grammar.repeated(grammar.optional(grammar.text("a")), 0, std::nullopt);
  EXPECT_THAT(accepted(grammar, many, {"", "a", "aaa", "b"}), testing::ElementsAre("", "a", "aaa"));
}

// list = "[" (list*) "]"
TEST(ByteGrammar, RulesNameThemselves) {
  ByteGrammar grammar;
  const Part list = grammar.rule();
  grammar.define(list, grammar.sequence({grammar.text("["), grammar.repeated(list, 0, std::nullopt),
                                         grammar.text("]")}));
  const std::string deep = std::string(500, '[') + std::string(500, ']');
  EXPECT_THAT(accepted(grammar, list, {"", "[]", "[[][[]]]", "[", "[]]", "[[]", deep}),
              testing::ElementsAre("[]", "[[][[]]]", deep));
}

TEST(ByteGrammar, ChoosesAmongTextsThatBeginAlike) {
  ByteGrammar grammar;
  const std::vector<std::string_view> texts = {"car", "care", "cart", "dog", "car", "", "do"};
  const Part whole = grammar.one_text_of(texts);
  EXPECT_THAT(accepted(grammar, whole,
                       {"", "c", "ca", "car", "care", "cart", "carts", "d", "do", "dog", "dogcar"}),
              testing::ElementsAre("", "car", "care", "cart", "do", "dog"));
}

TEST(ByteGrammar, FollowsTextsWithARestAsOneWhileTheyAreAlike) {
  ByteGrammar grammar;
  const Part rest = grammar.either({grammar.text("1"), grammar.text("2")});
  const Part other = grammar.text("3");
  const Part whole =
      grammar.one_begun_of({{"car", rest}, {"care", other}, {"car", other}, {"", rest}});
  EXPECT_THAT(
      accepted(grammar, whole, {"", "1", "3", "car", "car1", "car2", "car3", "care1", "care3"}),
      testing::ElementsAre("1", "car1", "car2", "car3", "care3"));
}

// Every character of Unicode, beside the borders of what its bytes look like.
class CharRanges : public testing::TestWithParam<CharRange> {};

TEST_P(CharRanges, AreExactlyTheirCharacters) {
  ByteGrammar grammar;
  const std::array ranges = {GetParam()};
  ByteAutomaton automaton = automaton_of(grammar, grammar.one_of(ranges));
  std::int64_t wrong = 0;
  for (char32_t code = 0; code <= kCharMax; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    utf8_append(code, text);
    const bool within = code >= GetParam().first && code <= GetParam().last;
    wrong += accepts(automaton, text) == within ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(accepts(automaton, "\xED\xA0\x80")) << "a surrogate is no character";
}

INSTANTIATE_TEST_SUITE_P(ByteGrammar, CharRanges,
                         testing::Values(CharRange{0, kCharMax}, CharRange{'a', 'z'},
                                         CharRange{0x7F, 0x80}, CharRange{0x7FE, 0x801},
                                         CharRange{0x3FF, 0x401}, CharRange{0xD7FE, 0xE001},
                                         CharRange{0xFFFF, 0x10000}, CharRange{0x12345, 0xABCDE},
                                         CharRange{0x10FFFF, 0x10FFFF}, CharRange{0x85, 0x2029}));

TEST(ByteGrammar, OtherCharactersAreTheRest) {
  const std::array ranges = {CharRange{'b', 'c'}, CharRange{'e', kCharMax}};
  const std::vector<CharRange> others = other_chars(ranges);
  ASSERT_EQ(others.size(), 2U);
  EXPECT_EQ(others[0].last, U'a');
  EXPECT_EQ(others[1].first, U'd');
  EXPECT_EQ(others[1].last, U'd');
}

std::string refusal(const ByteGrammar& grammar, Part whole) {
  const Result<ByteProgram> program = grammar.compile(whole);
  return program.ok() ? "" : program.error().detail;
}

TEST(ByteGrammar, RefusesARuleThatBeginsWithItself) {
  ByteGrammar grammar;
  const Part rule = grammar.rule();
  const Part perhaps = grammar.optional(grammar.text("x"));
  grammar.define(rule, grammar.either({grammar.text("a"),
                                       grammar.sequence({perhaps, rule, grammar.text("b")})}));
  EXPECT_EQ(refusal(grammar, rule), "a form begins with itself");
}

TEST(ByteGrammar, RefusesRulesThatBeginWithEachOther) {
  ByteGrammar grammar;
  const Part one = grammar.rule();
  const Part other = grammar.rule(grammar.either({one, grammar.text("a")}));
  const Part nothing = grammar.rule(grammar.sequence({}));
  grammar.define(one, grammar.sequence({nothing, other}));
  EXPECT_EQ(refusal(grammar, one), "a form begins with itself");
}

TEST(ByteGrammar, RefusesWhatNeverEnds) {
  ByteGrammar grammar;
  const Part rule = grammar.rule();
  grammar.define(rule, grammar.sequence({grammar.text("a"), rule}));
  EXPECT_EQ(refusal(grammar, rule), "there is no finite text of this form");
}

TEST(ByteGrammar, WhatIsNothingIsLeftOutOfChoices) {
  ByteGrammar grammar;
  const Part nothing = grammar.nothing("it is");
  const Part within = grammar.rule(grammar.sequence({grammar.text("a"), nothing}));
  const Part whole = grammar.either({within, nothing, grammar.text("b")});
  EXPECT_THAT(accepted(grammar, whole, {"", "a", "b"}), testing::ElementsAre("b"));
  EXPECT_EQ(grammar.why_nothing(whole), std::nullopt);
}

TEST(ByteGrammar, WhatIsNothingIsLeftOutWhereItMayBe) {
  ByteGrammar grammar;
  const Part nothing = grammar.nothing("it is");
  const Part whole = grammar.sequence(
      {grammar.text("a"), grammar.optional(nothing), grammar.repeated(nothing, 0, std::nullopt)});
  EXPECT_THAT(accepted(grammar, whole, {"", "a"}), testing::ElementsAre("a"));
}

TEST(ByteGrammar, WhatCannotDoWithoutNothingSaysWhy) {
  ByteGrammar grammar;
  grammar.nothing("of no part");
  const Part left_out = grammar.optional(grammar.nothing("of a part that may be left out"));
  const Part late = grammar.rule();
  const Part whole = grammar.sequence({left_out, grammar.either({late, late})});
  grammar.define(late, grammar.repeated(grammar.nothing("of all"), 2, 3));
  EXPECT_EQ(grammar.why_nothing(whole), "of all");
  EXPECT_EQ(refusal(grammar, whole), "there is no finite text of this form");
}

// A text that entered the rule would never come to an end.
TEST(ByteGrammar, WhatNeverEndsIsLeftOutOfChoices) {
  ByteGrammar grammar;
  const Part rule = grammar.rule();
  grammar.define(rule, grammar.sequence({grammar.text("a"), rule}));
  const Part whole = grammar.either({rule, grammar.text("b")});
  ByteAutomaton automaton = automaton_of(grammar, whole);
  EXPECT_EQ(state_behind(automaton, "a"), ByteAutomaton::kDead);
  EXPECT_TRUE(accepts(automaton, "b"));
}

TEST(ByteGrammar, RefusesMoreStepsThanThereMayBe) {
  ByteGrammar grammar;
  const Part many = grammar.repeated(grammar.text("ab"), 1'000'000'000, std::nullopt);
  EXPECT_EQ(refusal(grammar, many), "more than 262144 steps");
  const Part nested = grammar.repeated(many, 1'000'000'000, 2'000'000'000);
  EXPECT_EQ(refusal(grammar, nested), "more than 262144 steps");
}

TEST(ByteGrammar, RefusesMorePartsThanThereMayBe) {
  ByteGrammar grammar;
  const std::string million(ByteGrammar::kPartsMax + 10, 'a');
  const Part text = grammar.text(million);
  const Part rule = grammar.rule(grammar.sequence({text, grammar.text("b")}));
  const std::vector<std::string_view> texts = {"a", "b"};
  EXPECT_EQ(refusal(grammar, grammar.either({rule, grammar.one_text_of(texts)})),
            "more than 1048576 parts");
}

}  // namespace
}  // namespace stemma
