#include "grammar/byte_regex.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "grammar/grammar_texts.h"
#include "model/tokenizer_regex.h"

namespace stemma {
namespace {

struct RegexCase {
  std::string expression;
  std::vector<std::string> matched;
  std::vector<std::string> others;
};

void PrintTo(const RegexCase& one, std::ostream* out) {
  *out << one.expression;
}

class RegexTexts : public testing::TestWithParam<RegexCase> {};

ByteAutomaton automaton_of_regex(std::string_view expression, RegexMatch match) {
  ByteGrammar grammar;
  const auto whole = add_regex(expression, match, grammar);
  STEMMA_CHECK(whole.ok(), whole.ok() ? "" : whole.error().detail.c_str());
  return automaton_of(grammar, *whole);
}

TEST_P(RegexTexts, AreThoseItMatches) {
  ByteAutomaton automaton = automaton_of_regex(GetParam().expression, RegexMatch::kWhole);
  for (const std::string& text : GetParam().matched) EXPECT_TRUE(accepts(automaton, text)) << text;
  for (const std::string& text : GetParam().others) EXPECT_FALSE(accepts(automaton, text)) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, RegexTexts,
    testing::Values(
        RegexCase{"", {""}, {"a"}}, RegexCase{"abc", {"abc"}, {"ab", "abcd", "xabc"}},
        RegexCase{"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
        RegexCase{"^(a|b)c$", {"ac", "bc"}, {"c", "abc"}}, RegexCase{"^a$|^b$", {"a", "b"}, {"ab"}},
        RegexCase{"(?:ab)+(?<n>c)?(?P<m>d)*", {"ab", "ababc", "abcdd", "abdd"}, {"", "abcc"}},
        RegexCase{"a*b{2}c{1,}d{0,2}", {"bbc", "aabbcc", "bbcdd"}, {"bc", "bbcddd", "bb"}},
        RegexCase{"a+?b??", {"a", "aab"}, {"", "abb"}},
        RegexCase{"[a-cx]", {"a", "c", "x"}, {"d", "w", ""}},
        RegexCase{"[^a-c]", {"d", "é", "\n"}, {"b", ""}}, RegexCase{"[^]", {"a", "\n"}, {""}},
        RegexCase{"[-a][a-]", {"--", "a-", "aa"}, {"b-"}},
        RegexCase{"[\\]\\-\\\\.]+", {"]", "-\\."}, {"a"}},
        RegexCase{".", {"a", "é", "😀", "\t"}, {"\n", "\r", ""}},
        RegexCase{"\\d\\w\\s", {"1_ ", "9z\n"}, {"a_ ", "1- "}},
        RegexCase{"\\D\\W\\S", {"a-b", "é,b"}, {"1-b"}}, RegexCase{"[\\d.]+", {"1.2"}, {"a"}},
        RegexCase{"\\x41\\u0042\\u{43}\\u00e9", {"ABCé"}, {"ABC"}},
        RegexCase{"\\ud83d\\ude00", {"😀"}, {"x"}}, RegexCase{"[À-ÿ]", {"é"}, {"e"}},
        RegexCase{"\\n\\t\\.\\*\\/", {"\n\t.*/"}, {"nt.*/"}}, RegexCase{"a{0}b", {"b"}, {"ab"}},
        RegexCase{"{a}", {"{a}"}, {"a"}}, RegexCase{"a{x}", {"a{x}"}, {"ax"}},
        RegexCase{"a{1", {"a{1"}, {"a"}}, RegexCase{"{}a{1,x}", {"{}a{1,x}"}, {"ax"}}));

TEST(ByteRegex, MatchesAnywhereUnlessItSaysWhere) {
  const auto accepted = [](std::string_view expression, const std::vector<std::string>& texts) {
    ByteAutomaton automaton = automaton_of_regex(expression, RegexMatch::kAnywhere);
    std::vector<std::string> out;
    for (const std::string& text : texts) {
      if (accepts(automaton, text)) out.push_back(text);
    }
    return out;
  };
  const std::vector<std::string> texts = {"b", "ab", "bc", "a\nbé", "c"};
  EXPECT_THAT(accepted("b", texts), testing::ElementsAre("b", "ab", "bc", "a\nbé"));
  EXPECT_THAT(accepted("^b", texts), testing::ElementsAre("b", "bc"));
  EXPECT_THAT(accepted("b$", texts), testing::ElementsAre("b", "ab"));
  EXPECT_THAT(accepted("^b$|^a", texts), testing::ElementsAre("b", "ab", "a\nbé"));
}

std::string refusal(std::string_view expression) {
  ByteGrammar grammar;
  const auto whole = add_regex(expression, RegexMatch::kWhole, grammar);
  return whole.ok() ? "" : whole.error().detail;
}

TEST(ByteRegex, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(refusal("a)"), "at 1: a ) without a (");
  EXPECT_EQ(refusal("(a"), "at 2: a ( without a )");
  EXPECT_EQ(refusal("[a"), "at 2: a [ without a ]");
  EXPECT_EQ(refusal("[b-a]"), "at 4: a range in the wrong order");
  EXPECT_EQ(refusal("*a"), "at 0: a quantifier of nothing");
  EXPECT_EQ(refusal("a**"), "at 2: a quantifier of a quantifier");
  EXPECT_EQ(refusal("a{2,1}"), "at 6: counts in the wrong order");
  EXPECT_EQ(refusal("{1}"), "at 0: a quantifier of nothing");
  EXPECT_EQ(refusal("a{1}{2,}"), "at 4: a quantifier of nothing");
  EXPECT_EQ(refusal("a\\"), "at 2: a \\ without a character");
  EXPECT_EQ(refusal("\\xg0"), "at 2: a character without its digits");
  EXPECT_EQ(refusal("\\u{110000}"), "at 9: no character of Unicode");
  EXPECT_EQ(refusal("\\ud800"), "at 6: a class without characters");
  EXPECT_EQ(refusal("[\\udc00-\\udfff]"), "at 15: a class without characters");
  EXPECT_EQ(refusal("\\ud83dx"), "at 6: a class without characters");
  EXPECT_EQ(refusal("[]"), "at 2: a class without characters");
  EXPECT_EQ(refusal("[^\\s\\S]"), "at 7: a class without characters");
  EXPECT_EQ(refusal(std::string(200, '(') + std::string(200, ')')),
            "at 101: groups nested too deep");
}

TEST(ByteRegex, RefusesByNameWhatHasNoGrammar) {
  EXPECT_EQ(refusal("a\\b"), "at 2: \\b is not supported");
  EXPECT_EQ(refusal("(a)\\1"), "at 4: backreferences are not supported");
  EXPECT_EQ(refusal("(?=a)"), "at 1: groups that begin with (? are not supported");
  EXPECT_EQ(refusal("(?<!a)"), "at 1: groups that begin with (? are not supported");
  EXPECT_EQ(refusal("a{,2}"), "at 1: { before a comma is not supported");
  EXPECT_EQ(refusal("a++"), "at 2: possessive quantifiers are not supported");
  EXPECT_EQ(refusal("\\p{L}"), "at 2: \\p is not supported");
  EXPECT_EQ(refusal("a^b"), "at 1: ^ and $ within an expression are not supported");
  EXPECT_EQ(refusal("a$b"), "at 2: $ within an expression is not supported");
  EXPECT_EQ(refusal("(^a)"), "at 1: ^ and $ within an expression are not supported");
}

// Against PCRE2: drawn expressions, and texts over the same letters.
// Each character is at least one part, so that what is behind as many is never asked how it is
// written: a request that is refused for its size would hold up all others.
TEST(ByteRegex, IsNotReadFurtherThanAGrammarHasRoomFor) {
  for (const std::string_view one : {"a", "a|", "[^a]", "\\D", "(.)"}) {
    std::string expression;
    while (expression.size() < 4 * ByteGrammar::kPartsMax) expression += one;
    ByteGrammar grammar;
    std::size_t written = 0;
    const auto whole = add_regex(expression + ")", RegexMatch::kAnywhere, grammar,
                                 [&](std::span<const CharRange>) {
                                   ++written;
                                   return grammar.text("ab");
                                 });
    ASSERT_FALSE(whole.ok()) << one;
    EXPECT_EQ(whole.error().code, ErrorCode::kTooLarge) << one;
    EXPECT_EQ(whole.error().detail, "more than 1048576 parts") << one;
    EXPECT_LT(written, ByteGrammar::kPartsMax / 2) << one;
  }
}

TEST(ByteRegex, MatchesWhatALibraryMatches) {
  Prng prng(9);
  const auto drawn = [&](const auto& self, int depth) -> std::string {
    constexpr std::string_view kAtoms[] = {"a", "b", "c", "[ab]", "[^a]", ".", "(?:)"};
    std::string out;
    for (std::int64_t left = 1 + prng.below(3); left > 0; --left) {
      const bool groups = depth > 0 && prng.below(3) == 0;
      out += groups ? "(?:" + self(self, depth - 1) + "|" + self(self, depth - 1) + ")"
                    : std::string(kAtoms[prng.below(std::ssize(kAtoms))]);
      constexpr std::string_view kCounts[] = {"", "", "?", "*", "+", "{2}", "{1,2}", "{2,}"};
      out += kCounts[prng.below(std::ssize(kCounts))];
    }
    return out;
  };
  int matched = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string expression = drawn(drawn, 2);
    ByteAutomaton automaton = automaton_of_regex(expression, RegexMatch::kWhole);
    const auto pattern = TextPattern::regex("\\A(?:" + expression + ")\\z");
    ASSERT_TRUE(pattern.ok());
    for (int k = 0; k < 60; ++k) {
      std::string text;
      for (std::int64_t left = prng.below(6); left > 0; --left) {
        text += static_cast<char>('a' + prng.below(3));
      }
      if (text.empty()) continue;
      const auto found = pattern->find_all(text);
      if (!found.ok()) continue;  // too many steps
      const bool matches = *found == std::vector<ByteRange>{{0, text.size()}};
      ASSERT_EQ(accepts(automaton, text), matches) << expression << " and " << text;
      matched += matches ? 1 : 0;
    }
  }
  EXPECT_GT(matched, 1'000);
}

}  // namespace
}  // namespace stemma
