// What is covered: which token a row of logits gives. How: exact cases for greedy choice, ties,
// penalties and odd logits; distributions by chi-square against probabilities computed here in
// double; reproducibility by position.
#include "model/sampler.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "base/prng.h"

namespace stemma {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint64_t kSeed = 7;

SamplingParams sampled(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  params.seed = kSeed;
  return params;
}

std::optional<TokenId> sample(const std::vector<float>& logits, const SamplingParams& params,
                              const std::vector<TokenId>& tokens = {},
                              std::int64_t prompt_tokens = 0) {
  Sampler sampler(static_cast<std::int64_t>(logits.size()));
  return sampler.try_sample(logits, params, {tokens, prompt_tokens});
}

// The tokens of `draws` output positions.
std::vector<std::int64_t> histogram(const std::vector<float>& logits, const SamplingParams& params,
                                    std::int64_t draws) {
  Sampler sampler(static_cast<std::int64_t>(logits.size()));
  std::vector<std::int64_t> counts(logits.size());
  const std::vector<TokenId> output(static_cast<std::size_t>(draws), 0);
  for (std::int64_t n = 0; n < draws; ++n) {
    const std::span<const TokenId> so_far(output.data(), static_cast<std::size_t>(n));
    const auto token = sampler.try_sample(logits, params, {so_far, 0});
    ++counts[static_cast<std::size_t>(token.value())];
  }
  return counts;
}

// Chi-square of the counts; tokens of probability 0 must not occur.
double chi_square(const std::vector<std::int64_t>& counts,
                  const std::vector<double>& probabilities) {
  const auto draws =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  double result = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto count = static_cast<double>(counts[i]);
    const double wanted = probabilities[i] * draws;
    if (wanted == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i;
    } else {
      result += (count - wanted) * (count - wanted) / wanted;
    }
  }
  return result;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> result;
  double total = 0;
  for (const float logit : logits) total += result.emplace_back(std::exp(logit / temperature));
  for (double& probability : result) probability /= total;
  return result;
}

// The probabilities with only these tokens kept.
std::vector<double> restricted(std::vector<double> probabilities, const std::vector<int>& kept) {
  double total = 0;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    if (std::find(kept.begin(), kept.end(), static_cast<int>(i)) == kept.end())
      probabilities[i] = 0;
    total += probabilities[i];
  }
  for (double& probability : probabilities) probability /= total;
  return probabilities;
}

// Probabilities 0.4, 0.1, 0.3, 0.05, 0.15 at temperature 1.
const std::vector<float> kLogits = {std::log(0.4f), std::log(0.1f), std::log(0.3f), std::log(0.05f),
                                    std::log(0.15f)};
constexpr std::int64_t kDraws = 20'000;
// A chi-square of 4 degrees of freedom exceeds this once in a million.
constexpr double kChiSquareMax = 33.4;

TEST(SamplerGreedy, TakesTheMostLikelyAndTheLowestOfEquals) {
  EXPECT_EQ(sample({1, 3, 2}, {}), 1);
  EXPECT_EQ(sample({2, 3, 3, 3}, {}), 1);
  EXPECT_EQ(sample({-1}, {}), 0);
}

TEST(SamplerGreedy, NeedsNoSeed) {
  EXPECT_EQ(sample({1, 2}, SamplingParams{}), 1);
}

TEST(SamplerOddLogits, NanIsNeverChosen) {
  EXPECT_EQ(sample({kNan, -5, kNan}, {}), 1);
  EXPECT_EQ(histogram({kNan, 0, kNan}, sampled(1), 200)[1], 200);
}

TEST(SamplerOddLogits, MinusInfinityIsNeverChosen) {
  EXPECT_EQ(histogram({-kInfinity, 0, -kInfinity}, sampled(100), 200)[1], 200);
}

TEST(SamplerOddLogits, PlusInfinityIsCertainAndTheLowestIdOfSeveral) {
  EXPECT_EQ(sample({1, kInfinity, kInfinity, 2}, {}), 1);
  EXPECT_EQ(histogram({1, kInfinity, kInfinity, 2}, sampled(1), 100)[1], 100);
}

TEST(SamplerOddLogits, WithoutANumberThereIsNoToken) {
  EXPECT_EQ(sample({kNan, -kInfinity}, {}), std::nullopt);
  EXPECT_EQ(sample({kNan, kNan}, sampled(1)), std::nullopt);
}

TEST(SamplerOddLogits, ExtremeValuesDoNotOverflow) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(sample({-largest, largest}, sampled(1e-30f)), 1);
  EXPECT_TRUE(sample({-largest, largest}, sampled(largest)).has_value());
}

TEST(SamplerDistribution, FollowsTheSoftmax) {
  EXPECT_LT(chi_square(histogram(kLogits, sampled(1), kDraws), softmax(kLogits, 1)), kChiSquareMax);
}

TEST(SamplerDistribution, TemperatureDividesTheLogits) {
  for (const float temperature : {0.5f, 2.0f}) {
    EXPECT_LT(
        chi_square(histogram(kLogits, sampled(temperature), kDraws), softmax(kLogits, temperature)),
        kChiSquareMax)
        << temperature;
  }
}

TEST(SamplerDistribution, TopKKeepsTheMostLikely) {
  SamplingParams params = sampled(1);
  params.top_k = 3;
  const auto expected = restricted(softmax(kLogits, 1), {0, 2, 4});
  EXPECT_LT(chi_square(histogram(kLogits, params, kDraws), expected), kChiSquareMax);
}

TEST(SamplerDistribution, TopKSettlesTiesByTheLowerId) {
  SamplingParams params = sampled(1);
  params.top_k = 2;
  const auto counts = histogram({0, 1, 1, 1}, params, 1000);
  EXPECT_EQ(counts[0] + counts[3], 0);
  EXPECT_GT(std::min(counts[1], counts[2]), 300);
}

TEST(SamplerDistribution, TopKBeyondTheVocabularyKeepsAll) {
  SamplingParams params = sampled(1);
  params.top_k = 1000;
  EXPECT_LT(chi_square(histogram(kLogits, params, kDraws), softmax(kLogits, 1)), kChiSquareMax);
}

TEST(SamplerDistribution, TopKOfOneIsGreedy) {
  SamplingParams params = sampled(1);
  params.top_k = 1;
  EXPECT_EQ(histogram(kLogits, params, 100)[0], 100);
}

TEST(SamplerDistribution, TopPKeepsTheFewestThatReachIt) {
  SamplingParams params = sampled(1);
  params.top_p = 0.75f;  // 0.4 + 0.3 < 0.75 <= 0.4 + 0.3 + 0.15
  const auto expected = restricted(softmax(kLogits, 1), {0, 2, 4});
  EXPECT_LT(chi_square(histogram(kLogits, params, kDraws), expected), kChiSquareMax);
  params.top_p = 0.1f;
  EXPECT_EQ(histogram(kLogits, params, 100)[0], 100);
}

TEST(SamplerDistribution, TopPCountsWhatTopKLeft) {
  SamplingParams params = sampled(1);
  params.top_k = 2;      // 4/7 and 3/7 are left
  params.top_p = 0.57f;  // which the first reaches alone
  EXPECT_EQ(histogram(kLogits, params, 100)[0], 100);
}

TEST(SamplerDistribution, MinPKeepsAShareOfTheMostLikely) {
  SamplingParams params = sampled(1);
  params.min_p = 0.3f;  // of 0.4: at least 0.12
  const auto expected = restricted(softmax(kLogits, 1), {0, 2, 4});
  EXPECT_LT(chi_square(histogram(kLogits, params, kDraws), expected), kChiSquareMax);
  params.top_p = 0.99f;  // on the other path
  EXPECT_LT(chi_square(histogram(kLogits, params, kDraws), expected), kChiSquareMax);
}

TEST(SamplerPenalties, RepetitionDividesPositiveAndMultipliesNegativeLogits) {
  SamplingParams params;
  params.repetition_penalty = 2;
  EXPECT_EQ(sample({4, 3, 1}, params, {0}, 1), 1);        // 4 / 2 < 3; the prompt counts
  EXPECT_EQ(sample({4, 1.9f, 1}, params, {0}, 1), 0);     // 4 / 2 > 1.9
  EXPECT_EQ(sample({-1, -1.5f}, params, {0}, 0), 1);      // -1 · 2 < -1.5
  EXPECT_EQ(sample({4, 1.9f}, params, {0, 0, 0}, 1), 0);  // once, however often it occurs
}

TEST(SamplerPenalties, PresenceAndFrequencyCountTheOutputOnly) {
  SamplingParams params;
  params.presence_penalty = 1;
  EXPECT_EQ(sample({2, 1.5f}, params, {0}, 1), 0);
  EXPECT_EQ(sample({2, 1.5f}, params, {0}, 0), 1);
  EXPECT_EQ(sample({2, 0.5f}, params, {0, 0, 0}, 0), 0);
  params.presence_penalty = 0;
  params.frequency_penalty = 0.5f;
  EXPECT_EQ(sample({2, 0.7f}, params, {0, 0}, 0), 0);
  EXPECT_EQ(sample({2, 0.7f}, params, {0, 0, 0}, 0), 1);
}

// What would end the program is not met: a token outside of the vocabulary.
TEST(SamplerPenalties, DoNotLookAtAllOfALongPromptForEachToken) {
  Sampler sampler(3);
  const std::vector<float> logits = {4, 3, 1};
  const std::vector<TokenId> tokens = {0, 0, 99, 1};
  SamplingParams of_output;
  of_output.presence_penalty = 2;
  EXPECT_EQ(sampler.try_sample(logits, of_output, {tokens, 3}), 0);
  SamplingParams of_all;
  of_all.repetition_penalty = 5;
  const std::vector<TokenId> once = {0};
  EXPECT_EQ(sampler.try_sample(logits, of_all, {tokens, 3, once}), 2);
}

TEST(SamplerPenalties, DoNotLookAtAllOfALongOutputForEachToken) {
  Sampler sampler(3);
  const std::vector<float> logits = {4, 3, 1};
  const std::vector<TokenId> tokens = {0, 99, 0, 1};
  const std::vector<TokenCount> counts = {{0, 2}, {1, 1}};
  SamplingParams params;
  params.frequency_penalty = 1.6f;
  EXPECT_EQ(sampler.try_sample(logits, params, {tokens, 0, {}, counts}), 1);
}

TEST(SamplerPenalties, CountEachTokenOfAnOutputOnceInAList) {
  std::vector<TokenCount> counts;
  for (const TokenId token : {7, 3, 7, 7}) count_token(token, counts);
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(std::pair(counts[0].token, counts[0].count), std::pair(7, 3));
  EXPECT_EQ(std::pair(counts[1].token, counts[1].count), std::pair(3, 1));
}

TEST(SamplerPenalties, AreTheSameWhereTokensAreReadyOnce) {
  Prng prng(kSeed);
  Sampler sampler(20);
  for (int i = 0; i < 500; ++i) {
    std::vector<float> logits(20);
    for (float& logit : logits) logit = static_cast<float>(prng.unit() * 4 - 2);
    std::vector<TokenId> tokens(static_cast<std::size_t>(prng.below(40)));
    for (TokenId& token : tokens) token = static_cast<TokenId>(prng.below(20));
    const std::int64_t prompt = prng.below(std::ssize(tokens) + 1);
    const std::set<TokenId> distinct(tokens.begin(), tokens.begin() + prompt);
    const std::vector<TokenId> once(distinct.begin(), distinct.end());
    std::vector<TokenCount> counts;
    for (auto at = tokens.begin() + prompt; at != tokens.end(); ++at) count_token(*at, counts);
    SamplingParams params = sampled(1);
    params.repetition_penalty = 1.7f;
    params.presence_penalty = 0.5f;
    params.frequency_penalty = prng.below(2) == 0 ? 0.0f : 0.3f;
    EXPECT_EQ(sampler.try_sample(logits, params, {tokens, prompt, once, counts}),
              sampler.try_sample(logits, params, {tokens, prompt}));
  }
}

TEST(SamplerPenalties, LeaveNothingBehindForTheNextRequest) {
  SamplingParams penalized;
  penalized.presence_penalty = 2;
  Sampler sampler(2);
  const std::vector<float> logits = {2, 1};
  const std::vector<TokenId> tokens = {0, 0};
  EXPECT_EQ(sampler.try_sample(logits, penalized, {tokens, 0}), 1);
  EXPECT_EQ(sampler.try_sample(logits, penalized, {{}, 0}), 0);
  EXPECT_EQ(sampler.try_sample(logits, penalized, {tokens, 0}), 1);
}

TEST(SamplerBias, IsAddedToTheLogit) {
  SamplingParams params;
  params.logit_bias = {{2, 5.0f}, {0, -1.0f}};
  EXPECT_EQ(sample({3, 2, 0}, params), 2);
}

TEST(SamplerSeed, TheRandomNumberIsAFunctionOfSeedAndPosition) {
  EXPECT_EQ(sampling_unit(1, 5), sampling_unit(1, 5));
  EXPECT_NE(sampling_unit(1, 5), sampling_unit(1, 6));
  EXPECT_NE(sampling_unit(1, 5), sampling_unit(2, 5));
  double sum = 0;
  for (int n = 0; n < 10'000; ++n) {
    const double unit = sampling_unit(kSeed, n);
    ASSERT_GE(unit, 0);
    ASSERT_LT(unit, 1);
    sum += unit;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.015);
}

// Draws an output of `count` tokens, logits being a function of the tokens so far; a new Sampler
// from time to time stands for preemption, other requests' calls in between for a shared batch.
std::vector<TokenId> generate(std::int64_t count, std::int64_t fresh_sampler_every, bool shared) {
  constexpr std::int64_t kVocab = 50;
  SamplingParams params = sampled(0.8f);
  params.top_p = 0.9f;
  params.presence_penalty = 0.5f;
  std::vector<TokenId> tokens = {3, 1, 4};
  Sampler sampler(kVocab);
  Prng other(99);
  for (std::int64_t n = 0; n < count; ++n) {
    if (n % fresh_sampler_every == 0) sampler = Sampler(kVocab);
    std::vector<float> logits;
    Prng prng(static_cast<std::uint64_t>(tokens.back()));
    for (std::int64_t i = 0; i < kVocab; ++i) logits.push_back(static_cast<float>(prng.unit() * 4));
    if (shared) {
      SamplingParams others = sampled(1);
      others.seed = other();
      EXPECT_TRUE(sampler.try_sample(logits, others, {tokens, 0}).has_value());
    }
    tokens.push_back(sampler.try_sample(logits, params, {tokens, 3}).value());
  }
  return tokens;
}

TEST(SamplerSeed, TheSameTokensAfterPreemptionAndInAnyBatch) {
  const auto alone = generate(200, 1000, false);
  EXPECT_EQ(generate(200, 7, false), alone);
  EXPECT_EQ(generate(200, 1000, true), alone);
  EXPECT_EQ(generate(200, 1, true), alone);
}

// What try_sample promises, written down naively: sort, cut, draw.
TokenId naive(const std::vector<float>& logits, const SamplingParams& params, double unit) {
  std::vector<std::pair<double, TokenId>> ranked;
  const double top = *std::max_element(logits.begin(), logits.end());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    ranked.emplace_back(std::exp((static_cast<double>(logits[i]) - top) / params.temperature),
                        static_cast<TokenId>(i));
  }
  double total = 0;
  for (const auto& entry : ranked) total += entry.first;
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  if (params.top_k > 0) {
    ranked.resize(std::min(ranked.size(), static_cast<std::size_t>(params.top_k)));
    total = 0;
    for (const auto& entry : ranked) total += entry.first;
  }
  std::size_t kept = 0;
  double weight = 0;
  while (kept < ranked.size() && ranked[kept].first >= params.min_p && ranked[kept].first > 0 &&
         (params.top_p == 1 || weight < params.top_p * total)) {
    weight += ranked[kept++].first;
  }
  double reached = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    reached += ranked[i].first;
    if (reached > unit * weight) return ranked[i].second;
  }
  return ranked[kept - 1].second;
}

TEST(SamplerDistribution, AgreesWithTheNaiveDefinition) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng prng(kSeed);
  for (int round = 0; round < 3000; ++round) {
    std::vector<float> logits(static_cast<std::size_t>(1 + prng.below(40)));
    for (float& logit : logits) logit = static_cast<float>(prng.below(12)) * 0.5f;  // many ties
    SamplingParams params = sampled(0.25f + static_cast<float>(prng.unit()));
    params.seed = prng();
    params.top_k = prng.below(2) == 0 ? 0 : 2 + prng.below(40);
    params.top_p = params.top_k == 0 || prng.below(2) == 0
                       ? 0.05f + 0.9f * static_cast<float>(prng.unit())
                       : 1.0f;
    params.min_p = prng.below(2) == 0 ? 0 : static_cast<float>(prng.unit());
    const double unit = sampling_unit(*params.seed, 0);
    ASSERT_EQ(sample(logits, params), naive(logits, params, unit)) << "round " << round;
  }
}

// Of thousands of tokens that all count, as of a few.
TEST(SamplerDistribution, AgreesWithTheNaiveDefinitionOnFlatRows) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng prng(kSeed);
  for (int round = 0; round < 900; ++round) {
    std::vector<float> logits(static_cast<std::size_t>(1000 + prng.below(4000)));
    const double width = 8 * prng.unit();
    for (float& logit : logits) logit = static_cast<float>(width * (prng.unit() + prng.unit()));
    SamplingParams params = sampled(0.5f + 3 * static_cast<float>(prng.unit()));
    params.seed = prng();
    params.top_k = prng.below(3) == 0 ? 0 : 1 + prng.below(5000);
    const bool all = params.top_k > 0 && prng.below(2) == 0;
    params.top_p = all ? 1 : 0.01f + 0.98f * static_cast<float>(prng.unit());
    params.min_p = prng.below(2) == 0 ? 0 : 0.2f * static_cast<float>(prng.unit());
    const double unit = sampling_unit(*params.seed, 0);
    ASSERT_EQ(sample(logits, params), naive(logits, params, unit)) << "round " << round;
  }
}

TEST(SamplerDistribution, TopPLeavesWhatIsFarLessLikelyToo) {
  const std::vector<float> logits = {-200, 0, -300};
  SamplingParams params = sampled(1);
  params.top_p = std::nextafter(1.0f, 0.0f);
  EXPECT_EQ(histogram(logits, params, 100)[1], 100);
  params.temperature = 1e6f;  // 1/3 each, nearly
  for (const std::int64_t count : histogram(logits, params, 900)) EXPECT_GT(count, 200);
}

TEST(Sampler, OnlyAllowedTokensAreGiven) {
  const std::vector<float> logits = {9, 1, 3, 2};
  SamplingParams params;
  params.allowed_tokens = {3, 1};
  EXPECT_EQ(sample(logits, params), 3);
  params.logit_bias = {{0, 100.0F}};
  EXPECT_EQ(sample(logits, params), 3) << "no bias brings back what is not allowed";
  params.logit_bias = {{1, 5.0F}};
  EXPECT_EQ(sample(logits, params), 1);
  params.temperature = 1;
  params.seed = kSeed;
  params.logit_bias.clear();
  const auto counts = histogram(logits, params, 2'000);
  EXPECT_EQ(counts[0] + counts[2], 0);
  EXPECT_GT(counts[1], 0);
}

TEST(Sampler, WhatIsForbiddenIsNotGiven) {
  const std::vector<float> logits = {9, 1, 3, 2};
  const std::vector<TokenId> forbidden = {0, 2};
  Sampler sampler(4);
  EXPECT_EQ(sampler.try_sample(logits, {}, {}, {.forbidden = forbidden}), 3);
  EXPECT_EQ(sampler.try_sample(logits, {}, {}), 0) << "the next call is another";
  const std::vector<TokenId> all = {0, 1, 2, 3};
  EXPECT_EQ(sampler.try_sample(logits, {}, {}, {.forbidden = all}), std::nullopt);
}

// Allows tokens by the bits of a word.
class WordConstraint final : public OutputConstraint {
 public:
  WordConstraint(std::uint64_t word, bool ends) : word_(word), ends_(ends) {}
  std::unique_ptr<OutputConstraint> clone() const override {
    return std::make_unique<WordConstraint>(*this);
  }
  std::span<const std::uint64_t> allowed() override { return {&word_, 1}; }
  bool may_end() override { return ends_; }
  bool is_whole() override { return ends_ && word_ == 0; }
  void accept(TokenId /*token*/) override {}

 private:
  std::uint64_t word_;
  bool ends_;
};

TEST(Sampler, OnlyWhatAConstraintAllowsIsGiven) {
  const std::vector<float> logits = {9, 1, 3, 2};
  Sampler sampler(4);
  WordConstraint constraint(0b1010, /*ends=*/false);
  EXPECT_EQ(sampler.try_sample(logits, {}, {}, {.constraint_or_null = &constraint}), 3);
  SamplingParams biased;
  biased.logit_bias = {{0, 100.0F}, {1, 5.0F}};
  EXPECT_EQ(sampler.try_sample(logits, biased, {}, {.constraint_or_null = &constraint}), 1);
  WordConstraint nothing(0, /*ends=*/false);
  EXPECT_EQ(sampler.try_sample(logits, {}, {}, {.constraint_or_null = &nothing}), std::nullopt);
}

TEST(Sampler, AnEndIsGivenWhereTheConstraintMayEnd) {
  const std::vector<float> logits = {9, 1, 3, 2};
  const std::vector<TokenId> ends = {0};
  Sampler sampler(4);
  WordConstraint goes_on(0b1000, /*ends=*/false);
  EXPECT_EQ(sampler.try_sample(logits, {}, {}, {{}, &goes_on, ends}), 3);
  WordConstraint may_end(0b1000, /*ends=*/true);
  EXPECT_EQ(sampler.try_sample(logits, {}, {}, {{}, &may_end, ends}), 0);
  EXPECT_EQ(sampler.try_sample(logits, {}, {}, {ends, &may_end, ends}), 3);
}

// A tokenizer whose end token is no special one spells it, and a text may have it anywhere.
TEST(Sampler, AnEndThatIsTextIsGivenNowhereElse) {
  const std::vector<float> logits = {9, 1, 3, 2};
  const std::vector<TokenId> ends = {0};
  Sampler sampler(4);
  WordConstraint goes_on(0b1001, /*ends=*/false);
  EXPECT_EQ(sampler.try_sample(logits, {}, {}, {{}, &goes_on, ends}), 3);
  WordConstraint may_end(0b1001, /*ends=*/true);
  EXPECT_EQ(sampler.try_sample(logits, {}, {}, {{}, &may_end, ends}), 0);
}

// With 70 tokens there are two words.
TEST(Sampler, WordsThatAreMissingAllowNothing) {
  std::vector<float> logits(70);
  logits[5] = 1;
  logits[69] = 2;
  Sampler sampler(70);
  WordConstraint constraint(~std::uint64_t{0}, /*ends=*/false);
  EXPECT_EQ(sampler.try_sample(logits, {}, {}, {.constraint_or_null = &constraint}), 5);
}

std::string error_of(const SamplingParams& params) {
  const Status status = params.validate(/*vocab_tokens=*/10);
  return status.ok() ? "" : status.error().detail;
}

TEST(SamplingParamsRange, ErrorsNameTheField) {
  using ::testing::HasSubstr;
  EXPECT_EQ(error_of({}), "");
  EXPECT_THAT(error_of({.temperature = -1}),
              HasSubstr("temperature must be a number of at least 0"));
  EXPECT_THAT(error_of({.temperature = kNan}), HasSubstr("temperature"));
  EXPECT_THAT(error_of({.temperature = kInfinity}), HasSubstr("temperature"));
  EXPECT_THAT(error_of({.top_k = -1}), HasSubstr("top_k"));
  EXPECT_THAT(error_of({.top_p = 0}), HasSubstr("top_p"));
  EXPECT_THAT(error_of({.top_p = 1.01f}), HasSubstr("top_p"));
  EXPECT_THAT(error_of({.min_p = -0.1f}), HasSubstr("min_p"));
  EXPECT_THAT(error_of({.repetition_penalty = 0}), HasSubstr("repetition_penalty"));
  EXPECT_THAT(error_of({.presence_penalty = 3}), HasSubstr("presence_penalty"));
  EXPECT_THAT(error_of({.frequency_penalty = kNan}), HasSubstr("frequency_penalty"));
  EXPECT_THAT(error_of({.logit_bias = {{10, 1.0f}}}), HasSubstr("logit_bias"));
  EXPECT_THAT(error_of({.logit_bias = {{1, kInfinity}}}), HasSubstr("logit_bias"));
  EXPECT_THAT(error_of({.allowed_tokens = {1, 10}}), HasSubstr("allowed_tokens"));
}

TEST(SamplingParamsRange, ErrorsTellWholeNumbersAsSuch) {
  constexpr TokenId kLast = std::numeric_limits<TokenId>::max();
  EXPECT_EQ(error_of({.top_k = std::numeric_limits<std::int64_t>::min()}),
            "top_k must be at least 0, which means all (got -9223372036854775808)");
  EXPECT_EQ(error_of({.logit_bias = {{kLast, 1.0f}}}),
            "logit_bias must be for tokens of the vocabulary (got 2147483647)");
  EXPECT_EQ(error_of({.allowed_tokens = {-1}}),
            "allowed_tokens must be tokens of the vocabulary (got -1)");
}

}  // namespace
}  // namespace stemma
