// What is covered: what a client sees of a text with stop strings. How: named cases, and random
// texts over two letters cut at random against a matcher that sees the whole text at once.
#include "model/stop_strings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"

namespace stemma {
namespace {

struct Shown {
  std::string text;
  std::optional<std::size_t> matched;
  bool operator==(const Shown&) const = default;
};

Shown show(StopStrings matcher, const std::vector<std::string>& pieces) {
  Shown shown;
  for (const std::string& piece : pieces) {
    if (matcher.push(piece, shown.text)) {
      shown.matched = matcher.matched();
      return shown;
    }
  }
  matcher.finish(shown.text);
  return shown;
}

// The definition, over the whole text: the match that ends first, of those the longest.
Shown expected(const std::vector<std::string>& stop, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < stop.size(); ++i) {
      const bool matches = text.substr(0, end).ends_with(stop[i]);
      if (matches && (!best || stop[i].size() > stop[*best].size())) best = i;
    }
    if (best) return {text.substr(0, end - stop[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopStrings, WithoutAnyEveryPieceIsShownAtOnce) {
  StopStrings matcher({});
  std::string out;
  EXPECT_FALSE(matcher.push("abc", out));
  EXPECT_EQ(out, "abc");
}

TEST(StopStrings, OneInsideAPieceEndsTheTextBeforeIt) {
  EXPECT_EQ(show(StopStrings({"\nUser:"}), {"Hello.\nUser: Hi"}), (Shown{"Hello.", 0}));
}

TEST(StopStrings, OneOverSeveralPiecesIsNeverShownInPart) {
  StopStrings matcher({"<end>"});
  std::string out;
  EXPECT_FALSE(matcher.push("so <", out));
  EXPECT_EQ(out, "so ");
  EXPECT_FALSE(matcher.push("en", out));
  EXPECT_EQ(out, "so ");
  EXPECT_TRUE(matcher.push("d> and more", out));
  EXPECT_EQ(out, "so ");
  EXPECT_EQ(matcher.matched(), 0u);
}

TEST(StopStrings, WhatWasHeldBackIsShownWhenItCannotBecomeOne) {
  StopStrings matcher({"<end>"});
  std::string out;
  EXPECT_FALSE(matcher.push("a<en", out));
  EXPECT_EQ(out, "a");
  EXPECT_FALSE(matcher.push("try>", out));
  EXPECT_EQ(out, "a<entry>");
}

TEST(StopStrings, WhatIsHeldBackAtTheEndIsShownByFinish) {
  StopStrings matcher({"<end>"});
  std::string out;
  EXPECT_FALSE(matcher.push("a<en", out));
  matcher.finish(out);
  EXPECT_EQ(out, "a<en");
  EXPECT_FALSE(matcher.matched().has_value());
}

TEST(StopStrings, TheFirstToEndWinsThenTheLongest) {
  EXPECT_EQ(show(StopStrings({"abcd", "bc"}), {"xabcd"}), (Shown{"xa", 1}));
  EXPECT_EQ(show(StopStrings({"c", "abc", "bc"}), {"xabcd"}), (Shown{"x", 1}));
}

TEST(StopStrings, AStringThatRepeatsItsBeginIsFound) {
  EXPECT_EQ(show(StopStrings({"aab"}), {"a", "a", "a", "b", "c"}), (Shown{"a", 0}));
}

TEST(StopStrings, AMultibyteCharacterIsHeldBackWhole) {
  StopStrings matcher({"é!"});
  std::string out;
  EXPECT_FALSE(matcher.push("caf\u00e9", out));
  EXPECT_EQ(out, "caf");
  EXPECT_FALSE(matcher.push(".", out));
  EXPECT_EQ(out, "caf\u00e9.");
}

TEST(StopStrings, OneThatIsShownIsTheEndOfTheText) {
  StopStrings matcher({"<end>"}, StopStrings::Match::kShown);
  std::string out;
  EXPECT_FALSE(matcher.push("so <en", out));
  EXPECT_EQ(out, "so ");
  EXPECT_TRUE(matcher.push("d> and more", out));
  EXPECT_EQ(out, "so <end>");
}

TEST(StopStrings, APieceThatIsPassedEndsNothing) {
  StopStrings matcher({"abab"});
  std::string out;
  matcher.pass("xababab", out);
  EXPECT_EQ(out, "xabab");
  EXPECT_FALSE(matcher.matched().has_value());
  EXPECT_TRUE(matcher.push("abc", out)) << "it ends behind what was passed";
  EXPECT_EQ(out, "xabab");
}

TEST(StopStrings, TheOutcomeDoesNotDependOnThePieces) {
  constexpr std::uint64_t kTextSeed = 20240607;
  SCOPED_TRACE("seed " + std::to_string(kTextSeed));
  Prng prng(kTextSeed);
  const auto random_text = [&](std::int64_t bytes) {
    std::string text;
    for (std::int64_t i = 0; i < bytes; ++i) text.push_back(prng.below(2) == 0 ? 'a' : 'b');
    return text;
  };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stop;
    for (std::int64_t i = prng.below(4); i >= 0; --i)
      stop.push_back(random_text(1 + prng.below(6)));
    const std::string text = random_text(prng.below(24));
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const auto bytes = static_cast<std::size_t>(1 + prng.below(4));
      pieces.push_back(text.substr(at, bytes));
      at += bytes;
    }
    const Shown shown = show(StopStrings(stop), pieces);
    const Shown wanted = expected(stop, text);
    ASSERT_EQ(shown.text, wanted.text) << text;
    ASSERT_EQ(shown.matched.has_value(), wanted.matched.has_value());
    if (wanted.matched) {
      ASSERT_EQ(stop[*shown.matched], stop[*wanted.matched]);
    }
  }
}

TEST(StopStrings, LimitsNameTheField) {
  const std::vector<std::string> many(17, "x");
  EXPECT_EQ(StopStrings::validate(many).error().detail,
            "stop must have at most 16 strings (got 17)");
  const std::vector<std::string> empty = {""};
  EXPECT_EQ(StopStrings::validate(empty).error().detail,
            "stop must have strings of 1 to 1024 bytes (got one of 0)");
  const std::vector<std::string> long_one = {std::string(1025, 'x')};
  EXPECT_FALSE(StopStrings::validate(long_one).ok());
}

}  // namespace
}  // namespace stemma
