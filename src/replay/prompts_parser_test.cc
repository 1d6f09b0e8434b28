// Prompts through a tokenizer: pages of tokens. The tokenizer here knows single letters and "ab".
#include "replay/prompts_parser.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/tokenizer.h"

namespace stemma {
namespace {

constexpr std::string_view kTokenizer = R"({
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3}, "merges": ["a b"]}
})";

class TokenisedPrompts : public testing::Test {
 protected:
  TokenisedPrompts() : tokenizer_(*Tokenizer::parse(kTokenizer, "tokenizer.json")) {
    options_.format = *find_trace_format("prompts");
    options_.tokenizer_or_null = &tokenizer_;
    options_.page_tokens = 2;
  }

  TraceRequest parse(const std::string& input) {
    PromptsParser parser(options_);
    const Status taken =
        parser.take(R"({"timestamp": 0, "output": "abc", "input": ")" + input + "\"}", "prompts:1");
    EXPECT_TRUE(taken.ok()) << taken.error().detail;
    TraceRequest request;
    EXPECT_TRUE(parser.try_next(request));
    return request;
  }

  Tokenizer tokenizer_;
  TraceOptions options_;
};

TEST_F(TokenisedPrompts, AreCutIntoPagesOfTokens) {
  const TraceRequest request = parse("abababc");  // ab ab | ab c
  EXPECT_EQ(request.input_tokens, 4);
  EXPECT_EQ(request.page_hashes.size(), 2u);
  EXPECT_EQ(request.output_tokens, 2);  // ab c
}

TEST_F(TokenisedPrompts, LeaveWhatFillsNoPage) {
  EXPECT_EQ(parse("ababc").page_hashes.size(), 1u);  // ab ab | c
  EXPECT_TRUE(parse("ab").page_hashes.empty());
}

TEST_F(TokenisedPrompts, ShareThePagesOfACommonBeginning) {
  const TraceRequest left = parse("cacabab");  // c a | c ab | ab
  const TraceRequest right = parse("cacb");    // c a | c b
  EXPECT_EQ(left.page_hashes[0], right.page_hashes[0]);
  EXPECT_NE(left.page_hashes[1], right.page_hashes[1]);
}

TEST_F(TokenisedPrompts, HaveOneHashAPrefix) {
  const TraceRequest request = parse("cccc");  // c c | c c: equal tokens, another prefix
  ASSERT_EQ(request.page_hashes.size(), 2u);
  EXPECT_NE(request.page_hashes[0], request.page_hashes[1]);
}

TEST_F(TokenisedPrompts, TakeSixteenTokensAPageUnlessSaid) {
  options_.page_tokens = 0;
  EXPECT_EQ(PromptsParser(options_).page_tokens(), 16);
}

TEST_F(TokenisedPrompts, AreRefusedInFormatsWithoutText) {
  options_.format = *find_trace_format("mooncake");
  const auto parser = make_trace_parser(options_);
  ASSERT_FALSE(parser.ok());
  EXPECT_EQ(parser.error().detail, "--tokenizer: a trace of format mooncake holds no text");
}

}  // namespace
}  // namespace stemma
