// Latent attention: absorbed queries compare with the pool's rows as every head's own q and k do,
// values are those of W_UV; a row's bits are its own.
#include "model/latent_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "model/rope.h"

namespace stemma {
namespace {

constexpr std::int64_t kHidden = 56;
constexpr std::int64_t kHeads = 3;
constexpr std::int64_t kRows = 40;
constexpr float kEpsilon = 1e-6F;

using Values = std::vector<float>;
using Exact = std::vector<double>;

// What a matrix [n, x.size()] makes of x, from row `first` on, `rows` of them.
Exact times(const Values& matrix, const Exact& x, std::int64_t first, std::int64_t rows) {
  Exact out;
  for (std::int64_t row = first; row < first + rows; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum += static_cast<double>(matrix[static_cast<std::size_t>(row) * x.size() + i]) * x[i];
    }
    out.push_back(sum);
  }
  return out;
}

Exact normalised(Exact x, const Values& weight) {
  double squares = 0;
  for (const double value : x) {
    squares += value * value;
  }
  const double scale =
      1.0 / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(kEpsilon));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] *= scale * static_cast<double>(weight[i]);
  }
  return x;
}

double dot(const Exact& a, const Exact& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

// A layer of random weights, whose q has a rank or none.
class Layer {
 public:
  explicit Layer(std::int64_t query_rank) : random_(21), rope_(RopeConfig{}, 8) {
    config.rank = 24;
    config.query_rank = query_rank;
    config.plain_dim = 12;
    config.rope_dim = 8;
    config.value_dim = 20;
    ThreadPool one(1);
    const std::int64_t queries = kHeads * config.query_head_dim();
    if (query_rank > 0) {
      query_down = pack(weights.query_down, query_rank, kHidden, one);
      weights.query_norm = draw(query_rank);
    }
    query_up = pack(weights.query_up, queries, query_rank > 0 ? query_rank : kHidden, one);
    latent_down = pack(weights.latent_down, config.row_dim(), kHidden, one);
    weights.latent_norm = draw(config.rank);
    heads_up = draw(kHeads * (config.plain_dim + config.value_dim) * config.rank);
    const Status split =
        split_heads(std::as_bytes(std::span(heads_up)), WeightType::kF32, config, one, weights);
    STEMMA_CHECK(split.ok(), "the weights fit");
    hidden = draw(kRows * kHidden);
  }

  // The rows of q and of the pool, and the values of what was attended: of rows [first, first +
  // count), all of them at their places.
  struct Computed {
    Values queries, keys, values;
  };
  Computed compute(std::int64_t first, std::int64_t count, int threads) {
    ThreadPool pool(threads);
    const auto attention = LatentAttention::create(
        {.config = config, .heads = kHeads, .rows_max = kRows, .threads = pool});
    STEMMA_CHECK(attention.ok(), "the scratch fits");
    Values cosines, sines;
    for (std::int64_t row = first; row < first + count; ++row) {
      Values cosine(4), sine(4);
      rope_.angles(row, cosine, sine);
      cosines.insert(cosines.end(), cosine.begin(), cosine.end());
      sines.insert(sines.end(), sine.begin(), sine.end());
    }
    Computed out;
    out.queries.resize(static_cast<std::size_t>(count * kHeads * config.row_dim()));
    out.keys.resize(static_cast<std::size_t>(count * config.row_dim()));
    const Rows in = {hidden.data() + first * kHidden, kHidden};
    const Rows cosine_rows = {cosines.data(), 4};
    const Rows sine_rows = {sines.data(), 4};
    const LatentAttention::Angles angles = {cosine_rows, sine_rows};
    (*attention)
        ->write_queries(weights, in, count, angles,
                        {out.queries.data(), kHeads * config.row_dim()});
    (*attention)->write_keys(weights, in, count, angles, {out.keys.data(), config.row_dim()});
    Values attended = attended_of(out, count);
    const Rows& values =
        (*attention)->values(weights, {attended.data(), kHeads * config.rank}, count);
    out.values.assign(values.values, values.values + count * kHeads * config.value_dim);
    return out;
  }

  LatentConfig config;
  LatentWeights weights;
  Values query_down, query_up, latent_down, heads_up, hidden;

 private:
  Values draw(std::int64_t count) {
    Values values(static_cast<std::size_t>(count));
    for (float& value : values) {
      value = static_cast<float>(random_.unit() - 0.5);
    }
    return values;
  }
  Values pack(PackedWeights& packed, std::int64_t n, std::int64_t k, ThreadPool& pool) {
    Values values = draw(n * k);
    packed = PackedWeights::pack(values.data(), WeightType::kF32, n, k, pool).value();
    return values;
  }
  // As if each row attended to itself alone: its latent row, once for each head.
  Values attended_of(const Computed& computed, std::int64_t count) const {
    Values attended;
    for (std::int64_t row = 0; row < count; ++row) {
      const auto latent = computed.keys.begin() + row * config.row_dim();
      for (std::int64_t head = 0; head < kHeads; ++head) {
        attended.insert(attended.end(), latent, latent + config.rank);
      }
    }
    return attended;
  }

  Prng random_;
  Rope rope_;
};

// One token's q, k and v of a head by the published definition.
struct Published {
  Exact query, key, value;
};

Exact turned(Exact x, std::int64_t position) {
  for (std::size_t pair = 0; pair < x.size() / 2; ++pair) {
    const double angle =
        static_cast<double>(position) *
        std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(x.size()));
    const double a = x[2 * pair];
    const double b = x[2 * pair + 1];
    x[2 * pair] = a * std::cos(angle) - b * std::sin(angle);
    x[2 * pair + 1] = a * std::sin(angle) + b * std::cos(angle);
  }
  return x;
}

Published published(const Layer& layer, std::int64_t row, std::int64_t head) {
  const LatentConfig& config = layer.config;
  const auto begin = layer.hidden.begin() + row * kHidden;
  const Exact x(begin, begin + kHidden);
  const Exact source =
      config.query_rank == 0
          ? x
          : normalised(times(layer.query_down, x, 0, config.query_rank), layer.weights.query_norm);
  const std::int64_t query_begin = head * config.query_head_dim();
  Published out;
  out.query = times(layer.query_up, source, query_begin, config.plain_dim);
  const Exact query_turned =
      turned(times(layer.query_up, source, query_begin + config.plain_dim, config.rope_dim), row);
  out.query.insert(out.query.end(), query_turned.begin(), query_turned.end());
  const Exact latent =
      normalised(times(layer.latent_down, x, 0, config.rank), layer.weights.latent_norm);
  const std::int64_t up_begin = head * (config.plain_dim + config.value_dim);
  out.key = times(layer.heads_up, latent, up_begin, config.plain_dim);
  const Exact key_turned = turned(times(layer.latent_down, x, config.rank, config.rope_dim), row);
  out.key.insert(out.key.end(), key_turned.begin(), key_turned.end());
  out.value = times(layer.heads_up, latent, up_begin + config.plain_dim, config.value_dim);
  return out;
}

class LatentAttentionTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  Layer layer_{GetParam()};
};

TEST_P(LatentAttentionTest, ComparesAndSaysWhatEveryHeadWould) {
  const auto computed = layer_.compute(0, kRows, 2);
  const std::int64_t row_dim = layer_.config.row_dim();
  const std::int64_t value_dim = layer_.config.value_dim;
  for (std::int64_t head = 0; head < kHeads; ++head) {
    for (const std::int64_t row : {0, 1, 17, 39}) {
      const Published at_row = published(layer_, row, head);
      const auto query = computed.queries.begin() + (row * kHeads + head) * row_dim;
      for (const std::int64_t other : {0, 5, 38}) {
        const auto key = computed.keys.begin() + other * row_dim;
        const double score = dot(Exact(query, query + row_dim), Exact(key, key + row_dim));
        EXPECT_NEAR(score, dot(at_row.query, published(layer_, other, head).key), 1e-5);
      }
      for (std::int64_t i = 0; i < value_dim; ++i) {
        EXPECT_NEAR(
            computed.values[static_cast<std::size_t>((row * kHeads + head) * value_dim + i)],
            at_row.value[static_cast<std::size_t>(i)], 1e-5);
      }
    }
  }
}

TEST_P(LatentAttentionTest, ARowsBitsAreItsOwn) {
  const auto together = layer_.compute(0, kRows, 3);
  const auto expect_part = [](const Values& part, const Values& whole, std::int64_t first) {
    const std::size_t skipped = static_cast<std::size_t>(first) * whole.size() / kRows;
    ASSERT_EQ(std::memcmp(part.data(), whole.data() + skipped, part.size() * sizeof(float)), 0);
  };
  for (const auto& [first, count] : {std::pair{0, 1}, std::pair{39, 1}, std::pair{7, 25}}) {
    const auto alone = layer_.compute(first, count, 1);
    expect_part(alone.queries, together.queries, first);
    expect_part(alone.keys, together.keys, first);
    expect_part(alone.values, together.values, first);
  }
}

INSTANTIATE_TEST_SUITE_P(QueryRank, LatentAttentionTest, ::testing::Values(0, 16));

}  // namespace
}  // namespace stemma
