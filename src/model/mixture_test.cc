// Mixture: what it computes is what its experts say, weighed and added; a row's bits are the same
// alone, in any batch and on any number of threads. Under an adapter it is what merged matrices
// give, and other rows keep their bits.
#include "model/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/prng.h"

namespace stemma {
namespace {

constexpr std::int64_t kHidden = 40;
constexpr std::int64_t kRowsMax = 100;

using Values = std::vector<float>;

Values random_values(std::int64_t count, Prng& random) {
  Values values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = static_cast<float>(2.0 * random.unit() - 1.0);
  }
  return values;
}

// A mixture of eight experts, its weights unpacked too.
class Trial {
 public:
  struct Mlp {
    Values gate, up, down;
  };

  explicit Trial(std::int64_t shared_width) {
    Prng random(5);
    config.experts = 8;
    config.experts_per_token = 3;
    config.width = 24;
    config.shared_width = shared_width;
    config.layers = {true};
    router = random_values(config.experts * kHidden, random);
    weights.router = pack(router, config.experts, kHidden);
    for (std::int64_t i = 0; i < config.experts; ++i) {
      experts.push_back(random_mlp(config.width, random));
      weights.experts.push_back(pack(experts.back(), config.width));
    }
    if (shared_width > 0) {
      shared = random_mlp(shared_width, random);
      weights.shared = pack(shared, shared_width);
    }
  }

  // What the mixture says to `rows`.   [rows, kHidden]
  Values compute(Values rows, int threads, const LayerAdapters& adapters = {}) {
    ThreadPool pool(threads);
    auto mixture = Mixture::create(
        {.config = config, .hidden = kHidden, .rows_max = kRowsMax, .threads = pool});
    STEMMA_CHECK(mixture.ok(), "the scratch fits");
    MlpScratch scratch;
    const std::int64_t inner = std::max(config.width, config.shared_width);
    const RowsWanted wanted[] = {{scratch.gate, kRowsMax, inner}, {scratch.up, kRowsMax, inner}};
    const auto buffer = allocate_rows(wanted);
    STEMMA_CHECK(buffer.ok(), "the scratch fits");
    const auto count = static_cast<std::int64_t>(rows.size()) / kHidden;
    const Rows& said =
        (*mixture)->compute(weights, Rows{rows.data(), kHidden}, count, scratch, adapters);
    return {said.values, said.values + count * kHidden};
  }

  MixtureConfig config;
  MixtureWeights weights;
  Values router;
  std::vector<Mlp> experts;
  Mlp shared;

  static PackedWeights pack(const Values& values, std::int64_t n, std::int64_t k) {
    ThreadPool pool(1);
    auto packed = PackedWeights::pack(values.data(), WeightType::kF32, n, k, pool);
    STEMMA_CHECK(packed.ok(), "the weights fit");
    return std::move(packed).value();
  }

 private:
  static Mlp random_mlp(std::int64_t width, Prng& random) {
    return {random_values(width * kHidden, random), random_values(width * kHidden, random),
            random_values(width * kHidden, random)};
  }
  static MlpWeights pack(const Mlp& mlp, std::int64_t width) {
    MlpWeights packed;
    packed.gate = pack(mlp.gate, width, kHidden);
    packed.up = pack(mlp.up, width, kHidden);
    packed.down = pack(mlp.down, kHidden, width);
    return packed;
  }
};

double dot(const Values& matrix, std::size_t row, const std::vector<double>& x) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += static_cast<double>(matrix[row * x.size() + i]) * x[i];
  }
  return sum;
}

std::vector<double> mlp_in_double(const Trial::Mlp& mlp, const std::vector<double>& x) {
  std::vector<double> inner;
  for (std::size_t i = 0; i < mlp.gate.size() / x.size(); ++i) {
    const double gate = dot(mlp.gate, i, x);
    inner.push_back(gate / (1.0 + std::exp(-gate)) * dot(mlp.up, i, x));
  }
  std::vector<double> out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    out.push_back(dot(mlp.down, i, inner));
  }
  return out;
}

std::vector<double> mixture_in_double(const Trial& trial, const std::vector<double>& x) {
  std::vector<std::pair<double, std::size_t>> scores;
  double total = 0;
  for (std::size_t i = 0; i < trial.experts.size(); ++i) {
    scores.push_back({std::exp(dot(trial.router, i, x)), i});
    total += scores.back().first;
  }
  std::sort(scores.rbegin(), scores.rend());
  std::vector<double> out(x.size(), 0.0);
  if (trial.config.shared_width > 0) {
    out = mlp_in_double(trial.shared, x);
  }
  for (std::int64_t rank = 0; rank < trial.config.experts_per_token; ++rank) {
    const auto& [score, expert] = scores[static_cast<std::size_t>(rank)];
    const auto said = mlp_in_double(trial.experts[expert], x);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] += score / total * said[i];
    }
  }
  return out;
}

class MixtureTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  Trial trial_{GetParam()};
};

TEST_P(MixtureTest, SaysWhatItsExpertsSay) {
  Prng random(7);
  const Values rows = random_values(20 * kHidden, random);
  const Values said = trial_.compute(rows, 2);
  for (std::size_t row = 0; row < 20; ++row) {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row) * kHidden;
    const auto expected = mixture_in_double(trial_, {begin, begin + kHidden});
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(said[row * kHidden + i], expected[i], 2e-5);
    }
  }
}

TEST_P(MixtureTest, ARowsBitsAreItsOwn) {
  Prng random(9);
  const Values rows = random_values(kRowsMax * kHidden, random);
  const Values together = trial_.compute(rows, 3);
  for (const std::int64_t batch : {1, 2, 7, 31}) {
    SCOPED_TRACE(batch);
    for (std::int64_t first = 0; first < kRowsMax; first += batch) {
      const std::int64_t count = std::min(batch, kRowsMax - first);
      const auto begin = rows.begin() + first * kHidden;
      const Values alone = trial_.compute({begin, begin + count * kHidden}, 1);
      ASSERT_EQ(std::memcmp(alone.data(), together.data() + first * kHidden,
                            alone.size() * sizeof(float)),
                0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(SharedWidth, MixtureTest, ::testing::Values(0, 56));

// One request has an adapter of the router, of some experts and of the shared ones; another has
// none.
class AdaptedMixtureTest : public MixtureTest {
 protected:
  static constexpr std::int64_t kRank = 3;
  static constexpr std::int32_t kAdaptedRows = 20;
  static constexpr std::int32_t kRows = 32;

  void SetUp() override {
    adapter_.resize(1);
    Adapter::Layer& layer = adapter_[0].layers.emplace_back();
    const MixtureConfig& config = trial_.config;
    change(merged_.router, config.experts,
           layer.changes[static_cast<std::size_t>(Projection::kRouter)]);
    if (config.shared_width > 0) change(merged_.shared, config.shared_width, layer.changes.data());
    layer.experts.resize(static_cast<std::size_t>(config.experts));
    for (const std::size_t expert : {1u, 2u, 6u}) {
      change(merged_.experts[expert], config.width, layer.experts[expert].data());
    }
    ASSERT_TRUE(pass_.use(adapter_).ok());
  }

  // Draws a change of `matrix` [outputs, ..], and adds it there.
  void change(Values& matrix, std::int64_t outputs, LowRank& to) {
    const auto inputs = static_cast<std::int64_t>(matrix.size()) / outputs;
    const Values down = random_values(kRank * inputs, random_);
    const Values up = random_values(outputs * kRank, random_);
    to = {0.3f, Trial::pack(down, kRank, inputs), Trial::pack(up, outputs, kRank)};
    for (std::int64_t at = 0; at < std::ssize(matrix); ++at) {
      for (std::int64_t r = 0; r < kRank; ++r) {
        matrix[static_cast<std::size_t>(at)] +=
            0.3f * up[static_cast<std::size_t>(at / inputs * kRank + r)] *
            down[static_cast<std::size_t>(r * inputs + at % inputs)];
      }
    }
  }
  void change(Trial::Mlp& mlp, std::int64_t width, LowRank* of_gate) {
    change(mlp.gate, width, of_gate[0]);
    change(mlp.up, width, of_gate[1]);
    change(mlp.down, kHidden, of_gate[2]);
  }

  // Plans a batch of so many rows of each.
  LayerAdapters adapters_of(std::int32_t adapted, std::int32_t plain) {
    tokens_.assign(static_cast<std::size_t>(adapted + plain), 0);
    indptr_ = {0, adapted, adapted + plain};
    KvBatch batch;
    batch.tokens = tokens_;
    batch.row_indptr = indptr_;
    batch.adapters = ids_;
    pass_.plan(batch);
    return {&pass_, 0};
  }

  Prng random_{11};
  Trial merged_{GetParam()};
  std::vector<Adapter> adapter_;
  ThreadPool threads_{2};
  AdapterPass pass_{{.rows_max = kRowsMax, .requests_max = 2, .threads = threads_}};
  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> indptr_;
  const std::vector<AdapterId> ids_ = {AdapterId(0), AdapterId()};
  const Values rows_ = random_values(kRows * kHidden, random_);
};

TEST_P(AdaptedMixtureTest, SaysWhatMergedMatricesSay) {
  const Values said = trial_.compute(rows_, 2, adapters_of(kAdaptedRows, kRows - kAdaptedRows));
  for (std::size_t row = 0; row < kAdaptedRows; ++row) {
    const auto begin = rows_.begin() + static_cast<std::ptrdiff_t>(row) * kHidden;
    const auto expected = mixture_in_double(merged_, {begin, begin + kHidden});
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double allowed = 1e-5 * (10 + std::abs(expected[i]));
      EXPECT_NEAR(said[row * kHidden + i], expected[i], allowed);
    }
  }
}

TEST_P(AdaptedMixtureTest, ARowsBitsAreItsOwnWithAnAdapterAndWithout) {
  const Values together = trial_.compute(rows_, 2, adapters_of(kAdaptedRows, kRows - kAdaptedRows));
  const Values plain = trial_.compute(rows_, 2);
  for (std::int32_t row = 0; row < kRows; ++row) {
    const bool is_adapted = row < kAdaptedRows;
    const auto begin = rows_.begin() + row * kHidden;
    const Values alone = trial_.compute({begin, begin + kHidden}, 1,
                                        adapters_of(is_adapted ? 1 : 0, is_adapted ? 0 : 1));
    const auto same = [&](const Values& all) {
      return std::memcmp(alone.data(), all.data() + row * kHidden, kHidden * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(together)) << row;
    EXPECT_EQ(same(plain), !is_adapted) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(SharedWidth, AdaptedMixtureTest, ::testing::Values(0, 56));

}  // namespace
}  // namespace stemma
