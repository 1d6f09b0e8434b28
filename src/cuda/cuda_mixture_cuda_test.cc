// CudaMixture: what the CPU's Mixture says to the same rows, and bits of a row that are the same
// alone and in any batch, whatever tiles compute it.
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/float16.h"
#include "base/prng.h"
#include "cuda/cuda_mixture.h"
#include "device/cuda_fixture.h"
#include "model/expert_choice.h"
#include "model/mixture.h"

namespace stemma {
namespace {

using Choice = MixtureConfig::Choice;
using Values = std::vector<float>;

constexpr std::int64_t kHidden = 72;
constexpr std::int64_t kWidth = 40;
constexpr std::int64_t kExperts = 4;
constexpr std::int64_t kRowsMax = 110;

float rounded(float value, WeightType type) {
  if (type == WeightType::kBf16) return to_float(to_bfloat16(value));
  return type == WeightType::kF16 ? to_float(to_float16(value)) : value;
}

// What the type holds exactly.
Values random_values(std::int64_t count, double reach, WeightType type, Prng& random) {
  Values values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = rounded(static_cast<float>(reach * (2 * random.unit() - 1)), type);
  }
  return values;
}

// Matrices whose outputs have about the variance of their inputs, in the order of the layout.
struct RandomExperts {
  RandomExperts(WeightType type, Prng& random)
      : router(random_values(kExperts * kHidden, 0.4, type, random)),
        gate_up(random_values(kExperts * 2 * kWidth * kHidden, 0.2, type, random)),
        down(random_values(kExperts * kHidden * kWidth, 0.3, type, random)) {}

  Values router;
  Values gate_up;
  Values down;
  Values correction;
};

MixtureConfig config_of(Choice choice) {
  MixtureConfig config;
  config.experts = kExperts;
  config.experts_per_token = 2;
  config.width = kWidth;
  config.choice = choice;
  config.layers = {true};
  if (choice == Choice::kSoftmax) {
    config.normalised = true;
  } else {
    config.groups = 2;
    config.groups_per_token = 1;
    config.scaling = 1.5;
  }
  return config;
}

// Each row's distance, as a share of what is expected.
void expect_near_rows(const Values& got, const Values& expected, double share) {
  for (std::size_t begin = 0; begin < got.size(); begin += kHidden) {
    double squares = 0;
    double differences = 0;
    for (std::size_t i = begin; i < begin + kHidden; ++i) {
      squares += double{expected[i]} * expected[i];
      differences += std::pow(double{got[i]} - expected[i], 2);
    }
    EXPECT_LT(std::sqrt(differences / squares), share) << "row " << begin / kHidden;
  }
}

class CudaMixtureTest : public CudaFixture {
 protected:
  void TearDown() override {
    mixture_.reset();
    memory_.clear();
    CudaFixture::TearDown();
  }

  // A mixture of random experts, on the GPU.
  void make(Choice choice, WeightType type) {
    Prng random(21);
    type_ = type;
    config_ = config_of(choice);
    experts_.emplace(type, random);
    if (choice == Choice::kCorrectedGroups) {
      experts_->correction = random_values(kExperts, 0.2, WeightType::kF32, random);
      weights_.correction = reinterpret_cast<const float*>(keep(upload(experts_->correction)));
    }
    weights_.router = {keep(upload_typed(experts_->router)), type};
    weights_.gate_up = {keep(upload_typed(experts_->gate_up)), type};
    weights_.down = {keep(upload_typed(experts_->down)), type};
    auto mixture = CudaMixture::create({.config = config_,
                                        .hidden = kHidden,
                                        .rows_max = kRowsMax,
                                        .type = type,
                                        .device = device(),
                                        .stream = stream()});
    ASSERT_TRUE(mixture.ok());
    mixture_ = std::move(mixture).value();
  }

  Values random_rows(std::int64_t rows, std::uint64_t seed) const {
    Prng random(seed);
    return random_values(rows * kHidden, 1.7, type_, random);
  }

  // On top of `before`, or of nothing.
  Values said(const Values& rows, const Values& before = {}) {
    const CudaMemory in = upload_typed(rows);
    const CudaMemory out = before.empty() ? allocate<float>(rows.size()) : upload(before);
    const Status queued = queue(in, out, std::ssize(rows) / kHidden, before.empty());
    EXPECT_TRUE(queued.ok()) << queued.error().detail;
    return download<float>(out.bytes(), rows.size());
  }
  Status queue(const CudaMemory& in, const CudaMemory& out, std::int64_t rows,
               bool from_zero = true) {
    return mixture_->add(weights_, {in.bytes(), out.as<float>(), rows, from_zero});
  }

  Values said_by_cpu(Values rows) const {
    ThreadPool threads(1);
    MixtureWeights weights;
    weights.router = pack(experts_->router.data(), kExperts, kHidden);
    weights.correction = experts_->correction;
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      const float* const gate_up = &experts_->gate_up[at(expert * 2 * kWidth * kHidden)];
      MlpWeights& own = weights.experts.emplace_back();
      own.gate = pack(gate_up, kWidth, kHidden);
      own.up = pack(gate_up + kWidth * kHidden, kWidth, kHidden);
      own.down = pack(&experts_->down[at(expert * kHidden * kWidth)], kHidden, kWidth);
    }
    auto mixture = Mixture::create(
        {.config = config_, .hidden = kHidden, .rows_max = kRowsMax, .threads = threads});
    STEMMA_CHECK(mixture.ok(), "the scratch fits");
    Values gate(at(kRowsMax * kWidth));
    Values up(gate.size());
    const MlpScratch scratch = {{gate.data(), kWidth}, {up.data(), kWidth}};
    const Rows& sum = (*mixture)->compute(weights, Rows{rows.data(), kHidden},
                                          std::ssize(rows) / kHidden, scratch);
    return {sum.values, sum.values + rows.size()};
  }

  CudaMemory upload_typed(const Values& values) {
    if (type_ == WeightType::kF32) return upload(values);
    std::vector<std::uint16_t> bits;
    for (const float value : values) {
      bits.push_back(type_ == WeightType::kBf16 ? to_bfloat16(value).bits : to_float16(value).bits);
    }
    return upload(bits);
  }

  // The same in double, with the choice of the CPU's scores, rounded where the GPU rounds.
  Values said_in_double(const Values& rows) const {
    Values all;
    for (std::int64_t row = 0; row < std::ssize(rows) / kHidden; ++row) {
      const float* const x = &rows[at(row * kHidden)];
      std::vector<double> sum(at(kHidden), 0.0);
      for (const ExpertShare& share : choice_of(x)) {
        const std::int64_t expert = share.expert;
        const auto inner = inner_row(x, &experts_->gate_up[at(expert * 2 * kWidth * kHidden)]);
        const float* const down = &experts_->down[at(expert * kHidden * kWidth)];
        for (std::int64_t i = 0; i < kHidden; ++i) {
          sum[at(i)] += share.weight * dot(down + i * kWidth, inner.data(), kWidth);
        }
      }
      all.insert(all.end(), sum.begin(), sum.end());
    }
    return all;
  }

 private:
  static double dot(const float* a, const float* b, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += double{a[i]} * b[i];
    return sum;
  }

  std::vector<ExpertShare> choice_of(const float* x) const {
    Values scores;
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      const float* const router = &experts_->router[at(expert * kHidden)];
      scores.push_back(static_cast<float>(dot(router, x, kHidden)));
    }
    Values keys(scores.size());
    Values group_keys(at(config_.groups));
    std::vector<std::int32_t> ranked(scores.size());
    std::vector<ExpertShare> chosen(at(config_.experts_per_token));
    choose_experts(config_, experts_->correction, {scores, keys, group_keys, ranked}, chosen);
    return chosen;
  }

  // silu(gate) × up, each of them rounded.
  Values inner_row(const float* x, const float* gate_up) const {
    const auto rounded_dot = [&](std::int64_t column) {
      const double sum = dot(gate_up + column * kHidden, x, kHidden);
      return double{rounded(static_cast<float>(sum), type_)};
    };
    Values inner;
    for (std::int64_t i = 0; i < kWidth; ++i) {
      const double gate = rounded_dot(i);
      const double value = gate / (1 + std::exp(-gate)) * rounded_dot(kWidth + i);
      inner.push_back(rounded(static_cast<float>(value), type_));
    }
    return inner;
  }

  static std::size_t at(std::int64_t place) { return static_cast<std::size_t>(place); }

  static PackedWeights pack(const float* values, std::int64_t n, std::int64_t k) {
    ThreadPool threads(1);
    auto packed = PackedWeights::pack(values, WeightType::kF32, n, k, threads);
    STEMMA_CHECK(packed.ok(), "the weights fit");
    return std::move(packed).value();
  }

  const std::byte* keep(CudaMemory memory) {
    memory_.push_back(std::move(memory));
    return memory_.back().bytes();
  }

  WeightType type_ = WeightType::kF32;
  MixtureConfig config_;
  std::optional<RandomExperts> experts_;
  CudaMixtureWeights weights_;
  std::vector<CudaMemory> memory_;
  std::unique_ptr<CudaMixture> mixture_;
};

// Sums of 72 and 40 f32 products in another order, whose roundings gate and exponential carry on;
// only a tie within them could send a row elsewhere.
TEST_F(CudaMixtureTest, SaysWhatTheCpuSays) {
  for (const Choice choice : {Choice::kSoftmax, Choice::kSoftmaxGroups, Choice::kCorrectedGroups}) {
    make(choice, WeightType::kF32);
    const Values rows = random_rows(13, 22);
    expect_near_rows(said(rows), said_by_cpu(rows), std::ldexp(std::sqrt(72.0), -24));
  }
}

// As above; and where a value lies between two of 16 bits, the order of its sum may decide which of
// them it becomes: a few of the 40 values in each of three rows, one unit each.
TEST_F(CudaMixtureTest, Of16BitsWhatIsBetweenTheProductsIsRounded) {
  for (const auto& [type, unit] : {std::pair{WeightType::kBf16, std::ldexp(1.0, -8)},
                                   {WeightType::kF16, std::ldexp(1.0, -11)}}) {
    make(Choice::kCorrectedGroups, type);
    const Values rows = random_rows(13, 22);
    expect_near_rows(said(rows), said_in_double(rows), unit * std::sqrt(3.0 / 40));
  }
}

// Alone a row has tiles of 16 rows, with some others of 64, with all of 128.
TEST_F(CudaMixtureTest, BitsOfARowDoNotDependOnWhoElseIsThere) {
  make(Choice::kSoftmax, WeightType::kBf16);
  const Values all = random_rows(kRowsMax, 23);
  const Values together = said(all);
  for (const auto& [first, rows] : {std::pair{0, 1}, {3, 15}, {70, 40}, {109, 1}}) {
    const auto begin = all.begin() + first * kHidden;
    const Values part = said(Values(begin, begin + rows * kHidden));
    EXPECT_EQ(std::memcmp(part.data(), &together[static_cast<std::size_t>(first * kHidden)],
                          part.size() * sizeof(float)),
              0)
        << rows << " rows from " << first;
  }
}

TEST_F(CudaMixtureTest, WhatSharedExpertsSaidComesFirst) {
  make(Choice::kCorrectedGroups, WeightType::kF32);
  const Values rows = random_rows(5, 24);
  const Values shared = random_rows(5, 25);
  const Values alone = said(rows);
  const Values both = said(rows, shared);
  for (std::size_t i = 0; i < both.size(); ++i) {
    EXPECT_NEAR(both[i], shared[i] + alone[i], 3e-6) << i;  // some roundings of values up to 8
  }
}

// The choice of the batch that is computed, not of the one that was recorded.
TEST_F(CudaMixtureTest, ARecordedStepChoosesAnew) {
  make(Choice::kSoftmax, WeightType::kBf16);
  const Values rows = random_rows(6, 26);
  const Values expected = said(rows);
  const CudaMemory in = allocate<BFloat16>(rows.size());  // no numbers yet
  const CudaMemory out = allocate<float>(rows.size());
  ASSERT_TRUE(stream().begin_recording().ok());
  const Status queued = queue(in, out, 6);
  auto graph = stream().end_recording();
  ASSERT_TRUE(queued.ok() && graph.ok());
  ASSERT_TRUE(stream().replay(*graph).ok());
  const CudaMemory later = upload_typed(rows);
  ASSERT_TRUE(stream().copy(in.bytes(), later.bytes(), in.size_bytes()).ok());
  ASSERT_TRUE(stream().replay(*graph).ok());
  EXPECT_EQ(download<float>(out.bytes(), rows.size()), expected);
}

}  // namespace
}  // namespace stemma
