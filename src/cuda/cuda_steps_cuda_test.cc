// CudaRunner, step by step: steps that are queued before the one before is done, pages that arrive
// while a batch is computed, copies of pages, and what is refused.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_runner_fixture.h"
#include "model/model_runner.h"
#include "model/one_request.h"
#include "model/sampler.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

constexpr std::int64_t kPageSize = 16;

class CudaStepsTest : public CudaRunnerFixture {
 protected:
  // The embedding of `token` becomes infinite. REQUIRES: the model was written in bf16.
  void break_embedding(TokenId token) {
    const std::string path = directory() + "/model.safetensors";
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
    std::string header(header_bytes, ' ');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const auto tensor = nlohmann::json::parse(header).at("model.embed_tokens.weight");
    const std::uint64_t row = static_cast<std::uint64_t>(token * config().hidden) * 2;
    file.seekp(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes +
                                           tensor.at("data_offsets").at(0).get<std::uint64_t>() +
                                           row));
    const std::uint16_t infinity = 0x7F80;
    file.write(reinterpret_cast<const char*>(&infinity), sizeof(infinity));
    ASSERT_TRUE(file.good());
  }

  std::string error_of(const ModelRunnerOptions& options) {
    const auto runner = try_load(options, {});
    EXPECT_FALSE(runner.ok());
    return runner.ok() ? "" : to_string(runner.error());
  }

  std::vector<std::byte> page_bytes(const CudaPool& pool, PageId page) {
    std::vector<std::byte> bytes;
    for (std::int64_t layer = 0; layer < pool.shape().layers; ++layer) {
      for (const auto& piece : pool.layer_pieces(layer)) {
        const auto part =
            download<std::byte>(piece.of(page), static_cast<std::size_t>(piece.bytes));
        bytes.insert(bytes.end(), part.begin(), part.end());
      }
    }
    return bytes;
  }
};

TokenId top_of(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Greedy decoding, by a host that waits for each step.
std::vector<TokenId> generated(const CudaBench& bench, const std::vector<TokenId>& prompt,
                               int tokens) {
  OneRequest request(kPageSize);
  std::vector<TokenId> next = prompt;
  std::vector<TokenId> found;
  for (int i = 0; i < tokens; ++i) {
    const auto logits = bench.runner->forward(request.next(next), {*bench.pool});
    EXPECT_TRUE(logits.ok()) << to_string(logits.error());
    if (!logits.ok()) break;
    next = {top_of(logits->row(0))};
    found.push_back(next[0]);
  }
  return found;
}

TEST_F(CudaStepsTest, AStepTakesTheTokenThatTheOneBeforeWillHaveChosen) {
  write_model("qwen2");
  constexpr int kTokens = 5;
  const auto start = prompt(9, 1);
  const auto expected = generated(bench(), start, kTokens);
  for (const bool wanted : {false, true}) {
    const CudaBench ahead = bench();
    CudaRunner& runner = *ahead.runner;
    OneRequest request(kPageSize);
    std::vector<TokenId> found;
    ASSERT_TRUE(runner.queue(request.next(start), {*ahead.pool}, {.logits = wanted}).ok());
    for (int i = 0; i < kTokens; ++i) {
      if (i + 1 < kTokens) {
        ASSERT_TRUE(runner.queue(request.next({-1}), {*ahead.pool}, {.logits = wanted}).ok());
      }
      const auto outputs = runner.wait();
      ASSERT_TRUE(outputs.ok());
      ASSERT_EQ(outputs->tokens.size(), 1u);
      found.push_back(outputs->tokens[0]);
      ASSERT_EQ(outputs->logits.outputs, wanted ? 1 : 0);
      if (wanted) {
        EXPECT_EQ(found.back(), top_of(outputs->logits.row(0)));
      }
    }
    EXPECT_EQ(found, expected);
  }
}

// Some steps draw, some take the largest logit; those that are recorded, too.
TEST_F(CudaStepsTest, AStepDrawsTheTokensThatTheSamplerWouldFromItsLogits) {
  write_model("qwen2");
  const CudaBench ahead = bench();
  CudaRunner& runner = *ahead.runner;
  ASSERT_TRUE(runner.draws());
  Sampler sampler(runner.config().vocab_tokens);
  constexpr std::size_t kTokens = 9;
  std::vector<TokenChoice> choices;
  for (std::size_t i = 0; i < kTokens; ++i) {
    SamplingParams params;
    params.seed = 5;
    params.temperature = i % 3 == 2 ? 0 : 2;
    params.top_k = i % 2 == 0 ? 0 : 50;
    params.top_p = i < 4 ? 1.0f : 0.9f;
    choices.push_back(choice_of(params, static_cast<std::int64_t>(i)));
  }
  OneRequest request(kPageSize);
  ASSERT_TRUE(runner.queue(request.next(prompt(21, 1)), {*ahead.pool}, {{&choices[0], 1}}).ok());
  for (std::size_t i = 0; i < kTokens; ++i) {
    if (i + 1 < kTokens) {
      const StepWish wish = {{&choices[i + 1], 1}};
      ASSERT_TRUE(runner.queue(request.next({-1}), {*ahead.pool}, wish).ok());
    }
    const auto outputs = runner.wait();
    ASSERT_TRUE(outputs.ok());
    EXPECT_EQ(outputs->tokens[0], sampler.try_choose(outputs->logits.row(0), choices[i])) << i;
  }
}

TEST_F(CudaStepsTest, ATokenThatNoStepHasChosenIsRefused) {
  write_model("llama2");
  const CudaBench alone = bench();
  OneRequest request(kPageSize);
  EXPECT_EQ(to_string(alone.runner->queue(request.next({-1}), {*alone.pool}, {}).error()),
            "invalid_argument: batch: token -1 of row 0 is outside the vocabulary of 291");
  OneRequest other(kPageSize);
  ASSERT_TRUE(alone.runner->queue(other.next({5, 6}), {*alone.pool}, {}).ok());
  ASSERT_TRUE(alone.runner->wait().ok());
  EXPECT_FALSE(alone.runner->queue(other.next({-2}), {*alone.pool}, {}).ok());
  EXPECT_FALSE(alone.runner->forward(OneRequest(kPageSize).next({-1}), {*alone.pool}).ok());
}

// Whoever sees such a row is broken as well, and so may be rows before it that share its tile.
TEST_F(CudaStepsTest, RowsThatComeToNothingAreNamed) {
  constexpr TokenId kBroken = 7;
  write_model("llama3");
  break_embedding(kBroken);
  const CudaBench alone = bench();
  OneRequest request(kPageSize);
  const auto broken_of = [&](const std::vector<TokenId>& tokens) {
    EXPECT_TRUE(alone.runner->queue(request.next(tokens), {*alone.pool}, {}).ok());
    const auto outputs = alone.runner->wait();
    EXPECT_TRUE(outputs.ok());
    return std::vector(outputs->broken_rows.begin(), outputs->broken_rows.end());
  };
  EXPECT_EQ(broken_of({3, 4, 5, 6, 8}), std::vector(5, 0));
  EXPECT_EQ(broken_of({9}), std::vector(1, 0)) << "of a recorded step";
  const auto broken = broken_of({10, 11, kBroken, 12});
  ASSERT_EQ(broken.size(), 4u);
  EXPECT_EQ(broken[2], 1);
  EXPECT_EQ(broken[3], 1);
  EXPECT_EQ(broken_of({13}), std::vector(1, 1));
}

TEST_F(CudaStepsTest, ABatchWithoutOutputsOrRowsHasNoLogits) {
  write_model("llama2");
  const CudaBench alone = bench();
  OneRequest request(kPageSize);
  KvBatch batch = request.next({1, 2, 3});
  batch.logit_rows = {};
  const auto logits = alone.runner->forward(batch, {*alone.pool});
  ASSERT_TRUE(logits.ok());
  EXPECT_EQ(logits->outputs, 0);
  const std::int32_t none[] = {0};
  KvBatch empty;
  empty.row_indptr = empty.page_table.indptr = none;
  empty.page_table.page_size = kPageSize;
  const auto nothing = alone.runner->forward(empty, {*alone.pool});
  ASSERT_TRUE(nothing.ok()) << to_string(nothing.error());
  EXPECT_EQ(nothing->outputs, 0);
}

// Says whether each layer is there, and remembers which were asked for.
class Gate final : public LayerGate {
 public:
  explicit Gate(std::int64_t wrong_layer) : wrong_layer_(wrong_layer) {}
  bool wait(std::int64_t layer) override {
    asked.push_back(layer);
    return layer != wrong_layer_;
  }
  std::vector<std::int64_t> asked;

 private:
  std::int64_t wrong_layer_;
};

TEST_F(CudaStepsTest, EachLayerIsAskedForAndAWrongOneFailsTheBatchAlone) {
  write_model("qwen3");
  const auto start = prompt(7, 2);
  const auto expected = generated(bench(), start, 1);
  const CudaBench alone = bench();
  EXPECT_TRUE(alone.runner->waits_by_layer());
  Gate wrong(1);
  OneRequest failing(kPageSize);
  KvBatch batch = failing.next(start);
  batch.arriving = &wrong;
  EXPECT_EQ(alone.runner->forward(batch, {*alone.pool}).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(wrong.asked, (std::vector<std::int64_t>{0, 1}));
  Gate right(-1);
  OneRequest request(kPageSize);
  batch = request.next(start);
  batch.arriving = &right;
  const auto logits = alone.runner->forward(batch, {*alone.pool});
  ASSERT_TRUE(logits.ok());
  EXPECT_EQ(right.asked, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(top_of(logits->row(0)), expected[0]);
}

TEST_F(CudaStepsTest, ACopiedPageHoldsWhatWasComputed) {
  write_model("llama3");
  const CudaBench alone = bench();
  OneRequest request(kPageSize);
  ASSERT_TRUE(alone.runner->queue(request.next(prompt(20, 3)), {*alone.pool}, {}).ok());
  PageCopies copies;
  copies.from = PageId(1);
  copies.to = PageId(4);
  ASSERT_TRUE(alone.runner->copy_pages({*alone.pool}, copies).ok());
  ASSERT_TRUE(alone.runner->wait().ok());
  const auto copied = page_bytes(*alone.pool, PageId(4));
  EXPECT_EQ(copied, page_bytes(*alone.pool, PageId(1)));
  EXPECT_NE(copied, page_bytes(*alone.pool, PageId(3)));
}

TEST_F(CudaStepsTest, BatchesThatDoNotFitAreRefused) {
  write_model("llama2");
  const CudaBench alone = bench();
  const auto error_of_batch = [&](const KvBatch& batch, KvPool& pool) {
    const auto logits = alone.runner->forward(batch, {pool});
    return logits.ok() ? "" : to_string(logits.error());
  };
  OneRequest request(kPageSize);
  EXPECT_EQ(error_of_batch(request.next({1, 291}), *alone.pool),
            "invalid_argument: batch: token 291 of row 1 is outside the vocabulary of 291");
  EXPECT_EQ(error_of_batch(OneRequest(kPageSize).next(std::vector<TokenId>(129, 1)), *alone.pool),
            "too_large: batch: 129 rows; at most 128 fit");
  const SlotId outside[] = {SlotId(alone.pool->shape().slots())};
  OneRequest one(kPageSize);
  KvBatch batch = one.next({1});
  batch.write_slots = outside;
  EXPECT_EQ(error_of_batch(batch, *alone.pool),
            "invalid_argument: batch: slot 192 is outside the pool");
  const auto host_pool = make_kv_pool(alone.pool->shape(), KvLayout::kLayerFirst, threads());
  ASSERT_TRUE(host_pool.ok());
  OneRequest other(kPageSize);
  EXPECT_EQ(error_of_batch(other.next({1}), **host_pool),
            "invalid_argument: pool: not one of this GPU");
}

TEST_F(CudaStepsTest, WhatAGpuCannotDoIsRefusedByItsFlag) {
  write_model("llama2");
  EXPECT_EQ(error_of({.weights = WeightRounding::kInt8}),
            "unsupported: --weights int8 is not for a GPU yet");
  EXPECT_EQ(error_of({.attention = "reference"}),
            "unsupported: --attention reference is not for a GPU yet");
  EXPECT_EQ(error_of({.rows_max = 0}),
            "invalid_argument: rows_max: must be from 1 to 1048576 (got 0)");
  ModelConfig latent = tiny_model_config("deepseek_v2");
  latent.latent.plain_dim = 20;
  write_model(latent, WeightType::kBf16);
  EXPECT_EQ(error_of({}),
            "unsupported: " + directory() +
                "/config.json: qk_nope_head_dim that is no multiple of 8 is not for a GPU yet");
}

#ifdef STEMMA_SIMT
TEST_F(CudaStepsTest, MemoryThatCannotBeHadIsAnErrorAndNothingMore) {
  write_model("llama2");
  machine().fail_allocations(1);
  EXPECT_EQ(try_load({}, {}).error().code, ErrorCode::kOutOfMemory);
  const CudaBench alone = bench();
  machine().fail_allocations(1);  // of what attention needs for this pool
  OneRequest request(kPageSize);
  const KvBatch batch = request.next({1, 2, 3});
  EXPECT_EQ(alone.runner->forward(batch, {*alone.pool}).error().code, ErrorCode::kOutOfMemory);
  EXPECT_TRUE(alone.runner->forward(batch, {*alone.pool}).ok());
}

TEST_F(CudaStepsTest, AGpuThatFailsAmidAStepFailsItAndThoseBehindIt) {
  write_model("llama2");
  const CudaBench alone = bench();
  OneRequest request(kPageSize);
  ASSERT_TRUE(alone.runner->forward(request.next({1, 2, 3}), {*alone.pool}).ok());
  machine().fail_after_kernels(5);
  EXPECT_EQ(alone.runner->forward(request.next({4}), {*alone.pool}).error().code,
            ErrorCode::kInternal);
  EXPECT_FALSE(alone.runner->forward(request.next({5}), {*alone.pool}).ok());
}
#endif

TEST_F(CudaStepsTest, NamespaceFieldsTellWhatChangesBits) {
  write_model("llama2");
  const auto fields_of = [&](bool deterministic) {
    const auto runner = try_load({}, {.deterministic = deterministic});
    STEMMA_CHECK(runner.ok(), "the model loads");
    return (*runner)->namespace_fields();
  };
  EXPECT_EQ(fields_of(true), fields_of(true));
  EXPECT_NE(fields_of(true), fields_of(false));
  const auto on_cpu = ModelRunner::load(directory(), {}, threads());
  ASSERT_TRUE(on_cpu.ok());
  EXPECT_EQ(fields_of(true)[0], (*on_cpu)->namespace_fields()[0]);  // the same weights
  EXPECT_NE(fields_of(true), (*on_cpu)->namespace_fields());
}

TEST_F(CudaStepsTest, ABackendMakesARunnerAndItsPools) {
  write_model("gemma2");
  const auto backend = make_cuda_backend(device(), {.deterministic = true});
  EXPECT_EQ(backend->kind(), DeviceKind::kCuda);
  const auto runner = backend->load_model(directory(), {}, threads());
  ASSERT_TRUE(runner.ok()) << to_string(runner.error());
  KvShape full = (*runner)->pool_shape();
  KvShape windowed = (*runner)->windowed_pool_shape();
  EXPECT_EQ(full.layers, 1);
  EXPECT_EQ(windowed.layers, 2);
  full.pages = windowed.pages = full.page_size = windowed.page_size = 16;
  full.dtype = windowed.dtype = DType::kBF16;
  const auto pool = backend->make_pool(full, KvLayout::kPageFirst, threads(), {});
  const auto windowed_pool = backend->make_pool(windowed, KvLayout::kPageFirst, threads(), {});
  ASSERT_TRUE(pool.ok() && windowed_pool.ok());
  EXPECT_EQ((*pool)->device(), DeviceKind::kCuda);
  EXPECT_TRUE((*runner)->prepare_for({**pool, windowed_pool->get()}).ok());
}

TEST_F(CudaStepsTest, ABackendOpensTheDeviceThatItIsTold) {
  EXPECT_TRUE(make_cuda_backend(0, {}).ok());
  EXPECT_EQ(make_cuda_backend(CudaDevice::count(), {}).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace stemma
