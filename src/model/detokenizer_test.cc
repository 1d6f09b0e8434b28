// The detokenizer: never part of a character, no more held back than must be, and all pieces joined
// are the decoded text.
#include "model/detokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "model/tokenizer_examples.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

using Ids = std::vector<TokenId>;
using Texts = std::vector<std::string>;

Tokenizer built(const ExampleFile& file) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(file.json(), "test.json");
  EXPECT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  return std::move(tokenizer).value();
}

// What each push returns, and the flush at the end.
Texts pushed(const Tokenizer& tokenizer, const Ids& tokens, bool skip_special_tokens = true) {
  Detokenizer detokenizer(tokenizer, skip_special_tokens);
  Texts texts;
  for (const TokenId token : tokens) {
    texts.push_back(detokenizer.push(token));
  }
  texts.push_back(detokenizer.flush());
  return texts;
}

TEST(Detokenizer, HoldsBytesOfACharacterBack) {
  const Tokenizer tokenizer = built(byte_level_file());
  EXPECT_EQ(pushed(tokenizer, {259, 0xF0, 0x9F, 0xA6, 0x99, 'o'}),
            (Texts{"hello", "", "", "", "🦙", "o", ""}));
  EXPECT_EQ(pushed(tokenizer, {0xC3, 'a', 0xC3}), (Texts{"", "�a", "", "�"}));
}

TEST(Detokenizer, AssemblesByteTokens) {
  const Tokenizer tokenizer = built(sentence_piece_file());
  EXPECT_EQ(pushed(tokenizer, {263, 3 + 0xC3, 3 + 0xA9, 3 + 0x41, 260}),
            (Texts{"hi", "", "é", "A", "h", ""}));
  EXPECT_EQ(pushed(tokenizer, {3 + 0xE5, 3 + 0x8F, 260}), (Texts{"", "", "��h", ""}));
}

TEST(Detokenizer, DropsOnlyTheLeadingSpaceOfTheText) {
  const Tokenizer tokenizer = built(sentence_piece_file());
  EXPECT_EQ(pushed(tokenizer, {1, 259, 263, 263}), (Texts{"", "", " hi", " hi", ""}));
  EXPECT_EQ(pushed(tokenizer, {1, 263}, false), (Texts{"<s>", " hi", ""}));
}

TEST(Detokenizer, ATokenBehindOthersKeepsItsSpace) {
  const Tokenizer pieces = built(sentence_piece_file());
  EXPECT_EQ(text_behind_others(pieces, 263), " hi");
  EXPECT_EQ(text_behind_others(pieces, 262), "hi");
  EXPECT_EQ(text_behind_others(pieces, 1), "<s>");
  EXPECT_EQ(text_behind_others(pieces, 3 + 0xC3), "�");
  EXPECT_EQ(text_behind_others(pieces, 9999), "");
  const Tokenizer bytes = built(byte_level_file());
  EXPECT_EQ(text_behind_others(bytes, 259), "hello");
  EXPECT_EQ(text_behind_others(bytes, 0xC3), "�");
}

TEST(Detokenizer, ATextThatGoesOnKeepsItsFirstSpace) {
  const Tokenizer tokenizer = built(sentence_piece_file());
  Detokenizer detokenizer(tokenizer, true);
  detokenizer.begin_behind_others();
  EXPECT_EQ(detokenizer.push(263), " hi");
  EXPECT_EQ(detokenizer.push(263), " hi");
  EXPECT_EQ(detokenizer.flush(), "");
  EXPECT_EQ(detokenizer.push(263), "hi") << "behind a flush a new text begins";
}

TEST(Detokenizer, BeginsANewTextAfterAFlush) {
  const Tokenizer tokenizer = built(sentence_piece_file());
  Detokenizer detokenizer(tokenizer, true);
  EXPECT_EQ(detokenizer.push(263), "hi");
  EXPECT_EQ(detokenizer.push(3 + 0xC3), "");
  EXPECT_EQ(detokenizer.flush(), "�");
  EXPECT_EQ(detokenizer.push(263), "hi");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, PassesOverIdsThatNoTokenHas) {
  const Tokenizer tokenizer = built(byte_level_file());
  EXPECT_EQ(pushed(tokenizer, {-1, 299, 5'000, 'a'}), (Texts{"", "", "", "a", ""}));
}

// A decoder of each kind, some of which hold text back.
std::vector<ExampleFile> files_of_every_kind() {
  std::vector<ExampleFile> files = {byte_level_file(), sentence_piece_file()};
  for (const std::string_view decoder :
       {R"(null)", R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first"})",
        R"({"type":"Sequence","decoders":[
            {"type":"ByteFallback"},{"type":"Metaspace","replacement":"▁"}]})",
        R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},
            {"type":"Replace","pattern":{"String":"hih"},"content":"h"},
            {"type":"Strip","content":"h","start":2,"stop":2}]})",
        R"({"type":"Sequence","decoders":[
            {"type":"Replace","pattern":{"Regex":"[hi]"},"content":"é"},
            {"type":"Strip","content":"▁","start":1,"stop":1}]})"}) {
    files.push_back(sentence_piece_file());
    files.back().decoder = decoder;
  }
  return files;
}

TEST(Detokenizer, JoinedPiecesAreTheDecodedText) {
  constexpr std::uint64_t kSeed = 4'711;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng prng(kSeed);
  for (const ExampleFile& file : files_of_every_kind()) {
    SCOPED_TRACE(file.decoder);
    const Tokenizer tokenizer = built(file);
    for (int round = 0; round < 1'000; ++round) {
      Ids tokens;
      for (std::int64_t left = prng.below(16); left > 0; --left) {
        const bool from_end = prng.below(2) == 0;
        tokens.push_back(static_cast<TokenId>(from_end ? 256 + prng.below(10) : prng.below(305)));
      }
      const bool skip = prng.below(2) == 0;
      std::string joined;
      for (const std::string& text : pushed(tokenizer, tokens, skip)) {
        EXPECT_TRUE(is_utf8(text));
        joined += text;
      }
      ASSERT_EQ(joined, tokenizer.decode(tokens, skip)) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace stemma
