// CudaLatent: the rows of q and of the pool, and the heads' values, that the CPU's latent attention
// computes from the same weights; bits of a row that are its own.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/float16.h"
#include "base/prng.h"
#include "cuda/cuda_latent.h"
#include "cuda/cuda_runner_fixture.h"
#include "model/latent_attention.h"
#include "model/rope.h"

namespace stemma {
namespace {

constexpr std::int64_t kRows = 19;
constexpr std::int64_t kRopeDim = 8;
using Values = std::vector<float>;

ModelConfig config_of(std::int64_t query_rank) {
  ModelConfig config;
  config.hidden = 56;
  config.query_heads = 3;
  config.kv_heads = 1;
  config.latent = {.rank = 24,
                   .query_rank = query_rank,
                   .plain_dim = 16,
                   .rope_dim = kRopeDim,
                   .value_dim = 21};  // odd: a head's values begin anywhere
  config.head_dim = config.latent.row_dim();
  config.norm_epsilon = 1e-2;  // of the other norms: these have their own
  return config;
}

// What a layer computes, and from what; matrices as files have them, of values that bf16 holds.
struct Layer {
  explicit Layer(const ModelConfig& of, std::uint64_t seed) : config(of), random(seed) {
    const LatentConfig& latent = config.latent;
    const std::int64_t query = config.query_heads * latent.query_head_dim();
    down = draw((latent.query_rank + latent.row_dim()) * config.hidden);
    down_bias = draw(latent.query_rank + latent.row_dim());
    query_norm = draw(latent.query_rank);
    latent_norm = draw(latent.rank);
    query_up = draw(query * (latent.query_rank > 0 ? latent.query_rank : config.hidden));
    heads_up = draw(config.query_heads * (latent.plain_dim + latent.value_dim) * latent.rank);
    hidden = draw(kRows * config.hidden);
    attended = draw(kRows * config.attended_columns());
  }

  Values draw(std::int64_t count) {
    Values values(static_cast<std::size_t>(count));
    for (float& value : values) value = to_float(to_bfloat16(float(random.unit() - 0.5)));
    return values;
  }

  ModelConfig config;
  Prng random;
  Values down, down_bias, query_norm, latent_norm, query_up, heads_up, hidden, attended;
};

// Of rows one behind the other.
struct Computed {
  Values queries, kept, values;
};

Computed on_cpu(Layer& layer) {
  const ModelConfig& config = layer.config;
  const LatentConfig& latent = config.latent;
  ThreadPool threads(2);
  const auto pack = [&](const float* values, std::int64_t outputs, std::int64_t inputs) {
    return PackedWeights::pack(values, WeightType::kF32, outputs, inputs, threads).value();
  };
  LatentWeights weights;
  const std::int64_t query = config.query_heads * latent.query_head_dim();
  const auto split = layer.down_bias.begin() + latent.query_rank;
  if (latent.query_rank > 0) {
    weights.query_down = pack(layer.down.data(), latent.query_rank, config.hidden);
    weights.query_down_bias = {layer.down_bias.begin(), split};
    weights.query_norm = layer.query_norm;
  }
  weights.query_up =
      pack(layer.query_up.data(), query, latent.query_rank > 0 ? latent.query_rank : config.hidden);
  weights.latent_down =
      pack(layer.down.data() + latent.query_rank * config.hidden, latent.row_dim(), config.hidden);
  weights.latent_down_bias = {split, layer.down_bias.end()};
  weights.latent_norm = layer.latent_norm;
  const auto matrix = std::as_bytes(std::span(layer.heads_up));
  STEMMA_CHECK(split_heads(matrix, WeightType::kF32, latent, threads, weights).ok(), "it fits");
  auto attention = LatentAttention::create(
      {.config = latent, .heads = config.query_heads, .rows_max = kRows, .threads = threads});
  STEMMA_CHECK(attention.ok(), "it fits");
  Values cosines(kRows * kRopeDim / 2);
  Values sines(cosines.size());
  const Rope rope(config.rope, kRopeDim);
  for (std::size_t row = 0; row < kRows; ++row) {
    constexpr std::size_t kPairs = kRopeDim / 2;
    rope.angles(static_cast<std::int64_t>(row), std::span(cosines).subspan(row * kPairs, kPairs),
                std::span(sines).subspan(row * kPairs, kPairs));
  }
  const Rows turn_cosines = {cosines.data(), kRopeDim / 2};
  const Rows turn_sines = {sines.data(), kRopeDim / 2};
  const Rows in = {layer.hidden.data(), config.hidden};
  Computed computed;
  computed.queries.resize(static_cast<std::size_t>(kRows * config.query_columns()));
  computed.kept.resize(static_cast<std::size_t>(kRows * latent.row_dim()));
  (*attention)
      ->write_queries(weights, in, kRows, {turn_cosines, turn_sines},
                      {computed.queries.data(), config.query_columns()});
  (*attention)
      ->write_keys(weights, in, kRows, {turn_cosines, turn_sines},
                   {computed.kept.data(), latent.row_dim()});
  const Rows& values =
      (*attention)->values(weights, {layer.attended.data(), config.attended_columns()}, kRows);
  computed.values.assign(values.values, values.values + kRows * config.value_columns());
  return computed;
}

class CudaLatentTest : public CudaFixture, public ::testing::WithParamInterface<std::int64_t> {
 protected:
  Layer layer_{config_of(GetParam()),
               static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed())};

  CudaMemory upload_as(WeightType type, const Values& values) {
    if (type == WeightType::kF32) return upload(values);
    std::vector<BFloat16> narrow;
    for (const float value : values) narrow.push_back(to_bfloat16(value));
    return upload(narrow);
  }
  CudaMemory poisoned(WeightType type, std::int64_t count) {
    return allocate<std::byte>(static_cast<std::size_t>(count) * weight_type_bytes(type));
  }
  Values download_as(WeightType type, const CudaMemory& memory, std::int64_t count) {
    const auto values = static_cast<std::size_t>(count);
    if (type == WeightType::kF32) return download<float>(memory.bytes(), values);
    Values wide;
    for (const BFloat16 value : download<BFloat16>(memory.bytes(), values)) {
      wide.push_back(to_float(value));
    }
    return wide;
  }

  // Rows [first, first + count) of the layer's.
  Computed on_gpu(WeightType type, std::int64_t first, std::int64_t count) {
    const ModelConfig& config = layer_.config;
    const auto rows_of = [&](const Values& values, std::int64_t columns) {
      const auto begin = values.begin() + first * columns;
      return upload_as(type, {begin, begin + count * columns});
    };
    ThreadPool threads(2);
    const CudaMemory whole = upload_as(type, layer_.heads_up);
    const auto heads = download<std::byte>(whole.bytes(), whole.size_bytes());
    const CudaMemory heads_up = upload(parted_heads(heads, type, config.latent, threads));
    const CudaMemory down = upload_as(type, layer_.down);
    const CudaMemory down_bias = upload(layer_.down_bias);
    const CudaMemory query_norm = upload(layer_.query_norm);
    const CudaMemory latent_norm = upload(layer_.latent_norm);
    const CudaMemory query_up = upload_as(type, layer_.query_up);
    const CudaLatentWeights weights = {.down = {down.bytes(), type},
                                       .down_bias = down_bias.as<float>(),
                                       .query_norm = query_norm.as<float>(),
                                       .latent_norm = latent_norm.as<float>(),
                                       .query_up = {query_up.bytes(), type},
                                       .heads_up = {heads_up.bytes(), type}};
    const CudaMemory normed = rows_of(layer_.hidden, config.hidden);
    const CudaMemory attended = rows_of(layer_.attended, config.attended_columns());
    const CudaMemory angles = upload(angle_table());
    std::vector<std::int32_t> places;
    for (std::int64_t row = first; row < first + count; ++row) {
      places.push_back(static_cast<std::int32_t>(row));
    }
    const CudaMemory positions = upload(places);
    const CudaMemory query = poisoned(type, count * config.query_columns());
    const auto gemm = make_ordered_gemm(stream());
    CudaAdapters none({.layers = 1,
                       .rows_max = kRows,
                       .type = type,
                       .device = device(),
                       .stream = stream(),
                       .threads = threads});
    auto latent = CudaLatent::create({.config = config,
                                      .type = type,
                                      .rows_max = kRows,
                                      .device = device(),
                                      .stream = stream(),
                                      .gemm = *gemm,
                                      .adapters = none});
    EXPECT_TRUE(latent.ok());
    EXPECT_TRUE((*latent)
                    ->write_rows(weights, {.normed = normed.bytes(),
                                           .angles = angles.as<float>(),
                                           .positions = positions.as<std::int32_t>(),
                                           .query = query.bytes(),
                                           .rows = count})
                    .ok());
    EXPECT_TRUE(stream().copy((*latent)->attended(), attended.bytes(), attended.size_bytes()).ok());
    const CudaMemory values = poisoned(type, count * config.value_columns());
    EXPECT_TRUE((*latent)->write_values(weights, count, values.bytes()).ok());
    Computed computed;
    computed.queries = download_as(type, query, count * config.query_columns());
    computed.kept = download_kept((*latent)->stored_rows(count));
    computed.values = download_as(type, values, count * config.value_columns());
    return computed;
  }

 private:
  Values angle_table() const {
    Values table;
    const Rope rope(layer_.config.rope, kRopeDim);
    for (std::int64_t position = 0; position < kRows; ++position) {
      Values cosines(kRopeDim / 2);
      Values sines(kRopeDim / 2);
      rope.angles(position, cosines, sines);
      for (std::size_t pair = 0; pair < cosines.size(); ++pair) {
        table.insert(table.end(), {cosines[pair], sines[pair]});
      }
    }
    return table;
  }
  Values download_kept(const KvRows& rows) {
    Values kept;
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      const auto part =
          download<float>(static_cast<const float*>(rows.elements) + row * rows.row_stride,
                          static_cast<std::size_t>(rows.head_dim));
      kept.insert(kept.end(), part.begin(), part.end());
    }
    return kept;
  }
};

// Sums of up to 56 terms of f32, three one after another; of bf16 at most three roundings of
// 2^-9 each (the compressed q, heads, what is compared), of rows that are kept none.
TEST_P(CudaLatentTest, RowsAreThoseOfTheCpu) {
  const Computed expected = on_cpu(layer_);
  const Computed exact = on_gpu(WeightType::kF32, 0, kRows);
  constexpr double kSums = 0x1p-24 * 3 * 8;
  EXPECT_LT(relative_distance(expected.queries, exact.queries), kSums);
  EXPECT_LT(relative_distance(expected.kept, exact.kept), kSums);
  EXPECT_LT(relative_distance(expected.values, exact.values), kSums);
  const Computed rounded = on_gpu(WeightType::kBf16, 0, kRows);
  EXPECT_LT(relative_distance(expected.queries, rounded.queries), std::sqrt(3.0) * 0x1p-9);
  EXPECT_LT(relative_distance(expected.kept, rounded.kept), kSums);
  EXPECT_LT(relative_distance(expected.values, rounded.values), 0x1p-9);
}

TEST_P(CudaLatentTest, ARowsBitsAreItsOwn) {
  const auto expect_part = [](const Values& part, const Values& whole, std::int64_t first) {
    const std::size_t skipped = static_cast<std::size_t>(first) * whole.size() / kRows;
    ASSERT_EQ(std::memcmp(part.data(), whole.data() + skipped, part.size() * sizeof(float)), 0);
  };
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    const Computed together = on_gpu(type, 0, kRows);
    for (const auto& [first, count] : {std::pair{0, 1}, std::pair{18, 1}, std::pair{7, 9}}) {
      const Computed alone = on_gpu(type, first, count);
      expect_part(alone.queries, together.queries, first);
      expect_part(alone.kept, together.kept, first);
      expect_part(alone.values, together.values, first);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(QueryRank, CudaLatentTest, ::testing::Values(0, 16));

}  // namespace
}  // namespace stemma
