// CudaRunnerFixture: a tiny random model on disk, runners of it on the GPU of the tests, and what
// they compute.
//
// Thread:     a test's.
// Memory:     the model's, on disk and on the GPU.
// Cost:       on the emulated GPU about a millisecond a row and layer.
// Not here:   what is expected of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "base/temp_directory.h"
#include "cuda/cuda_runner.h"
#include "device/cuda_fixture.h"
#include "model/calibration_fixture.h"
#include "model/model_runner.h"
#include "model/random_model.h"
#include "model/runner_trial.h"
#include "pool/cuda_pool.h"
#include "pool/kv_pool_factory.h"

namespace stemma {

inline void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& got) {
  ASSERT_EQ(expected.size(), got.size());
  EXPECT_EQ(std::memcmp(expected.data(), got.data(), expected.size() * sizeof(float)), 0);
}

// How far logits lie apart: the root of the mean square, as a share of the logits' own.
inline double relative_distance(const std::vector<float>& expected, const std::vector<float>& got) {
  EXPECT_EQ(expected.size(), got.size());
  double squares = 0;
  double differences = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    squares += double{expected[i]} * expected[i];
    differences += (double{got[i]} - expected[i]) * (double{got[i]} - expected[i]);
  }
  return std::sqrt(differences / squares);
}

// The same of each row of logits of a text, ascending.
inline std::vector<double> distances_of_rows(const std::vector<float>& expected,
                                             const std::vector<float>& got, std::int64_t rows) {
  const auto columns = std::ssize(expected) / rows;
  const auto row_of = [&](const std::vector<float>& logits, std::int64_t row) {
    return std::vector<float>(logits.begin() + row * columns, logits.begin() + (row + 1) * columns);
  };
  std::vector<double> distances;
  for (std::int64_t row = 0; row < rows; ++row) {
    distances.push_back(relative_distance(row_of(expected, row), row_of(got, row)));
  }
  std::sort(distances.begin(), distances.end());
  return distances;
}

// A tiny model of that name, of which every layer is dense.
inline ModelConfig dense_config(std::string_view name) {
  ModelConfig config = tiny_model_config(name);
  config.mixture.layers.assign(config.mixture.layers.size(), false);
  return config;
}

// How one run of the same requests may differ from another.
struct CudaVariant {
  std::int64_t page_size = 16;
  KvLayout layout = KvLayout::kLayerFirst;
  DType dtype = DType::kBF16;
  CudaRunnerOptions options = {.deterministic = true};
  std::int64_t tokens = 160;      // that the pools hold
  std::int64_t pages_before = 0;  // those of the requests
  std::uint64_t seed = 1;         // of the order of pages
  std::vector<AdapterSource> adapters = {};
  std::optional<SparseDial> dial = {};  // after write_calibration
};

// A runner with its pools and requests.
struct CudaBench {
  std::unique_ptr<CudaRunner> runner;
  std::unique_ptr<CudaPool> pool;
  std::unique_ptr<RunnerTrial> trial;  // has the windowed pool
};

class CudaRunnerFixture : public CudaFixture {
 protected:
  // Writes the model that `load` loads.
  void write_model(std::string_view name, WeightType type = WeightType::kBf16) {
    write_model(tiny_model_config(name), type);
  }
  void write_model(const ModelConfig& config, WeightType type,
                   const std::vector<OtherType>& others = {}) {
    config_ = config;
    directory_.emplace();
    ASSERT_TRUE(
        write_random_model(
            directory_->path(),
            {.config = config_, .type = type, .others = others, .packed = {.scale_type = type}})
            .ok());
  }

  // Heavy channels of the model that was written, every `step`th.
  void write_calibration(std::int32_t step = 1) {
    ASSERT_TRUE(save_calibration(directory(), step).ok());
  }

  // What runners do to weights from now on.
  void round_weights(WeightRounding rounding) { rounding_ = rounding; }

  const ModelConfig& config() const { return config_; }
  std::string directory() const { return directory_->path(); }
  ThreadPool& threads() { return threads_; }

  Result<std::unique_ptr<CudaRunner>> try_load(const ModelRunnerOptions& options,
                                               const CudaRunnerOptions& cuda_options) {
    return CudaRunner::load(device(), directory(), options, cuda_options, threads_);
  }

  static std::optional<SparseOptions> sparse_options(const std::optional<SparseDial>& dial) {
    if (!dial.has_value()) return std::nullopt;
    return SparseOptions{*dial, ""};
  }

  // REQUIRES: the model was written and fits.
  CudaBench bench(const CudaVariant& variant = {}) {
    CudaBench bench;
    auto runner = try_load({.rows_max = 128,
                            .outputs_max = 128,
                            .requests_max = 16,
                            .sparse = sparse_options(variant.dial),
                            .adapters = variant.adapters,
                            .weights = rounding_},
                           variant.options);
    STEMMA_CHECK(runner.ok(), "the model loads");
    bench.runner = std::move(runner).value();
    bench.pool = pool_of(bench.runner->pool_shape(), variant, bench.runner->heavy_channels());
    std::unique_ptr<KvPool> windowed;
    const KvShape windowed_shape = bench.runner->windowed_pool_shape();
    if (windowed_shape.layers > 0) windowed = pool_of(windowed_shape, variant);
    bench.trial = std::make_unique<RunnerTrial>(*bench.runner, *bench.pool, std::move(windowed),
                                                variant.seed, variant.pages_before);
    return bench;
  }

  // The logits of every token of one request, computed alone, `chunk_tokens` at a time.
  std::vector<float> logits_alone(const CudaVariant& variant, const std::vector<TokenId>& tokens,
                                  std::int64_t chunk_tokens) {
    const CudaBench alone = bench(variant);
    const std::size_t request = alone.trial->add(tokens);
    const Status finished = alone.trial->finish(request, chunk_tokens);
    EXPECT_TRUE(finished.ok()) << to_string(finished.error());
    return alone.trial->logits(request);
  }

  // The same of a whole text on the CPU, with an attention of the test's or its own.
  std::vector<float> logits_of_cpu(DType dtype, const std::vector<TokenId>& tokens,
                                   const AttentionDecorator& decorate_attention = {}) {
    return logits_of_cpu(dtype, tokens, {.decorate_attention = decorate_attention}, AdapterId());
  }
  // The same, loaded with these options, whose limits are the fixture's.
  std::vector<float> logits_of_cpu(DType dtype, const std::vector<TokenId>& tokens,
                                   ModelRunnerOptions options, AdapterId adapter) {
    options.rows_max = options.outputs_max = 128;
    options.weights = rounding_;
    auto runner = ModelRunner::load(directory(), options, threads());
    STEMMA_CHECK(runner.ok(), "the model loads");
    KvShape shape = (*runner)->pool_shape();
    shape.page_size = 16;
    shape.pages = 12;
    shape.dtype = dtype;
    auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads(), (*runner)->heavy_channels());
    STEMMA_CHECK(pool.ok(), "the pool fits");
    RunnerTrial trial(**runner, **pool);
    EXPECT_TRUE(trial.finish(trial.add(tokens, adapter), std::ssize(tokens)).ok());
    return trial.logits(0);
  }

  // The bits of a prompt as a whole are those of its chunks in other layouts, and, its last tokens
  // being computed one by one, most of them as graphs, those over single-token pages (I13).
  void expect_same_bits_however_cut(std::int64_t tokens, std::int64_t chunk_tokens) {
    const auto text = prompt(tokens, 4);
    const auto expected = logits_alone({}, text, tokens);
    for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
    expect_same_bits(expected, logits_alone({.layout = KvLayout::kPageFirst}, text, chunk_tokens));
    const CudaBench decoding = bench({.page_size = 1, .seed = 5});
    ASSERT_TRUE(decoding.trial->step({{{decoding.trial->add(text), tokens - 4}}}).ok());
    ASSERT_TRUE(decoding.trial->finish(0, 1).ok());
    expect_same_bits(expected, decoding.trial->logits(0));
  }

  // The bits of each prompt alone are those it has among the others, in uneven pieces, so that
  // prefill and single tokens mix: 1, 1 + `more`, … tokens, in turns of `turns`.
  void expect_same_bits_in_a_batch(const std::vector<std::vector<TokenId>>& prompts,
                                   std::size_t turns, std::size_t more) {
    const CudaBench together = bench();
    RunnerTrial& trial = *together.trial;
    for (const auto& tokens : prompts) trial.add(tokens);
    for (std::size_t round = 0;; ++round) {
      std::vector<RunnerTrial::Piece> pieces;
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        const auto wanted = static_cast<std::int64_t>(1 + (round + i) % turns * more);
        const std::int64_t left = trial.remaining_tokens(i);
        if (left > 0) pieces.push_back({i, std::min(wanted, left)});
      }
      if (pieces.empty()) break;
      ASSERT_TRUE(trial.step(pieces).ok());
    }
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same_bits(logits_alone({}, prompts[i], 64), trial.logits(i));
    }
  }

  std::vector<TokenId> prompt(std::int64_t tokens, std::uint64_t seed) const {
    return random_tokens(tokens, config_.vocab_tokens, seed);
  }

 private:
  std::unique_ptr<CudaPool> pool_of(KvShape shape, const CudaVariant& variant,
                                    const HeavyChannels& channels = {}) {
    shape.page_size = variant.page_size;
    shape.pages = variant.pages_before + ceil_div(variant.tokens, variant.page_size) + 2;
    shape.dtype = variant.dtype;
    auto pool = CudaPool::create(device(), shape, variant.layout, channels);
    STEMMA_CHECK(pool.ok(), "the pool fits");
    return std::move(pool).value();
  }

  std::optional<TempDirectory> directory_;
  ModelConfig config_;
  WeightRounding rounding_ = WeightRounding::kNone;
  ThreadPool threads_{2};
};

}  // namespace stemma
