// Logprobs of tokens: log-softmax of the raw logits, the likeliest first.
#include "model/token_logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace stemma {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

TEST(TokenLogprobs, AreTheLogarithmOfTheSoftmax) {
  const std::vector<float> logits = {0.0F, std::log(2.0F), std::log(5.0F)};  // 1 : 2 : 5
  std::array<TokenLogprob, 3> out;
  token_logprobs(logits, 1, out);
  EXPECT_EQ(out[0].token, 1);
  EXPECT_NEAR(out[0].logprob, std::log(2.0 / 8.0), 1e-6);
  EXPECT_EQ(out[1].token, 2);
  EXPECT_NEAR(out[1].logprob, std::log(5.0 / 8.0), 1e-6);
  EXPECT_EQ(out[2].token, 1);
}

TEST(TokenLogprobs, AreSoOfAVocabularyOfAnySize) {
  for (const std::size_t tokens : {9U, 511U, 513U, 151'936U}) {
    std::vector<float> logits(tokens);
    double sum = 0;
    for (std::size_t id = 0; id < tokens; ++id) {
      logits[id] = static_cast<float>(id * 7919 % 1000) / 50.0F - 30.0F;
      sum += std::exp(static_cast<double>(logits[id]));
    }
    std::array<TokenLogprob, 3> out;
    token_logprobs(logits, static_cast<TokenId>(tokens - 1), out);
    EXPECT_NEAR(out[0].logprob, static_cast<double>(logits.back()) - std::log(sum), 1e-5);
    EXPECT_NEAR(out[1].logprob, logits[static_cast<std::size_t>(out[1].token)] - std::log(sum),
                1e-5);
    const auto above = [&](float logit) { return logit > logits.back(); };
    const auto rank = 1 + std::count_if(logits.begin(), logits.end(), above) +
                      std::count(logits.begin(), logits.end() - 1, logits.back());
    EXPECT_EQ(out[0].rank, rank);
  }
}

TEST(TokenLogprobs, TiesGoToTheLowerId) {
  const std::vector<float> logits = {1, 3, 3, 2, 3};
  std::array<TokenLogprob, 4> out;
  token_logprobs(logits, 4, out);
  EXPECT_EQ(out[0].token, 4);
  EXPECT_EQ(out[1].token, 1);
  EXPECT_EQ(out[2].token, 2);
  EXPECT_EQ(out[3].token, 4);
}

TEST(TokenLogprobs, SayHowManyAreAsLikely) {
  const std::vector<float> logits = {1, 3, kNone, 2, 3};
  std::array<TokenLogprob, 3> out;
  const auto rank_of = [&](TokenId token) {
    token_logprobs(logits, token, out);
    return out[0].rank;
  };
  EXPECT_EQ(rank_of(1), 1);
  EXPECT_EQ(rank_of(4), 2) << "of equal ones the lower id comes first";
  EXPECT_EQ(rank_of(3), 3);
  EXPECT_EQ(rank_of(0), 4);
  EXPECT_EQ(rank_of(2), 5);
  EXPECT_EQ(out[1].rank, 1);
  EXPECT_EQ(out[2].rank, 2);
}

TEST(TokenLogprobs, OnlyTheTokenItselfIfNoOthersAreWanted) {
  const std::vector<float> logits = {7};
  std::array<TokenLogprob, 1> out;
  token_logprobs(logits, 0, out);
  EXPECT_EQ(out[0].logprob, 0.0F);
}

TEST(TokenLogprobs, WhatIsNoNumberIsImpossible) {
  const std::vector<float> logits = {kNone, 1, 1};
  std::array<TokenLogprob, 4> out;
  token_logprobs(logits, 0, out);
  EXPECT_EQ(out[0].logprob, -std::numeric_limits<float>::infinity());
  EXPECT_NEAR(out[1].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(out[3].token, 0);
}

TEST(TokenLogprobs, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {1e30F, 1e30F};
  std::array<TokenLogprob, 2> out;
  token_logprobs(logits, 1, out);
  EXPECT_NEAR(out[0].logprob, std::log(0.5), 1e-6);
}

}  // namespace
}  // namespace stemma
