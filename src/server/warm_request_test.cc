// What a request to warm the cache becomes: one token of one answer, and nothing that only answers
// have, whatever it says.
#include "server/warm_request.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

namespace stemma {
namespace {

ApiResult<CompletionRequest> read(const std::string& body) {
  RequestRules rules;
  rules.vocab_tokens = 100;
  return read_warm_request(body, rules);
}

TEST(WarmRequest, IsOfOneTokenOfOneAnswer) {
  const auto request = std::get<CompletionRequest>(
      read(R"({"prompt": "a", "n": 3, "max_tokens": 50, "min_tokens": 7, "stream": true,
               "logprobs": 2, "temperature": 2, "cache_salt": "s"})"));
  EXPECT_EQ(request.kind, CompletionKind::kText);
  EXPECT_EQ(request.max_tokens, 1);
  EXPECT_EQ(request.min_tokens, 0);
  EXPECT_EQ(request.copies, 1);
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.logprobs.has_value());
  EXPECT_EQ(request.sampling.temperature, SamplingParams().temperature);
  EXPECT_EQ(request.cache.salt, "s") << "where it is to be found";
}

TEST(WarmRequest, OfAChatEndsBehindItsMessagesUnlessItSaysOtherwise) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}])";
  for (const char* const silent : {"}", R"(, "add_generation_prompt": null})"}) {
    const auto plain = std::get<CompletionRequest>(read(chat + silent));
    EXPECT_EQ(plain.kind, CompletionKind::kChat);
    EXPECT_FALSE(plain.add_generation_prompt) << silent;
  }
  const auto begun =
      std::get<CompletionRequest>(read(chat + R"(, "add_generation_prompt": true})"));
  EXPECT_TRUE(begun.add_generation_prompt);
  EXPECT_EQ(std::get<ApiError>(read(chat + R"(, "prompt": "a"})")).param, "prompt");
}

}  // namespace
}  // namespace stemma
