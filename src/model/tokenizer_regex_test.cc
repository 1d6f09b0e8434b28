// Patterns of tokenizer.json: the translation from Oniguruma's syntax to PCRE2's, what is found,
// what is refused, and that no pattern hangs.
#include "model/tokenizer_regex.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer_regex_syntax.h"

namespace stemma {
namespace {

std::string translated(std::string_view expression) {
  const Result<std::string> result = translate_regex(expression);
  return result.ok() ? result.value() : "refused: " + result.error().detail;
}

std::vector<std::string> found(std::string_view expression, std::string_view text) {
  const Result<TextPattern> pattern = TextPattern::regex(expression);
  if (!pattern.ok()) {
    return {"refused: " + pattern.error().detail};
  }
  const auto ranges = pattern.value().find_all(text);
  if (!ranges.ok()) {
    return {"failed: " + ranges.error().detail};
  }
  std::vector<std::string> texts;
  for (const ByteRange& range : ranges.value()) {
    texts.emplace_back(range.of(text));
  }
  return texts;
}

using Texts = std::vector<std::string>;

// What \w takes outside of a class.
const std::string kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

TEST(RegexSyntax, TranslatesWhatTheTwoLibrariesUnderstandDifferently) {
  EXPECT_EQ(translated(R"(\s+(?!\S)|[^\s\p{L}]+)"),
            R"(\p{White_Space}+(?!\P{White_Space})|[^\p{White_Space}\p{L}]+)");
  EXPECT_EQ(translated(R"(\w[\w.])"), "[" + kWord + R"(][\p{Alphabetic}\p{M}\p{Nd}\p{Pc}.])");
  EXPECT_EQ(translated(R"(\W\h\v)"), "[^" + kWord + R"(][0-9a-fA-F]\x0B)");
  EXPECT_EQ(translated(R"([\u4e00-\u9fa5])"), R"([\x{4e00}-\x{9fa5}])");
  EXPECT_EQ(translated(R"(\p{Han}\P{Katakana}\p{^Greek})"),
            R"(\p{sc:han}\P{sc:katakana}\p{^sc:greek})");
  EXPECT_EQ(translated(R"(\p{Letter}\p{Decimal_Number}\p{Lu}\p{Alphabetic})"),
            R"(\p{L}\p{Nd}\p{Lu}\p{Alphabetic})");
  EXPECT_EQ(translated("(?m:.)(?i-m)(?<name>x)(?:y)"), "(?s:.)(?i-s)(?<name>x)(?:y)");
}

TEST(RegexSyntax, LeavesTheRestAlone) {
  for (const std::string_view same :
       {R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3})", R"(\\s\[\]\d[\b])",
        R"([]a][^]b]a{2}b{3,}c{4,5}?)", R"(\x{41}{2}\x41)", R"((?i:'ll)|e++f\[)", "a\\", ""}) {
    EXPECT_EQ(translated(same), same);
  }
}

TEST(RegexSyntax, ACountIsRepeatedOrOptionalAsAWhole) {
  EXPECT_EQ(translated(R"(\p{N}{1,3}+)"), R"((?:\p{N}{1,3})+)");
  EXPECT_EQ(translated(R"(a(b[^c]){2}+d)"), R"(a(?:(b[^c]){2})+d)");
  EXPECT_EQ(translated("é{2}?"), "(?:é{2})?");
  EXPECT_EQ(translated("[ab]{,3}(?:x{,2}+)"), "[ab]{0,3}(?:(?:x{0,2})+)");
  EXPECT_EQ(translated("{a}{1{,}"), R"(\{a}\{1\{,})");
}

TEST(RegexSyntax, NamesInClassesAreProperties) {
  EXPECT_EQ(translated("[[:alpha:]x[:^space:]]"), R"([\p{Alphabetic}x\P{White_Space}])");
  EXPECT_EQ(translated("[^[:punct:][:word:]]"), R"([^\p{P}\p{S}\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])");
}

TEST(RegexSyntax, RefusesByName) {
  EXPECT_EQ(translated("[[:graph:]]"),
            "refused: the regular expression uses [:graph:], which is not supported");
  EXPECT_THAT(translated("(?i:first)"), testing::HasSubstr("(?i) with \"st\""));
  EXPECT_THAT(translated("(?i:Straße)"), testing::HasSubstr("(?i) with"));
  for (const std::string_view expression : {R"(\X)", R"(\V)", R"(a\E)", R"(\g{1})", "[[:^alnum:]]",
                                            "a{2}?+", "(?x)a {2}+", R"(\x{41)"}) {
    EXPECT_THAT(translated(expression), testing::StartsWith("refused: ")) << expression;
  }
  EXPECT_THAT(translated("[a&&b]").find("&& in a class"), testing::Ne(std::string::npos));
}

TEST(TextPattern, RefusesWhatItCannotRun) {
  for (const std::string_view expression :
       {"[a[bc]]", R"([\W])", R"([\H])", "(*COMMIT)a", R"(\Qa)", R"(\u12)", "[[:alpha", "(", "[",
        R"(\p{Klingon})", R"(\C)", "a{9999999}", "(?i)[[:upper:]]", "[[:^lower:]](?i:x)",
        "[[:^alnum:]]"}) {
    EXPECT_FALSE(TextPattern::regex(expression).ok()) << expression;
  }
  EXPECT_FALSE(TextPattern::regex(std::string(70'000, 'a')).ok());
}

TEST(TextPattern, FindsLikeTheFilesMeanIt) {
  EXPECT_EQ(found(R"('s| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "It's 3  Äpfel!"),
            (Texts{"It", "'s", " 3", " ", " Äpfel", "!"}));
  EXPECT_EQ(found(R"(\p{N}{1,3})", "12345½"), (Texts{"123", "45½"}));
  EXPECT_EQ(found(R"(\s)", "a\u00A0b\u180Ec\u0085"), (Texts{"\u00A0", "\u0085"}));
  EXPECT_EQ(found(R"(\w+)", "naïve_2 ½‿"), (Texts{"naïve_2", "½‿"}));
  EXPECT_EQ(found(R"([\w]+)", "½2"), (Texts{"2"}));
  EXPECT_EQ(found(R"(\bfoo\b)", "foo\u0301 foo"), (Texts{"foo"}));
  EXPECT_EQ(found(R"(\Bo)", "o foo"), (Texts{"o", "o"}));
  EXPECT_EQ(found(R"(\p{N}{1,3}+)", "1234567"), (Texts{"1234567"}));
  EXPECT_EQ(found("a{2}+", "aaaaa"), (Texts{"aaaa"}));
  EXPECT_EQ(found("a{2}?b", "aab"), (Texts{"aab"}));
  EXPECT_EQ(found(R"(\x41{1,2}+)", "AAAAb"), (Texts{"AAAA"}));
  EXPECT_EQ(found(R"(\x61{2}?b)", "baab"), (Texts{"b", "aab"}));
  EXPECT_EQ(found(R"(\101{2}+)", "AAAAAb"), (Texts{"AAAA"}));
  EXPECT_EQ(found(R"((b)\1{2}+c)", "bbbbbc"), (Texts{"bbbbbc"}));
  EXPECT_EQ(found("a{,2}b", "aaab"), (Texts{"aab"}));
  EXPECT_EQ(found("[[:punct:]]+", "a$!?\u00A3b"), (Texts{"$!?\u00A3"})) << "symbols are some";
  EXPECT_EQ(found("[[:^punct:]]+", "a$!?\u00A3b"), (Texts{"a", "b"}));
  EXPECT_EQ(found("[[:alpha:]]+", "a\u0345b1"), (Texts{"a\u0345b"}));
  EXPECT_EQ(found("^a$", "a\na\nb"), (Texts{"a", "a"}));
  EXPECT_EQ(found(".", "\n叫"), (Texts{"叫"}));
}

TEST(TextPattern, EmptyMatchesMoveOnByOneCharacter) {
  EXPECT_EQ(found("x*", "éxé"), (Texts{"", "x", ""}));
  EXPECT_EQ(found("", ""), (Texts{""}));
  EXPECT_EQ(found("a", ""), (Texts{}));
}

TEST(TextPattern, ALiteralIsFoundFromLeftToRight) {
  const TextPattern pattern = TextPattern::literal("aa");
  EXPECT_EQ(pattern.find_all("aaaxaa").value(), (std::vector<ByteRange>{{0, 2}, {4, 6}}));
  EXPECT_EQ(pattern.replace_all("aaaxaa", "-$1").value(), "-$1ax-$1");
}

TEST(TextPattern, AHostilePatternFailsInsteadOfHanging) {
  const std::string text = std::string(3'000, 'a') + "c";
  for (const std::string_view expression :
       {"(?:a|a|a)*[bd]", "(?:(?:a+)+)+[bd]", "(?:a*?a*?a*?)*[bd]", R"((?:(a+)\1?)+[bd])"}) {
    const Texts texts = found(expression, text);
    ASSERT_FALSE(texts.empty()) << expression;
    EXPECT_EQ(texts[0].rfind("failed: ", 0), 0u) << expression;
  }
}

TEST(TextPattern, LongTextsOfOneKindAreNotHostile) {
  const std::string spaces(200'000, ' ');
  EXPECT_EQ(found(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", spaces).size(), 1u);
  EXPECT_EQ(found(R"(\s+(?!\S)|\s+)", spaces + "x").size(), 2u);
  EXPECT_EQ(found(R"(\p{L}+)", std::string(200'000, 'x')).size(), 1u);
}

TEST(TextPattern, BoundsTheGrowthOfReplacements) {
  EXPECT_EQ(TextPattern::literal(" ").growth_max("▁"), 3u);
  EXPECT_EQ(TextPattern::literal("▁").growth_max(" "), 1u);
  const Result<TextPattern> empty = TextPattern::regex("");
  ASSERT_TRUE(empty.ok());
  const std::string grown = empty.value().replace_all("ab", "xy").value();
  EXPECT_EQ(grown, "xyaxybxy");
  EXPECT_LE(grown.size(), 2 * empty.value().growth_max("xy"));
}

}  // namespace
}  // namespace stemma
