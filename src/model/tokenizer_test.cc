// The tokenizer as a whole, on small files: byte-level and SentencePiece-style encoding, merges,
// added tokens, templates, decoding.
#include "model/tokenizer.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "base/temp_directory.h"
#include "model/random_model.h"
#include "model/tokenizer_examples.h"
#include "stemma/log.h"

namespace stemma {
namespace {

using Ids = std::vector<TokenId>;

Tokenizer parsed(const ExampleFile& file) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(file.json(), "test.json");
  EXPECT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  return std::move(tokenizer).value();
}

Ids ids_of(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  const auto tokens = tokenizer.encode(text, options);
  EXPECT_TRUE(tokens.ok()) << to_string(tokens.error());
  return tokens.ok() ? tokens.value() : Ids{};
}

TEST(Tokenizer, ByteLevelMergesInTheOrderOfTheFile) {
  const Tokenizer tokenizer = parsed(byte_level_file());
  EXPECT_EQ(ids_of(tokenizer, "hello"), (Ids{259}));
  EXPECT_EQ(ids_of(tokenizer, "hell wo"), (Ids{258, 260, 'o'}));
  EXPECT_EQ(ids_of(tokenizer, "helo"), (Ids{256, 'l', 'o'}));
  EXPECT_EQ(ids_of(tokenizer, "é"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(ids_of(tokenizer, ""), (Ids{}));
}

TEST(Tokenizer, BytesThatAreNotUtf8BecomeTheReplacementCharacter) {
  const Tokenizer tokenizer = parsed(byte_level_file());
  EXPECT_EQ(ids_of(tokenizer, "a\xFF"), (Ids{'a', 0xEF, 0xBF, 0xBD}));
  EXPECT_EQ(ids_of(tokenizer, "\xE5\x8F"), (Ids{0xEF, 0xBF, 0xBD}));
}

TEST(Tokenizer, SpecialTokensInTheTextAreReadOnlyWhereAsked) {
  const Tokenizer tokenizer = parsed(byte_level_file());
  EXPECT_EQ(ids_of(tokenizer, "h<|end|>h"), (Ids{'h', 300, 'h'}));
  EXPECT_EQ(ids_of(tokenizer, "<|end|>!"), (Ids{301})) << "the longest wins";
  EXPECT_EQ(ids_of(tokenizer, "<|end|>", {.parse_special_tokens = false}).size(), 7u);
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_FALSE(tokenizer.is_special(256));
}

TEST(Tokenizer, KnowsItsVocabulary) {
  const Tokenizer tokenizer = parsed(byte_level_file());
  EXPECT_EQ(tokenizer.vocab_tokens(), 302);
  EXPECT_EQ(tokenizer.token_id("hello"), 259);
  EXPECT_EQ(tokenizer.token_id("<|end|>"), 300);
  EXPECT_EQ(tokenizer.token_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.token_text(260), "Ġw");
  EXPECT_EQ(tokenizer.token_text(301), "<|end|>!");
  EXPECT_EQ(tokenizer.token_text(299), std::nullopt) << "a gap";
  EXPECT_EQ(tokenizer.token_text(-1), std::nullopt);
}

TEST(Tokenizer, DecodesBytesAndSkipsSpecialTokensWhereAsked) {
  const Tokenizer tokenizer = parsed(byte_level_file());
  EXPECT_EQ(tokenizer.decode(Ids{259, 260, 300, 0xC3, 0xA9, 299, -5, 1'000'000}, false),
            "hello w<|end|>é");
  EXPECT_EQ(tokenizer.decode(Ids{259, 300, 260}, true), "hello w");
  EXPECT_EQ(tokenizer.decode(Ids{0xC3, 'a'}, true), "�a");
}

TEST(Tokenizer, SentencePieceStyle) {
  const Tokenizer tokenizer = parsed(sentence_piece_file());
  EXPECT_EQ(ids_of(tokenizer, "hi"), (Ids{263}));
  EXPECT_EQ(ids_of(tokenizer, " hi"), (Ids{259, 263})) << "the text's own space stays";
  EXPECT_EQ(ids_of(tokenizer, "hi é"), (Ids{263, 259, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(ids_of(tokenizer, "</s>hi"), (Ids{2, 263}));
  EXPECT_EQ(ids_of(tokenizer, "hi", {.add_special_tokens = true}), (Ids{1, 263}));
  EXPECT_EQ(ids_of(tokenizer, "", {.add_special_tokens = true}), (Ids{1}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 263, 259, 3 + 0xC3, 3 + 0xA9}, true), "hi é");
  EXPECT_EQ(tokenizer.decode(Ids{259, 263}, true), " hi");
  EXPECT_EQ(tokenizer.decode(Ids{3 + 0xE5, 3 + 0x8F, 260}, true), "��h");
}

TEST(Tokenizer, MovesWithoutLosingItsTexts) {
  Tokenizer first = parsed(byte_level_file());
  const std::string_view text = *first.token_text(256);
  const Tokenizer second = std::move(first);
  EXPECT_EQ(text, "he");
  EXPECT_EQ(ids_of(second, "hello"), (Ids{259}));
}

ExampleFile plain_file(std::string options, std::string vocab, std::string merges = "") {
  ExampleFile file;
  file.model =
      R"({"type":"BPE",)" + options + R"("vocab":{)" + vocab + R"(},"merges":[)" + merges + "]}";
  return file;
}

TEST(Bpe, UnknownCharacters) {
  const std::string vocab = R"("<unk>":0,"a":1,"b":2)";
  EXPECT_EQ(ids_of(parsed(plain_file(R"("unk_token":"<unk>",)", vocab)), "accb"),
            (Ids{1, 0, 0, 2}));
  EXPECT_EQ(ids_of(parsed(plain_file(R"("unk_token":"<unk>","fuse_unk":true,)", vocab)), "accb"),
            (Ids{1, 0, 2}));
  EXPECT_EQ(ids_of(parsed(plain_file(R"("unk_token":null,)", vocab)), "accb"), (Ids{1, 2}));
}

TEST(Bpe, IgnoreMergesTakesWholePiecesFirst) {
  const std::string vocab = R"("a":0,"b":1,"c":2,"ab":3,"bc":4,"abc":5)";
  const std::string merges = R"("b c")";
  EXPECT_EQ(ids_of(parsed(plain_file("", vocab, merges)), "abc"), (Ids{0, 4}));
  EXPECT_EQ(ids_of(parsed(plain_file(R"("ignore_merges":true,)", vocab, merges)), "abc"), (Ids{5}));
}

TEST(Bpe, TheFirstMergeOfTheFileGoesBeforeAnEarlierPlace) {
  const std::string vocab = R"("a":0,"b":1,"c":2,"ab":3,"bc":4)";
  EXPECT_EQ(ids_of(parsed(plain_file("", vocab, R"(["b","c"],["a","b"])")), "abcab"),
            (Ids{0, 4, 3}));
  EXPECT_EQ(ids_of(parsed(plain_file("", vocab, R"("a b","b c")")), "abc"), (Ids{3, 2}));
}

// Merges by the definition: the best pair of the whole piece, again and again.
Ids merged_slowly(Ids tokens,
                  const std::map<std::pair<TokenId, TokenId>, std::pair<int, TokenId>>& merges) {
  while (true) {
    auto best = merges.end();
    std::size_t place = 0;
    for (std::size_t left = 0; left + 1 < tokens.size(); ++left) {
      const auto merge = merges.find({tokens[left], tokens[left + 1]});
      if (merge != merges.end() && (best == merges.end() || merge->second < best->second)) {
        best = merge;
        place = left;
      }
    }
    if (best == merges.end()) {
      return tokens;
    }
    tokens[place] = best->second.second;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(Bpe, AgreesWithTheDefinitionOnRandomMerges) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    std::vector<std::string> texts = {"a", "b", "c"};
    std::map<std::pair<TokenId, TokenId>, std::pair<int, TokenId>> merges;
    std::string lines;
    for (int rank = 0; rank < 24; ++rank) {
      const auto left = static_cast<TokenId>(prng.below(static_cast<std::int64_t>(texts.size())));
      const auto right = static_cast<TokenId>(prng.below(static_cast<std::int64_t>(texts.size())));
      const std::string& left_text = texts[static_cast<std::size_t>(left)];
      const std::string& right_text = texts[static_cast<std::size_t>(right)];
      const std::string text = left_text + right_text;
      if (text.size() > 6 || std::find(texts.begin(), texts.end(), text) != texts.end()) {
        continue;
      }
      lines += (lines.empty() ? "" : ",") + in_json(left_text + " " + right_text);
      merges[{left, right}] = {rank, static_cast<TokenId>(texts.size())};
      texts.push_back(text);
    }
    std::string vocab;
    for (std::size_t id = 0; id < texts.size(); ++id) {
      vocab += (id == 0 ? "" : ",") + in_json(texts[id]) + ":" + std::to_string(id);
    }
    const Tokenizer tokenizer = parsed(plain_file("", vocab, lines));
    for (int round = 0; round < 40; ++round) {
      std::string text;
      Ids letters;
      for (std::int64_t left = prng.below(40); left > 0; --left) {
        letters.push_back(static_cast<TokenId>(prng.below(3)));
        text.push_back(static_cast<char>('a' + letters.back()));
      }
      ASSERT_EQ(ids_of(tokenizer, text), merged_slowly(letters, merges)) << text;
    }
  }
}

TEST(Bpe, ALongPieceIsNoTrouble) {
  const std::string vocab = R"("a":0,"aa":1,"aaaa":2)";
  const Tokenizer tokenizer = parsed(plain_file("", vocab, R"("a a","aa aa")"));
  EXPECT_EQ(ids_of(tokenizer, std::string(400'000, 'a')).size(), 100'000u);
}

ExampleFile added_file(std::string added_tokens) {
  ExampleFile file = plain_file("", R"("a":0,"b":1,"c":2,"_":3," ":4)");
  file.added_tokens = "[" + added_tokens + "]";
  return file;
}

TEST(AddedTokens, StripTheWhiteSpaceAroundThem) {
  const Tokenizer tokenizer =
      parsed(added_file(R"({"id":9,"content":"<x>","lstrip":true,"rstrip":true})"));
  EXPECT_EQ(ids_of(tokenizer, "a  <x>  b <x> <x>"), (Ids{0, 9, 1, 9, 9}));
}

// As Hugging Face's tokenizers 0.23 give them.
TEST(AddedTokens, AreFoundInTheWhiteSpaceThatOthersTake) {
  const Tokenizer tokenizer =
      parsed(added_file(R"({"id":9,"content":"<x>","rstrip":true},{"id":10,"content":"\n\n"},)"
                        R"({"id":11,"content":"  ","lstrip":true,"rstrip":true})"));
  EXPECT_EQ(ids_of(tokenizer, "<x>\n\na"), (Ids{9, 10, 0}));
  EXPECT_EQ(ids_of(tokenizer, "<x>\n\n a"), (Ids{9, 10, 4, 0}));  // the space is text again
  EXPECT_EQ(ids_of(tokenizer, "<x>      a"), (Ids{9, 0}));  // 11 would take its white space too
  EXPECT_EQ(ids_of(tokenizer, "<x>\n\n  \n\na"), (Ids{9, 10, 11, 10, 0}));
}

TEST(AddedTokens, SingleWordsStandAlone) {
  const Tokenizer tokenizer = parsed(added_file(R"({"id":9,"content":"ab","single_word":true})"));
  EXPECT_EQ(ids_of(tokenizer, "ab cab ab_ ab"), (Ids{9, 4, 2, 0, 1, 4, 0, 1, 3, 4, 9}));
}

TEST(AddedTokens, LeftmostThenLongest) {
  const Tokenizer tokenizer = parsed(
      added_file(R"({"id":9,"content":"ab"},{"id":10,"content":"abc"},{"id":11,"content":"bcc"})"));
  EXPECT_EQ(ids_of(tokenizer, "abcc"), (Ids{10, 2}));
  EXPECT_EQ(ids_of(tokenizer, "bccab"), (Ids{11, 9}));
}

TEST(AddedTokens, NormalizedOnesAreSoughtInTheNormalizedText) {
  ExampleFile file = added_file(
      R"({"id":9,"content":"AB","normalized":true},{"id":10,"content":"CC","normalized":false})");
  file.normalizer = R"({"type":"Lowercase"})";
  const Tokenizer tokenizer = parsed(file);
  EXPECT_EQ(ids_of(tokenizer, "aBcc"), (Ids{9, 2, 2}));
  EXPECT_EQ(ids_of(tokenizer, "CCab"), (Ids{10, 9}));
}

TEST(Normalizers, RewriteTheText) {
  ExampleFile file = plain_file("", R"("a":0,"b":1,"é":2,"-":3)");
  file.normalizer = R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"},
      {"type":"Strip","strip_left":true,"strip_right":true},
      {"type":"Replace","pattern":{"Regex":"\\s+"},"content":"-"}]})";
  EXPECT_EQ(ids_of(parsed(file), "  A \n Be\u0301 "), (Ids{0, 3, 1, 2}));
}

// A Metaspace's "first" is of what begins the input as it was given.
TEST(Normalizers, ATextWhoseFirstSpacesAreTakenOffDoesNotBeginTheInput) {
  ExampleFile file = plain_file("", R"("a":0,"b":1,"_":2)");
  file.pre_tokenizer =
      R"({"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":false})";
  file.normalizer = R"({"type":"Strip","strip_left":true,"strip_right":true})";
  EXPECT_EQ(ids_of(parsed(file), "a b "), (Ids{2, 0, 2, 1}));
  EXPECT_EQ(ids_of(parsed(file), " a b"), (Ids{0, 2, 1}));
  file.normalizer = R"({"type":"Strip","strip_left":false,"strip_right":true})";
  EXPECT_EQ(ids_of(parsed(file), " a b "), (Ids{2, 0, 2, 1}));
}

TEST(Template, StacksAroundTheText) {
  ExampleFile file = byte_level_file();
  const std::string one =
      R"({"type":"TemplateProcessing",
          "single":[{"SpecialToken":{"id":"E","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
                    {"SpecialToken":{"id":"E","type_id":0}}],
          "special_tokens":{"E":{"id":"E","ids":[300],"tokens":["<|end|>"]}}})";
  file.around =
      R"({"type":"Sequence","processors":[{"type":"ByteLevel","trim_offsets":false},)" + one + "]}";
  EXPECT_EQ(ids_of(parsed(file), "h", {.add_special_tokens = true}), (Ids{300, 'h', 300}));
  EXPECT_EQ(parsed(file).tokens_around().before, 1);
  EXPECT_EQ(parsed(file).tokens_around().behind, 1);
  EXPECT_EQ(ids_of(parsed(file), "h"), (Ids{'h'}));
}

TEST(Decoder, WithoutOneTokensAreJoinedBySpaces) {
  EXPECT_EQ(parsed(plain_file("", R"("a":0,"b":1)")).decode(Ids{0, 1, 0}, false), "a b a");
}

TEST(Decoder, MetaspaceDropsTheFirstSpace) {
  ExampleFile file = plain_file("", R"("▁a":0,"▁b":1)");
  file.decoder = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";
  EXPECT_EQ(parsed(file).decode(Ids{0, 1}, false), "a b");
  file.decoder = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})";
  EXPECT_EQ(parsed(file).decode(Ids{0, 1}, false), " a b");
}

TEST(Decoder, StripWorksOnTokensBeforeAFuseAndOnTheTextAfterIt) {
  ExampleFile file = plain_file("", R"("--a-":0,"-b--":1)");
  const std::string strip = R"({"type":"Strip","content":"-","start":1,"stop":1})";
  file.decoder = strip;
  EXPECT_EQ(parsed(file).decode(Ids{0, 1}, false), "-ab-");
  file.decoder = R"({"type":"Sequence","decoders":[{"type":"Fuse"},)" + strip + "]}";
  EXPECT_EQ(parsed(file).decode(Ids{0, 1}, false), "-a--b-");
}

TEST(Decoder, ReplaceAfterAFuseFindsAcrossTokens) {
  ExampleFile file = plain_file("", R"("xa":0,"ab":1,"b":2)");
  file.decoder =
      R"({"type":"Sequence","decoders":[
          {"type":"Fuse"},{"type":"Replace","pattern":{"String":"aab"},"content":"!"}]})";
  EXPECT_EQ(parsed(file).decode(Ids{0, 1, 2}, false), "x!b");
  EXPECT_EQ(parsed(file).decode(Ids{0, 0}, false), "xaxa");
}

// A directory with both files.
class TokenizerFlagsTest : public testing::Test {
 protected:
  Result<Tokenizer> load(const ExampleFile& file, const std::string& config) const {
    EXPECT_TRUE(write_file(directory_.file("tokenizer.json"), file.json()).ok());
    EXPECT_TRUE(write_file(directory_.file("tokenizer_config.json"), config).ok());
    return Tokenizer::load(directory_.path());
  }
  // The tokens of "h" with those around it.
  Ids ids_with(const ExampleFile& file, const std::string& config) const {
    const Result<Tokenizer> tokenizer = load(file, config);
    EXPECT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
    return tokenizer.ok() ? ids_of(*tokenizer, "h", {.add_special_tokens = true}) : Ids{};
  }
  std::string error_with(const std::string& config) const {
    const Result<Tokenizer> tokenizer = load(byte_level_file(), config);
    return tokenizer.ok() ? "none" : tokenizer.error().detail;
  }

  TempDirectory directory_;
};

TEST_F(TokenizerFlagsTest, LlamaClassesPutTheirTokensAroundATextThatTheTemplateLeavesBare) {
  EXPECT_EQ(ids_with(byte_level_file(), R"({"tokenizer_class":"LlamaTokenizerFast",
      "bos_token":"<|end|>","add_bos_token":true,"add_eos_token":false})"),
            (Ids{300, 'h'}));
  EXPECT_EQ(ids_with(byte_level_file(), R"({"tokenizer_class":"GemmaTokenizer",
      "bos_token":{"content":"<|end|>"},"eos_token":"<|end|>!",
      "add_bos_token":true,"add_eos_token":true})"),
            (Ids{300, 'h', 301}));
}

TEST_F(TokenizerFlagsTest, ATokenOfTheTemplateIsThereOnceOrTakenOff) {
  const auto ids = [&](const std::string& flag) {
    return ids_with(sentence_piece_file(), R"({"tokenizer_class":"LlamaTokenizer")" + flag + "}");
  };
  EXPECT_EQ(ids(R"(,"add_bos_token":true)"), (Ids{1, 259, 260})) << "<s> by default";
  EXPECT_EQ(ids(R"(,"add_bos_token":false)"), (Ids{259, 260}));
  EXPECT_EQ(ids(R"(,"add_bos_token":null)"), (Ids{1, 259, 260}));
  EXPECT_EQ(ids(""), (Ids{1, 259, 260}));
  EXPECT_EQ(ids(R"(,"add_eos_token":true)"), (Ids{1, 259, 260, 2}));
}

// Readers differ: up to transformers 4.x such a text begins with <s>, from 5.x on it does not.
TEST_F(TokenizerFlagsTest, TextsThatNothingIsSaidOfAreToldInTheLog) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view text) { lines.emplace_back(text); });
  const std::string begin = R"({"bos_token":"<|end|>","tokenizer_class":"LlamaTokenizer")";
  EXPECT_EQ(ids_with(byte_level_file(), begin + "}"), (Ids{'h'}));
  EXPECT_EQ(ids_with(sentence_piece_file(), begin + "}"), (Ids{1, 259, 260}));
  EXPECT_EQ(ids_with(byte_level_file(), begin + R"(,"add_bos_token":false})"), (Ids{'h'}));
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], testing::HasSubstr("model.tokenizer.bare_texts"));
  EXPECT_THAT(lines[0], testing::HasSubstr("lacks=add_bos_token"));
}

TEST_F(TokenizerFlagsTest, OtherClassesTakeTheTemplateAsItIs) {
  for (const char* const name : {"Qwen2Tokenizer", "PreTrainedTokenizerFast"}) {
    const std::string begin = R"({"tokenizer_class":")" + std::string(name) + R"(",)";
    EXPECT_EQ(ids_with(byte_level_file(), begin + R"("bos_token":"<|end|>","add_bos_token":true})"),
              (Ids{'h'}));
    EXPECT_EQ(ids_with(sentence_piece_file(), begin + R"("add_bos_token":false})"),
              (Ids{1, 259, 260}));
  }
  EXPECT_EQ(ids_with(sentence_piece_file(), R"({"add_bos_token":false})"), (Ids{1, 259, 260}));
}

TEST_F(TokenizerFlagsTest, TokensThatTheConfigurationAddsAreFound) {
  const auto tokenizer = load(byte_level_file(), R"({"added_tokens_decoder":{
      "302":{"content":"<|call|>","special":true}, "7":{"content":"he","special":false}}})");
  ASSERT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  EXPECT_EQ(ids_of(*tokenizer, "h<|call|>h"), (Ids{'h', 302, 'h'}));
  EXPECT_EQ(tokenizer->decode(Ids{'h', 302, 'h'}, true), "hh");
  EXPECT_EQ(tokenizer->vocab_tokens(), 303);
  EXPECT_EQ(ids_of(*tokenizer, "hell"), (Ids{256, 257})) << "the model's own id, and no part of it";
  EXPECT_FALSE(tokenizer->is_special(256));
}

TEST_F(TokenizerFlagsTest, FlagsOfAddedTokensAreTheConfigurations) {
  const std::string text = "h<|end|>  h";
  EXPECT_EQ(ids_of(parsed(byte_level_file()), text).size(), 5U);
  const auto tokenizer = load(byte_level_file(), R"({"added_tokens_decoder":{
      "300":{"content":"<|end|>","rstrip":true,"special":true}}})");
  ASSERT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  EXPECT_EQ(ids_of(*tokenizer, text), (Ids{'h', 300, 'h'}));
  EXPECT_EQ(ids_of(*tokenizer, "<|end|>!"), (Ids{301})) << "others stay";
}

TEST_F(TokenizerFlagsTest, SpecialTokensOfTheConfigurationAreSpecialIfTheModelHasThem) {
  const auto tokenizer = load(byte_level_file(), R"({"eos_token":{"content":"hell"},
      "pad_token":"<|pad|>","additional_special_tokens":["ll"]})");
  ASSERT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  EXPECT_EQ(ids_of(*tokenizer, "hello"), (Ids{258, 'o'}));
  EXPECT_EQ(tokenizer->decode(Ids{258, 257, 'o'}, true), "o");
  EXPECT_FALSE(tokenizer->token_id("<|pad|>").has_value());
}

// As files from before the end of 2023 have them.
TEST_F(TokenizerFlagsTest, SpecialTokensOfAMapOfTheirOwnAreSpecialToo) {
  ASSERT_TRUE(write_file(directory_.file("special_tokens_map.json"),
                         R"({"eos_token":{"content":"hell"},"bos_token":"<|end|>"})")
                  .ok());
  const std::string config = R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":true)";
  const auto tokenizer = load(byte_level_file(), config + "}");
  ASSERT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  EXPECT_EQ(ids_of(*tokenizer, "hello", {.add_special_tokens = true}), (Ids{300, 258, 'o'}));
  EXPECT_TRUE(tokenizer->is_special(258));
  EXPECT_THAT(error_with(config + R"(,"added_tokens_decoder":{}})"),
              testing::HasSubstr("asks for \"<s>\""))
      << "newer files say it all";
}

TEST_F(TokenizerFlagsTest, AddedTokensThatCannotBeAreNamed) {
  const auto error = [&](const std::string& decoder) {
    return error_with(R"({"added_tokens_decoder":)" + decoder + "}");
  };
  EXPECT_THAT(error("[]"), testing::HasSubstr("tokenizer_config.json: added_tokens_decoder: "));
  EXPECT_THAT(error(R"({"x":{"content":"a"}})"), testing::HasSubstr("added_tokens_decoder.x: "));
  EXPECT_THAT(error(R"({"-1":{"content":"<|a|>"}})"), testing::HasSubstr("decoder.-1: "));
  EXPECT_THAT(error(R"({"9":{}})"), testing::HasSubstr("added_tokens_decoder.9.content: "));
  EXPECT_THAT(error(R"({"104":{"content":"<|a|>"}})"), testing::HasSubstr("belongs to \"h\""));
  EXPECT_NE(error(R"({"300":{"content":"<|a|>"}})"), "none");
}

TEST_F(TokenizerFlagsTest, WhatCannotBeObeyedIsNamed) {
  const std::string begin = R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":)";
  EXPECT_THAT(error_with(begin + "true}"),
              testing::HasSubstr("tokenizer_config.json: add_bos_token: asks for \"<s>\""));
  EXPECT_THAT(error_with(begin + R"(true,"bos_token":null})"), testing::HasSubstr(": bos_token: "));
  EXPECT_THAT(error_with(begin + R"("yes"})"), testing::HasSubstr(": add_bos_token: "));
  EXPECT_THAT(error_with("[]"), testing::HasSubstr("tokenizer_config.json: "));
}

TEST(Load, NamesTheFileThatIsMissing) {
  const Result<Tokenizer> tokenizer = Tokenizer::load("/nowhere/model");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(tokenizer.error().detail, testing::HasSubstr("/nowhere/model/tokenizer.json"));
}

}  // namespace
}  // namespace stemma
