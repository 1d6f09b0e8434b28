// What a request is told of its output's text: what ended it.
#include "engine/text_generation.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

class TextGenerationTest : public testing::Test {
 protected:
  // What ended an output of `text`, whose last token that was.
  StopReason reason(std::string_view text, TextRules rules) {
    TextGeneration generation(*tokenizer_, std::move(rules));
    std::string out;
    TokenId last = -1;
    for (const TokenId token : tokens_of(text)) {
      last = token;
      if (generation.push(token, out)) return generation.stop_reason(last);
    }
    generation.finish(out);
    return generation.stop_reason(last);
  }
  std::vector<TokenId> tokens_of(std::string_view text) {
    return tokenizer_->encode(text, {}).value();
  }
  TokenId last_of(std::string_view text) { return tokens_of(text).back(); }

  Result<Tokenizer> tokenizer_ = Tokenizer::load(STEMMA_SOURCE_DIR "/models/scribe-3m");
};

TEST_F(TextGenerationTest, AStopStringThatEndedItIsTold) {
  EXPECT_EQ(reason("over the sea", {.stop = {"land", "sea"}}), StopReason("sea"));
  EXPECT_EQ(reason("over the sea", {.stop = {"the"}}), StopReason("the"));
  EXPECT_EQ(reason("over the sea", {.stop = {"land"}}), StopReason());
}

TEST_F(TextGenerationTest, AStopTokenIsToldIfTheRequestNamedIt) {
  const TokenId last = last_of("over the sea");
  EXPECT_EQ(reason("over the sea", {.stop = {}, .stop_tokens = {last + 1, last}}),
            StopReason(last));
  EXPECT_EQ(reason("over the sea", {.stop = {}, .stop_tokens = {last + 1}}), StopReason());
}

TEST_F(TextGenerationTest, OfAStringAndATokenTheStringIsTold) {
  const TokenId last = last_of("over the sea");
  EXPECT_EQ(reason("over the sea", {.stop = {"sea"}, .stop_tokens = {last}}), StopReason("sea"));
}

TEST_F(TextGenerationTest, AStopStringMayBeginBeforeItMayEnd) {
  const std::string text = "over the sea";
  const std::int64_t tokens = std::ssize(tokens_of(text));
  ASSERT_GT(tokens, 2);
  EXPECT_EQ(reason(text, {.stop = {text}, .min_tokens = tokens - 1}), StopReason(text));
  EXPECT_EQ(reason(text, {.stop = {text}, .min_tokens = tokens}), StopReason());
}

}  // namespace
}  // namespace stemma
