// Sampling on a GPU: against intervals of the unit in long double, against Sampler, and where both
// are known by hand. Tolerance of an interval's ends: what sample_cuda.h states for the rounding of
// weights, columns × 2^-46 + 2^-44.
#include "cuda/sample_cuda.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/prng.h"
#include "cuda/rows_cuda.h"
#include "device/cuda_fixture.h"
#include "model/sampler.h"

namespace stemma {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLastUnit = 1.0 - 0x1p-53;

// Bell-shaped, as logits are; none is above 6 × spread.
std::vector<float> random_logits(std::size_t count, std::uint64_t seed, float spread = 3.0f) {
  Prng random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += random.unit();
    logit = spread * static_cast<float>(sum);
  }
  return logits;
}

struct Weighed {
  std::int32_t token;
  long double weight;
};

std::vector<Weighed> weighed(std::span<const float> logits, float temperature) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::vector<Weighed> tokens;
  for (const float logit : logits) {
    const long double distance = static_cast<long double>(logit) - largest;
    tokens.push_back({static_cast<std::int32_t>(tokens.size()), std::exp(distance / temperature)});
  }
  return tokens;
}

long double sum_of(std::span<const Weighed> tokens) {
  long double sum = 0;
  for (const Weighed& token : tokens) sum += token.weight;
  return sum;
}

// What the rules leave, in the order in which it is drawn. REQUIRES: logits are numbers.
std::vector<Weighed> kept_tokens(std::span<const float> logits, const RowSampling& sampling) {
  std::vector<Weighed> tokens = weighed(logits, sampling.temperature);
  if (sampling.top_k > 0 || sampling.top_p < 1) {
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const Weighed& a, const Weighed& b) { return a.weight > b.weight; });
    const auto top_k = static_cast<std::size_t>(sampling.top_k);
    if (top_k > 0 && top_k < tokens.size()) tokens.resize(top_k);
    const long double wanted = sum_of(tokens) * sampling.top_p;
    long double reached = 0;
    std::size_t count = 0;
    while (count < tokens.size() && (sampling.top_p == 1 || reached < wanted)) {
      reached += tokens[count++].weight;
    }
    tokens.resize(count);
  }
  std::erase_if(tokens, [&](const Weighed& token) { return token.weight < sampling.min_p; });
  return tokens;
}

// The unit lies in the token's interval.
void expect_right(std::span<const float> logits, const RowSampling& sampling, std::int32_t token) {
  const std::vector<Weighed> tokens = kept_tokens(logits, sampling);
  const long double sum = sum_of(tokens);
  const long double tolerance = static_cast<long double>(logits.size()) * 0x1p-46L + 0x1p-44L;
  long double reached = 0;
  for (const Weighed& kept : tokens) {
    const long double begin = reached / sum;
    reached += kept.weight;
    if (kept.token != token) continue;
    EXPECT_GE(sampling.unit, begin - tolerance);
    EXPECT_LT(sampling.unit, reached / sum + tolerance);
    return;
  }
  ADD_FAILURE() << "token " << token << " was cut off";
}

std::vector<RowSampling> with_units(const RowSampling& sampling, std::span<const double> units) {
  std::vector<RowSampling> rows(units.size(), sampling);
  for (std::size_t i = 0; i < units.size(); ++i) rows[i].unit = units[i];
  return rows;
}

// The middles of `count` equal parts of [0, 1).
std::vector<double> middles(std::size_t count) {
  std::vector<double> units;
  for (std::size_t i = 0; i < count; ++i) {
    units.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(count));
  }
  return units;
}

class SampleCudaTest : public CudaFixture {
 protected:
  // One token for each of `rows`, from [rows, columns] logits.
  std::vector<std::int32_t> sample(const std::vector<float>& logits,
                                   const std::vector<RowSampling>& rows) {
    const CudaMemory device_logits = upload(logits);
    const CudaMemory sampling = upload(rows);
    const CudaMemory tokens = allocate<std::int32_t>(rows.size());
    const Status sampled =
        sample_rows(stream(), {.logits = device_logits.as<float>(),
                               .sampling = sampling.as<RowSampling>(),
                               .tokens = tokens.as<std::int32_t>(),
                               .rows = static_cast<std::int64_t>(rows.size()),
                               .columns = static_cast<std::int64_t>(logits.size() / rows.size())});
    EXPECT_TRUE(sampled.ok());
    return download<std::int32_t>(tokens.bytes(), rows.size());
  }

  // The same logits for all of `rows`.
  std::vector<std::int32_t> sample_each(const std::vector<float>& logits,
                                        const std::vector<RowSampling>& rows) {
    std::vector<float> all;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return sample(all, rows);
  }

  // Rows of such logits, with units at both ends and in between, have right tokens.
  void expect_all_right(std::size_t columns, const RowSampling& sampling, float spread = 3.0f) {
    SCOPED_TRACE(testing::Message()
                 << columns << " columns, temperature " << sampling.temperature << ", top_k "
                 << sampling.top_k << ", top_p " << sampling.top_p << ", min_p " << sampling.min_p);
    const std::vector<double> units = {0, 0.07, 0.31, 0.5, 0.77, 0.93, 0.999, kLastUnit};
    const std::vector<RowSampling> rows = with_units(sampling, units);
    const std::vector<float> logits = random_logits(rows.size() * columns, ++seed_, spread);
    const std::vector<std::int32_t> tokens = sample(logits, rows);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      expect_right(std::span(logits).subspan(row * columns, columns), rows[row], tokens[row]);
    }
  }

 private:
  std::uint64_t seed_ = 0;
};

constexpr std::size_t kWidths[] = {1, 7, 129, 1000, 4096};

TEST_F(SampleCudaTest, TemperatureAloneGivesEachTokenItsProbability) {
  for (const std::size_t columns : kWidths) {
    for (const float temperature : {0.3f, 1.0f, 2.5f}) {
      expect_all_right(columns, {.temperature = temperature});
    }
  }
}

TEST_F(SampleCudaTest, TopKLeavesTheMostLikelyTokens) {
  for (const std::size_t columns : kWidths) {
    for (const std::int32_t top_k : {2, 5, 40, 5000}) {
      expect_all_right(columns, {.temperature = 1.5f, .top_k = top_k});
    }
  }
}

TEST_F(SampleCudaTest, TopPLeavesTheFewestTokensThatReachIt) {
  for (const std::size_t columns : kWidths) {
    for (const float top_p : {0.01f, 0.5f, 0.9f, 0.9999f}) {
      expect_all_right(columns, {.temperature = 1.2f, .top_p = top_p});
    }
  }
}

TEST_F(SampleCudaTest, MinPLeavesWhatIsLikelyEnough) {
  for (const std::size_t columns : kWidths) {
    for (const float min_p : {0.02f, 0.3f, 1.0f}) {
      expect_all_right(columns, {.temperature = 1.7f, .min_p = min_p});
    }
  }
}

TEST_F(SampleCudaTest, AllRulesTogetherAreAppliedInTheirOrder) {
  for (const std::size_t columns : kWidths) {
    expect_all_right(columns, {.temperature = 1.0f, .top_k = 20, .top_p = 0.9f});
    expect_all_right(columns, {.temperature = 2.0f, .top_k = 50, .top_p = 0.8f, .min_p = 0.05f});
    expect_all_right(columns, {.temperature = 0.7f, .top_k = 300, .min_p = 0.01f});
    expect_all_right(columns, {.temperature = 1.4f, .top_p = 0.95f, .min_p = 0.001f});
  }
}

TEST_F(SampleCudaTest, TemperaturesAtTheirEndsHaveAMeaning) {
  for (const float temperature : {1e-45f, 1e-3f, 40.0f, 1e6f}) {
    expect_all_right(129, {.temperature = temperature});
    expect_all_right(1000, {.temperature = temperature, .top_k = 9, .top_p = 0.7f});
  }
}

TEST_F(SampleCudaTest, LogitsFarApartOrCloseTogetherAreTakenAsTheyAre) {
  for (const float spread : {1e-6f, 1e-3f, 100.0f, 1e30f}) {
    expect_all_right(1000, {.temperature = 1.0f}, spread);
    expect_all_right(1000, {.temperature = 1.0f, .top_k = 30, .top_p = 0.99f}, spread);
  }
}

// Each next to the other: bins are narrowed until they hold one.
TEST_F(SampleCudaTest, NeighbouringNumbersKeepTheirRanks) {
  std::vector<float> logits(500);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i * 7 % 500] = 1.0f + static_cast<float>(i) * 0x1p-23f;
  }
  const auto tokens =
      sample_each(logits, with_units({.temperature = 1.0f, .top_k = 20}, middles(20)));
  std::vector<std::int32_t> expected;
  for (std::int32_t rank = 0; rank < 20; ++rank) expected.push_back((499 - rank) * 7 % 500);
  EXPECT_EQ(tokens, expected);
}

TEST_F(SampleCudaTest, AWholeVocabularyIsSampledAsASmallOneIs) {
  constexpr std::size_t kVocab = 128256;
  const std::vector<float> logits = random_logits(kVocab, 77);
  const std::vector<RowSampling> rows = {
      {.temperature = 1.0f, .unit = 0.9},
      {.temperature = 1.0f, .top_p = 0.95f, .unit = 0.99},
      {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .min_p = 0.01f, .unit = 0.6}};
  const auto tokens = sample_each(logits, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) expect_right(logits, rows[i], tokens[i]);
}

TEST_F(SampleCudaTest, AVocabularyThatFourDoesNotDivideIsSampledToo) {
  constexpr std::size_t kVocab = 92001;
  const std::vector<float> logits = random_logits(2 * kVocab, 78);
  const std::vector<RowSampling> rows = {{.temperature = 1.0f, .unit = 0.3},
                                         {.temperature = 1.0f, .top_p = 0.9f, .unit = 0.8}};
  const auto tokens = sample(logits, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    expect_right(std::span(logits).subspan(i * kVocab, kVocab), rows[i], tokens[i]);
  }
}

// Their intervals differ by some 2^-45, so that a unit between them is not met.
TEST_F(SampleCudaTest, TheTokensAreThoseOfSampler) {
  constexpr std::size_t kColumns = 517;
  constexpr std::size_t kRows = 400;
  Prng random(5);
  Sampler sampler(kColumns);
  std::vector<RowSampling> rows(kRows);
  std::vector<TokenId> expected;
  const std::vector<float> logits = random_logits(kRows * kColumns, 6);
  for (std::size_t i = 0; i < kRows; ++i) {
    SamplingParams params;
    params.temperature = 0.2f + 2.0f * static_cast<float>(random.unit());
    if (random.below(2) == 0) params.top_k = 1 + random.below(60);
    if (random.below(2) == 0) params.top_p = 0.2f + 0.79f * static_cast<float>(random.unit());
    if (random.below(2) == 0) params.min_p = 0.2f * static_cast<float>(random.unit());
    params.seed = random();
    rows[i] = {params.temperature, static_cast<std::int32_t>(params.top_k), params.top_p,
               params.min_p, sampling_unit(*params.seed, 0)};
    const auto token =
        sampler.try_sample(std::span(logits).subspan(i * kColumns, kColumns), params, {});
    expected.push_back(token.value_or(-1));
  }
  EXPECT_EQ(sample(logits, rows), expected);
}

TEST_F(SampleCudaTest, OfTheTokensThatTieForTheLastPlaceTheLowerIdsAreLeft) {
  std::vector<float> logits(64, -2.0f);
  logits[50] = 1.0f;
  for (const std::size_t tied : {60u, 3u, 21u, 40u, 33u}) logits[tied] = 0.5f;
  const auto tokens =
      sample_each(logits, with_units({.temperature = 1000.0f, .top_k = 4}, middles(4)));
  EXPECT_THAT(tokens, ElementsAre(50, 3, 21, 33));
}

TEST_F(SampleCudaTest, OfTheTokensThatTieWhereTopPIsReachedTheLowerIdsAreLeft) {
  std::vector<float> logits(96, -kInfinity);
  for (const std::size_t tied : {90u, 17u, 44u, 5u, 61u, 8u, 70u, 30u}) logits[tied] = 2.0f;
  const auto tokens =
      sample_each(logits, with_units({.temperature = 0.5f, .top_p = 0.5f}, middles(4)));
  EXPECT_THAT(tokens, ElementsAre(5, 8, 17, 30));
}

TEST_F(SampleCudaTest, EqualLogitsAreDrawnInTheOrderOfTheirIds) {
  const std::vector<float> logits(250, -7.25f);
  std::vector<std::int32_t> all(250);
  std::iota(all.begin(), all.end(), 0);
  const auto first = [&](std::ptrdiff_t count) {
    return std::vector<std::int32_t>(all.begin(), all.begin() + count);
  };
  EXPECT_EQ(sample_each(logits, with_units({.temperature = 1.0f}, middles(250))), all);
  EXPECT_EQ(sample_each(logits, with_units({.temperature = 1.0f, .min_p = 1.0f}, middles(250))),
            all);
  EXPECT_EQ(sample_each(logits, with_units({.temperature = 0.1f, .top_k = 9}, middles(9))),
            first(9));
  // 0.2f is above 1 / 5
  EXPECT_EQ(sample_each(logits, with_units({.temperature = 1.0f, .top_p = 0.2f}, middles(51))),
            first(51));
}

TEST_F(SampleCudaTest, WhatIsNoNumberIsNeverDrawn) {
  std::vector<float> logits(300, kNan);
  logits[0] = -kInfinity;
  for (const std::size_t number : {2u, 150u, 299u}) logits[number] = 1.0f;
  for (const RowSampling& sampling :
       {RowSampling{.temperature = 1.0f}, RowSampling{.temperature = 1.0f, .top_k = 200},
        RowSampling{.temperature = 1.0f, .top_p = 0.99f}}) {
    EXPECT_THAT(sample_each(logits, with_units(sampling, middles(3))), ElementsAre(2, 150, 299));
  }
}

TEST_F(SampleCudaTest, PlusInfinityIsCertain) {
  std::vector<float> logits = random_logits(200, 9);
  logits[7] = kNan;
  logits[120] = logits[33] = kInfinity;
  for (const std::int32_t top_k : {0, 10}) {
    const auto rows = with_units({.temperature = 2.0f, .top_k = top_k}, middles(3));
    EXPECT_THAT(sample_each(logits, rows), Each(33));
  }
}

TEST_F(SampleCudaTest, ARowWithoutANumberHasNoToken) {
  const std::vector<RowSampling> rows = {
      {}, {.temperature = 1.0f, .unit = 0.5}, {.temperature = 1.0f, .top_k = 5, .top_p = 0.5f}};
  EXPECT_THAT(sample_each({-kInfinity, kNan, -kInfinity}, rows), Each(-1));
}

TEST_F(SampleCudaTest, WithoutTemperatureTheTokenIsThatOfTopRows) {
  constexpr std::size_t kColumns = 1003;
  constexpr std::size_t kRows = 6;
  std::vector<float> logits = random_logits(kRows * kColumns, 10);
  logits[900] = logits[400] = 90.0f;
  for (std::size_t i = kColumns; i < 2 * kColumns; ++i) logits[i] = i % 2 == 0 ? 0.0f : -0.0f;
  std::fill_n(logits.begin() + 2 * kColumns, kColumns, kNan);
  logits[3 * kColumns + 5] = kNan;
  logits[3 * kColumns + 6] = kInfinity;
  for (std::size_t i = 4 * kColumns; i < 5 * kColumns; ++i)
    logits[i] = -std::abs(logits[i]) - 1e30f;
  std::vector<RowSampling> rows(kRows, {.top_k = 7, .top_p = 0.4f, .min_p = 0.1f, .unit = 0.9});
  rows[5] = {.temperature = 1.0f, .top_k = 1, .unit = 0.9};
  const CudaMemory device_logits = upload(logits);
  const CudaMemory tokens = allocate<std::int32_t>(kRows);
  ASSERT_TRUE(top_rows(stream(), {.logits = device_logits.as<float>(),
                                  .tokens = tokens.as<std::int32_t>(),
                                  .rows = kRows,
                                  .columns = kColumns})
                  .ok());
  EXPECT_EQ(sample(logits, rows), download<std::int32_t>(tokens.bytes(), kRows));
}

TEST_F(SampleCudaTest, ARowsTokenIsTheSameAloneAndInABatch) {
  constexpr std::size_t kColumns = 333;
  constexpr std::size_t kRows = 12;
  const std::vector<float> logits = random_logits(kRows * kColumns, 11);
  std::vector<RowSampling> rows = with_units({.temperature = 1.5f}, middles(kRows));
  for (std::size_t i = 0; i < kRows; i += 2) rows[i].top_p = 0.97f;
  for (std::size_t i = 0; i < kRows; i += 3) rows[i].top_k = 100;
  const auto batch = sample(logits, rows);
  for (std::size_t i = 0; i < kRows; ++i) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(i * kColumns);
    EXPECT_THAT(sample({begin, begin + kColumns}, {rows[i]}), ElementsAre(batch[i]));
  }
}

TEST_F(SampleCudaTest, ARecordedDrawReadsTheParametersWhenItIsReplayed) {
  constexpr std::size_t kColumns = 500;
  const std::vector<float> logits = random_logits(2 * kColumns, 12);
  const CudaMemory device_logits = upload(logits);
  const CudaMemory sampling = upload(std::vector<RowSampling>(2));
  const CudaMemory tokens = allocate<std::int32_t>(2);
  ASSERT_TRUE(stream().begin_recording().ok());
  ASSERT_TRUE(sample_rows(stream(), {.logits = device_logits.as<float>(),
                                     .sampling = sampling.as<RowSampling>(),
                                     .tokens = tokens.as<std::int32_t>(),
                                     .rows = 2,
                                     .columns = kColumns})
                  .ok());
  auto graph = stream().end_recording();
  ASSERT_TRUE(graph.ok());
  for (const RowSampling& with : {RowSampling{.temperature = 1.0f, .unit = 0.4},
                                  RowSampling{.temperature = 2.0f, .top_k = 30, .unit = 0.8},
                                  RowSampling{}, RowSampling{.temperature = 1.0f, .top_p = 0.6f}}) {
    const std::vector<RowSampling> rows = {with,
                                           {.temperature = 3.0f, .unit = 1 - with.unit / 2 - 0.1}};
    PinnedMemory pinned = pinned_bytes(2 * sizeof(RowSampling));
    std::memcpy(pinned.bytes(), rows.data(), 2 * sizeof(RowSampling));
    ASSERT_TRUE(stream().copy_in(sampling.bytes(), pinned.bytes(), 2 * sizeof(RowSampling)).ok());
    ASSERT_TRUE(stream().replay(graph.value()).ok());
    const auto replayed = download<std::int32_t>(tokens.bytes(), 2);
    EXPECT_EQ(replayed, sample(logits, rows));
  }
}

TEST_F(SampleCudaTest, NoRowsAreNoWorkAndNoColumnsAreRefused) {
  EXPECT_TRUE(sample_rows(stream(), {.rows = 0, .columns = 10}).ok());
  EXPECT_FALSE(sample_rows(stream(), {.rows = 1, .columns = 0}).ok());
}

}  // namespace
}  // namespace stemma
