// Broken and unsupported tokenizer.json files: each is refused with one line that names the file,
// the field and what is wrong.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/prng.h"
#include "model/tokenizer.h"
#include "model/tokenizer_examples.h"

namespace stemma {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// The error's detail; empty if the file is accepted.
std::string complaint_about(std::string_view json) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(json, "tokenizer.json");
  return tokenizer.ok() ? "" : tokenizer.error().detail;
}

std::string complaint_about(const ExampleFile& file) {
  return complaint_about(file.json());
}

std::string about_model(std::string_view model) {
  ExampleFile file;
  file.model = model;
  return complaint_about(file);
}

TEST(MalformedText, IsNotJson) {
  EXPECT_THAT(complaint_about(""), StartsWith("tokenizer.json: not valid JSON at byte "));
  EXPECT_THAT(complaint_about("{\"model\":}"),
              StartsWith("tokenizer.json: not valid JSON at byte 10"));
  EXPECT_THAT(complaint_about("{} x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(complaint_about("{\"a\":\"\xFF\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(complaint_about("// no comments\n{}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(complaint_about("{\"a\":1e999}"), HasSubstr("not valid JSON"));
  EXPECT_EQ(complaint_about("[]"), "tokenizer.json: must be a JSON object");
  EXPECT_EQ(complaint_about("{}"), "tokenizer.json: model: missing");
}

TEST(MalformedText, IsTooDeepOrHasAKeyTwice) {
  EXPECT_EQ(complaint_about(std::string(100'000, '[') + std::string(100'000, ']')),
            "tokenizer.json: JSON nested deeper than 32 levels");
  std::string nested;
  for (int level = 0; level < 100'000; ++level) {
    nested += "{\"a\":";
  }
  nested += "0" + std::string(100'000, '}');
  EXPECT_EQ(complaint_about(nested), "tokenizer.json: JSON nested deeper than 32 levels");
  EXPECT_EQ(complaint_about(R"({"a":1,"a":2})"), "tokenizer.json: key 'a' appears twice");
}

TEST(MalformedModel, NamesTheField) {
  const std::string_view file = "tokenizer.json: ";
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"type":"Unigram"})", "model: model type \"Unigram\" is not supported, only BPE"},
      {R"({"type":7})", "model.type: must be a string, is number"},
      {R"({"type":"BPE","merges":[]})", "model.vocab: missing"},
      {R"({"type":"BPE","vocab":[],"merges":[]})", "model.vocab: must be an object, is array"},
      {R"({"type":"BPE","vocab":{}})", "model.merges: missing"},
      {R"({"type":"BPE","vocab":{"a":-1},"merges":[]})",
       "model.vocab[\"a\"]: must be an id from 0 to 2147483646"},
      {R"({"type":"BPE","vocab":{"a":2147483647},"merges":[]})",
       "model.vocab[\"a\"]: must be an id from 0 to 2147483646"},
      {R"({"type":"BPE","vocab":{"a":1.5},"merges":[]})",
       "model.vocab[\"a\"]: must be an id from 0 to 2147483646"},
      {R"({"type":"BPE","vocab":{"a":1,"b":1},"merges":[]})",
       "model.vocab: id 1 belongs to both \"a\" and \"b\""},
      {R"({"type":"BPE","vocab":{"a":1,"aa":2},"merges":["a a","a"]})",
       "model.merges[1]: must be two tokens, as \"a b\" or [\"a\", \"b\"]"},
      {R"({"type":"BPE","vocab":{"a":1,"aa":2},"merges":[["a","a","a"]]})",
       "model.merges[0]: must be two tokens, as \"a b\" or [\"a\", \"b\"]"},
      {R"({"type":"BPE","vocab":{"a":1},"merges":["a b"]})",
       "model.merges[0]: \"b\" is not in model.vocab"},
      {R"({"type":"BPE","vocab":{"a":1},"merges":["a a"]})",
       "model.merges[0]: \"aa\" is not in model.vocab"},
      {R"({"type":"BPE","vocab":{},"merges":{}})", "model.merges: must be an array, is object"},
      {R"({"type":"BPE","unk_token":"<unk>","vocab":{},"merges":[]})",
       "model.unk_token: \"<unk>\" is not in model.vocab"},
      {R"({"type":"BPE","continuing_subword_prefix":"##","vocab":{},"merges":[]})",
       "model.continuing_subword_prefix: is not supported"},
      {R"({"type":"BPE","end_of_word_suffix":"</w>","vocab":{},"merges":[]})",
       "model.end_of_word_suffix: is not supported"},
      {R"({"type":"BPE","dropout":0.1,"vocab":{},"merges":[]})",
       "model.dropout: is not supported: the same text must give the same tokens"},
      {R"({"type":"BPE","fuse_unk":1,"vocab":{},"merges":[]})",
       "model.fuse_unk: must be true or false, is number"},
  };
  for (const auto& [model, complaint] : cases) {
    EXPECT_EQ(about_model(model), std::string(file) + std::string(complaint)) << model;
  }
  EXPECT_EQ(about_model(R"({"dropout":0,"continuing_subword_prefix":"","end_of_word_suffix":"",
                            "unk_token":"","vocab":{},"merges":[]})"),
            "")
      << "an older file that says the same as none";
}

TEST(MalformedSteps, NamesTheField) {
  const auto about = [](std::string ExampleFile::*member, std::string_view json) {
    ExampleFile file = byte_level_file();
    file.*member = std::string(json);
    return complaint_about(file);
  };
  EXPECT_EQ(about(&ExampleFile::normalizer, R"({"type":"Nmt"})"),
            "tokenizer.json: normalizer: normalizer \"Nmt\" is not supported");
  EXPECT_EQ(about(&ExampleFile::normalizer,
                  R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend"}]})"),
            "tokenizer.json: normalizer.normalizers[1].prepend: missing");
  EXPECT_EQ(about(&ExampleFile::normalizer, R"("NFC")"),
            "tokenizer.json: normalizer: must be an object, is string");
  EXPECT_THAT(about(&ExampleFile::pre_tokenizer,
                    R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})"),
              StartsWith("tokenizer.json: pre_tokenizer.pattern.Regex: the regular expression"));
  EXPECT_EQ(about(&ExampleFile::pre_tokenizer,
                  R"({"type":"Split","pattern":{"String":"a"},"behavior":"Gone"})"),
            "tokenizer.json: pre_tokenizer.behavior: behavior \"Gone\" is not supported");
  EXPECT_EQ(
      about(&ExampleFile::pre_tokenizer,
            R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]})"),
      "tokenizer.json: pre_tokenizer.pretokenizers[1]: a second ByteLevel is not supported");
  EXPECT_EQ(about(&ExampleFile::pre_tokenizer, R"({"type":"Metaspace","replacement":"ab"})"),
            "tokenizer.json: pre_tokenizer.replacement: must be one character, is \"ab\"");
  EXPECT_EQ(
      about(&ExampleFile::pre_tokenizer,
            R"({"type":"Metaspace","replacement":"_","prepend_scheme":"often"})"),
      "tokenizer.json: pre_tokenizer.prepend_scheme: prepend_scheme \"often\" is not supported");
  EXPECT_EQ(about(&ExampleFile::decoder, R"({"type":"WordPiece"})"),
            "tokenizer.json: decoder: decoder \"WordPiece\" is not supported");
  EXPECT_EQ(
      about(&ExampleFile::decoder,
            R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]})"),
      "tokenizer.json: decoder.decoders[1]: ByteFallback after Fuse or ByteLevel is not supported");
  EXPECT_EQ(about(&ExampleFile::decoder, R"({"type":"Strip","content":" ","start":-1,"stop":0})"),
            "tokenizer.json: decoder.start: must be an integer from 0 to 1024");
  EXPECT_EQ(about(&ExampleFile::around, R"({"type":"BertProcessing"})"),
            "tokenizer.json: post_processor: post_processor \"BertProcessing\" is not supported");
  EXPECT_EQ(about(&ExampleFile::around,
                  R"({"type":"TemplateProcessing","single":[],"special_tokens":{}})"),
            "tokenizer.json: post_processor.single: has no place for the text");
  EXPECT_EQ(about(&ExampleFile::around,
                  R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],
              "special_tokens":{}})"),
            "tokenizer.json: post_processor.special_tokens.x: missing");
  EXPECT_EQ(about(&ExampleFile::around,
                  R"({"type":"TemplateProcessing",
              "single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],
              "special_tokens":{"x":{"ids":[9999]}}})"),
            "tokenizer.json: post_processor: adds the id 9999, which no token has");
}

TEST(MalformedSteps, GrowthIsBounded) {
  ExampleFile file;
  const std::string doubling =
      R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaa"})";
  std::string members = doubling;
  for (int step = 0; step < 3; ++step) {
    members += "," + doubling;
  }
  file.normalizer = R"({"type":"Sequence","normalizers":[)" + members + "]}";
  EXPECT_EQ(
      complaint_about(file),
      "tokenizer.json: normalizer.normalizers[3]: the replacements make a text more than 1024 "
      "times longer");
  file.normalizer = "null";
  file.decoder = R"({"type":"Sequence","decoders":[)" + members + "]}";
  EXPECT_THAT(complaint_about(file), HasSubstr("decoder.decoders[3]: the replacements"));
  std::string many = R"({"type":"Lowercase"})";
  for (int step = 0; step < 64; ++step) {
    many += R"(,{"type":"Lowercase"})";
  }
  file.decoder = "null";
  file.normalizer = R"({"type":"Sequence","normalizers":[)" + many + "]}";
  EXPECT_EQ(complaint_about(file),
            "tokenizer.json: normalizer.normalizers[64]: more than 64 steps");
}

TEST(MalformedAddedTokens, NamesTheField) {
  const auto about = [](std::string_view tokens) {
    ExampleFile file;
    file.model = R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":[]})";
    file.added_tokens = std::string(tokens);
    return complaint_about(file);
  };
  EXPECT_EQ(about(R"({})"), "tokenizer.json: added_tokens: must be an array, is object");
  EXPECT_EQ(about(R"([{"content":"x"}])"), "tokenizer.json: added_tokens[0].id: missing");
  EXPECT_EQ(about(R"([{"id":5}])"), "tokenizer.json: added_tokens[0].content: missing");
  EXPECT_EQ(about(R"([{"id":5,"content":"x"},7])"),
            "tokenizer.json: added_tokens[1]: must be an object, is number");
  EXPECT_EQ(about(R"([{"id":5,"content":"a"}])"),
            "tokenizer.json: added_tokens[0].id: is 5, but model.vocab gives \"a\" the id 0");
  EXPECT_EQ(about(R"([{"id":1,"content":"x"}])"),
            "tokenizer.json: added_tokens[0].id: 1 already belongs to \"b\" in model.vocab");
  EXPECT_EQ(about(R"([{"id":5,"content":"x"},{"id":5,"content":"y"}])"),
            "tokenizer.json: added_tokens: id 5 belongs to both \"x\" and \"y\"");
  EXPECT_EQ(about(R"([{"id":5,"content":"x"},{"id":6,"content":"x"}])"),
            "tokenizer.json: added_tokens: \"x\" comes twice");
  EXPECT_EQ(about(R"([{"id":5,"content":"x","special":"yes"}])"),
            "tokenizer.json: added_tokens[0].special: must be true or false, is string");
  EXPECT_EQ(about(R"([{"id":5,"content":""},{"id":6,"content":"x"},{"id":6,"content":"x"}])"), "");
}

TEST(MalformedText, AComplaintIsOneShortLine) {
  const std::string complaint = about_model(R"({"type":"a\nb)" + std::string(5'000, 'x') + R"("})");
  EXPECT_THAT(complaint, HasSubstr("\\x0a"));
  EXPECT_LT(complaint.size(), 200u);
}

// Any damage gives an error or a tokenizer that works.
TEST(MalformedText, DamagedFilesNeverDoHarm) {
  const std::string whole = sentence_piece_file().json();
  for (std::size_t cut = 0; cut < whole.size(); cut += 97) {
    EXPECT_NE(complaint_about(whole.substr(0, cut)), "") << cut;
  }
  constexpr std::uint64_t kSeed = 77;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng prng(kSeed);
  const auto below = [&](std::size_t bound) {
    return static_cast<std::size_t>(prng.below(static_cast<std::int64_t>(bound)));
  };
  for (int round = 0; round < 500; ++round) {
    std::string json = whole;
    for (std::size_t change = below(4) + 1; change > 0; --change) {
      json[below(json.size())] = "\"[]{},:0az\\\xE2"[below(12)];
    }
    const Result<Tokenizer> tokenizer = Tokenizer::parse(json, "tokenizer.json");
    if (tokenizer.ok()) {
      const auto tokens = tokenizer.value().encode("hi <s> é", {});
      EXPECT_TRUE(tokens.ok());
    }
  }
}

}  // namespace
}  // namespace stemma
