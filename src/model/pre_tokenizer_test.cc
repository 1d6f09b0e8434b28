// Pre-tokenizers: every kind, every behavior of Split, and how they go together.
#include "model/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stemma {
namespace {

using Texts = std::vector<std::string>;

Texts pieces_of(std::string_view json, std::string_view text, bool begins_input = true) {
  const Result<JsonText> file = JsonText::parse(json, "test");
  if (!file.ok()) {
    return {to_string(file.error())};
  }
  const Result<PreTokenizer> pre_tokenizer = PreTokenizer::parse(file.value().root());
  if (!pre_tokenizer.ok()) {
    return {to_string(pre_tokenizer.error())};
  }
  const Result<TextPieces> cut = pre_tokenizer.value().apply(std::string(text), begins_input);
  if (!cut.ok()) {
    return {to_string(cut.error())};
  }
  Texts texts;
  for (const TextPieces::Piece& piece : cut.value().pieces) {
    texts.emplace_back(piece.range.of(cut.value().text));
  }
  return texts;
}

std::string split(std::string_view behavior, bool invert = false) {
  return R"({"type":"Split","pattern":{"String":"-"},"behavior":")" + std::string(behavior) +
         R"(","invert":)" + (invert ? "true}" : "false}");
}

TEST(Split, HasFiveBehaviors) {
  const std::string_view text = "the-final--countdown-";
  EXPECT_EQ(pieces_of(split("Removed"), text), (Texts{"the", "final", "countdown"}));
  EXPECT_EQ(pieces_of(split("Isolated"), text),
            (Texts{"the", "-", "final", "-", "-", "countdown", "-"}));
  EXPECT_EQ(pieces_of(split("MergedWithPrevious"), text),
            (Texts{"the-", "final-", "-", "countdown-"}));
  EXPECT_EQ(pieces_of(split("MergedWithNext"), text),
            (Texts{"the", "-final", "-", "-countdown", "-"}));
  EXPECT_EQ(pieces_of(split("Contiguous"), text),
            (Texts{"the", "-", "final", "--", "countdown", "-"}));
}

TEST(Split, InvertedTakesWhatIsBetweenTheMatches) {
  EXPECT_EQ(pieces_of(split("Removed", true), "ab--c"), (Texts{"-", "-"}));
  EXPECT_EQ(pieces_of(split("MergedWithNext", true), "ab-c"), (Texts{"ab-", "c"}));
}

TEST(Split, OfAnEmptyTextGivesNothing) {
  EXPECT_EQ(pieces_of(split("Isolated"), ""), (Texts{}));
}

TEST(Split, TakesTheFilesOwnExpression) {
  // The pattern of Llama 3's family: numbers in threes, contractions in any case, line ends with
  // what precedes them.
  const std::string pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|)"
      R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
  const std::string json =
      R"({"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":")" + pattern +
      R"("}})";
  EXPECT_EQ(pieces_of(json, "I'LL pay 12345 €!\n\n  ok"),
            (Texts{"I", "'LL", " pay", " ", "123", "45", " €!\n\n", " ", " ok"}));
}

TEST(ByteLevel, SpellsBytesAndSplitsLikeItsPattern) {
  EXPECT_EQ(pieces_of(R"({"type":"ByteLevel","add_prefix_space":false})", "Hi  é\n"),
            (Texts{"Hi", "Ġ", "ĠÃ©", "Ċ"}));
  EXPECT_EQ(pieces_of(R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":false})", "a b"),
            (Texts{"ĠaĠb"}));
  EXPECT_EQ(pieces_of(R"({"type":"ByteLevel","add_prefix_space":true})", " a"), (Texts{"Ġa"}));
}

TEST(Digits, AloneOrTogether) {
  EXPECT_EQ(pieces_of(R"({"type":"Digits","individual_digits":true})", "a12½b"),
            (Texts{"a", "1", "2", "½", "b"}));
  EXPECT_EQ(pieces_of(R"({"type":"Digits","individual_digits":false})", "a12½b"),
            (Texts{"a", "12½", "b"}));
}

TEST(Metaspace, OldForm) {
  const std::string_view json =
      R"({"type":"Metaspace","replacement":"▁","str_rep":"▁","add_prefix_space":true})";
  EXPECT_EQ(pieces_of(json, "Hey   friend!"), (Texts{"▁Hey", "▁", "▁", "▁friend!"}));
  EXPECT_EQ(pieces_of(json, " Hey"), (Texts{"▁Hey"}));
  EXPECT_EQ(pieces_of(R"({"type":"Metaspace","replacement":"▁","add_prefix_space":false})", "a b"),
            (Texts{"a", "▁b"}));
}

TEST(Metaspace, NewForm) {
  const std::string_view first =
      R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false})";
  EXPECT_EQ(pieces_of(first, "a b", true), (Texts{"▁a▁b"}));
  EXPECT_EQ(pieces_of(first, "a b", false), (Texts{"a▁b"}));
  EXPECT_EQ(
      pieces_of(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})", "a b", true),
      (Texts{"a", "▁b"}));
}

TEST(Metaspace, FirstIsTheBeginningOfTheTextOnly) {
  const std::string json =
      R"({"type":"Sequence","pretokenizers":[)" + split("Removed") +
      R"(,{"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":false}]})";
  EXPECT_EQ(pieces_of(json, "a-b"), (Texts{"_a", "b"}));
}

TEST(Whitespace, WordsAndTheRest) {
  EXPECT_EQ(pieces_of(R"({"type":"Whitespace"})", "Hey, man_1!?  né"),
            (Texts{"Hey", ",", "man_1", "!?", "né"}));
  EXPECT_EQ(pieces_of(R"({"type":"WhitespaceSplit"})", "a,\tb c"), (Texts{"a,", "b", "c"}));
}

TEST(Punctuation, IsThatOfUnicodeAndOfAscii) {
  EXPECT_EQ(pieces_of(R"({"type":"Punctuation"})", "a$b…c€"), (Texts{"a", "$", "b", "…", "c€"}));
  EXPECT_EQ(pieces_of(R"({"type":"Punctuation","behavior":"Contiguous"})", "a!?b"),
            (Texts{"a", "!?", "b"}));
}

TEST(Sequence, GoesStepByStep) {
  EXPECT_EQ(pieces_of(R"({"type":"Sequence","pretokenizers":[
                {"type":"Digits","individual_digits":true},
                {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,
                 "use_regex":true}]})",
                      "x 12y"),
            (Texts{"x", "Ġ", "1", "2", "y"}));
}

}  // namespace
}  // namespace stemma
