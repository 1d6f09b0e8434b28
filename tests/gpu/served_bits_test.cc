// A whole model served on a GPU: the tokens and the logits of a request are equal bit for bit
// whatever was cached, however its prompt was chunked, whoever shared its batch and whatever was
// evicted and computed again, where products are deterministic (I13).
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/temp_directory.h"
#include "cuda/cuda_backend.h"
#include "device/cuda_fixture.h"
#include "model/calibration_fixture.h"
#include "model/model_runner.h"
#include "model/random_model.h"
#include "transparency/served_trial.h"

namespace stemma {
namespace {

constexpr std::size_t kRequests = 6;  // an emulated GPU takes its time

// How a run differs from the plainest one.
struct Setting {
  std::string cache = "radix";
  std::int64_t page_size = 16;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 4;
  int threads = 1;
  std::int64_t kv_bytes = std::int64_t{8} << 20;
  std::optional<SparseDial> dial = {};
  std::string weights = "auto";
  double shadow_audit_percent = 0;
  bool deterministic = true;
};

class ServedBits : public CudaFixture {
 protected:
  void write_model(std::string_view name) {
    config_ = tiny_model_config(name);
    ASSERT_TRUE(
        write_random_model(directory_.path(), {.config = config_, .type = WeightType::kBf16}).ok());
  }

  Outcome run(const Setting& setting) {
    const auto backend = make_cuda_backend(device(), {.deterministic = setting.deterministic});
    ServedModelOptions options = trial_options(directory_.path(), setting);
    options.backend = backend.get();
    options.kv_dtype = "bf16";
    options.kv_bytes = setting.kv_bytes;
    options.weights = setting.weights;
    options.engine.shadow_audit_percent = setting.shadow_audit_percent;
    if (setting.dial.has_value()) options.sparse = SparseOptions{*setting.dial, ""};
    ServedTrial trial = open_trial(options);
    TrialRequests requests;
    requests.prompts.resize(kRequests);
    return run_trial(*trial.engine, *trial.recorder, requests);
  }

  const ModelConfig& config() const { return config_; }
  std::string directory() const { return directory_.path(); }

 private:
  TempDirectory directory_;
  ModelConfig config_;
};

class ServedFamilies : public ServedBits, public testing::WithParamInterface<std::string_view> {};

TEST_P(ServedFamilies, BitsAreThoseOfAnEmptyCacheAndOneRequestAtATime) {
  write_model(GetParam());
  const Outcome plain = run({.cache = "none", .concurrency = 1});
  ASSERT_EQ(plain.tokens.size(), kRequests);
  EXPECT_EQ(plain.cached_tokens, 0);
  const Outcome cached = run({});
  EXPECT_GT(cached.cached_tokens, 0);
  expect_same_bits(plain, cached);
  const Outcome chunked = run({.page_size = 4, .chunk_tokens = 24, .concurrency = 6});
  EXPECT_GT(chunked.cached_tokens, 0);
  expect_same_bits(plain, chunked);
}

TEST_F(ServedBits, OfSparseRowsAreThoseOfAnEmptyCacheToo) {
  write_model("llama2");
  ASSERT_TRUE(save_calibration(directory()).ok());
  const SparseDial quarter = {.dense_tokens = 32, .kept_tokens = 1, .kept_of = 4};
  const Outcome cold = run({.cache = "none", .concurrency = 1, .dial = quarter});
  const Outcome warm = run({.page_size = 4, .chunk_tokens = 33, .dial = quarter});
  EXPECT_GT(warm.cached_tokens, 0);
  expect_same_bits(cold, warm);
  EXPECT_NE(cold.logits, run({.cache = "none", .concurrency = 1}).logits);
}

TEST_F(ServedBits, OfRoundedWeightsAreThoseOfAnEmptyCacheToo) {
  write_model("llama3");
  const Outcome cold = run({.cache = "none", .concurrency = 1, .weights = "int4"});
  const Outcome warm = run({.page_size = 4, .chunk_tokens = 33, .weights = "int4"});
  EXPECT_GT(warm.cached_tokens, 0);
  expect_same_bits(cold, warm);
  EXPECT_NE(cold.logits, run({.cache = "none", .concurrency = 1}).logits);
}

TEST_F(ServedBits, SurviveEviction) {
  write_model("llama3");
  const Outcome plain = run({.cache = "none"});
  const std::int64_t token_bytes = 2 * config().layers * config().pool_shape().token_elements();
  const Outcome tight = run({.page_size = 4, .kv_bytes = 220 * token_bytes});
  EXPECT_GT(tight.totals.evicted_pages, 0);
  expect_same_bits(plain, tight);
}

TEST_F(ServedBits, PagesThatAreComputedAgainComeOutEqual) {
  write_model("llama3");
  const Outcome plain = run({});
  const Outcome audited = run({.shadow_audit_percent = 100});
  expect_same_bits(plain, audited);
  EXPECT_GT(audited.totals.shadow_audits, 0);
  EXPECT_EQ(audited.totals.shadow_audit_mismatches, 0);
}

// Products with rounded weights are in one order whatever is asked for.
TEST_F(ServedBits, OfRoundedWeightsAreAuditedWithoutDeterministicProductsToo) {
  write_model("llama3");
  const Outcome plain = run({.weights = "int4"});
  const Outcome audited =
      run({.weights = "int4", .shadow_audit_percent = 100, .deterministic = false});
  expect_same_bits(plain, audited);
  EXPECT_GT(audited.totals.shadow_audits, 0);
  EXPECT_EQ(audited.totals.shadow_audit_mismatches, 0);
}

// All pages become as the last one is, behind the cache's back.
TEST_F(ServedBits, APageThatChangedIsFoundAndNobodySeesItAgain) {
  write_model("llama3");
  const auto backend = make_cuda_backend(device(), {.deterministic = true});
  ServedModelOptions options = trial_options(directory(), Setting());
  options.backend = backend.get();
  options.kv_bytes = Setting().kv_bytes;
  options.engine.shadow_audit_percent = 100;
  const auto model = opened_for_trial(ServedModel::open(options));
  const auto engine = opened_for_trial(model->open_engine());
  const auto ask = [&] {
    RequestSpec spec;
    spec.prompt = shared_prompts().front();
    spec.max_tokens = 4;
    EXPECT_TRUE(engine->submit(std::move(spec)).ok());
    std::vector<TokenId> tokens;
    while (!engine->idle()) {
      for (const EngineEvent& event : engine->step().events) tokens.push_back(event.token);
    }
    return tokens;
  };
  const std::vector<TokenId> right = ask();
  KvPool& pool = model->pool();
  const PageId last(static_cast<std::int32_t>(pool.shape().pages - 1));
  for (const PageId page : id_range(PageId(0), pool.shape().pages - 1)) {
    ASSERT_TRUE(pool.copy_page(last, page).ok());
  }
  ask();
  EXPECT_EQ(engine->totals().shadow_audit_mismatches, 1);
  EXPECT_EQ(ask(), right);
}

TEST_F(ServedBits, AuditsNeedProductsThatRepeat) {
  write_model("llama3");
  const auto backend = make_cuda_backend(device(), {});
  ServedModelOptions options = trial_options(directory(), Setting());
  options.backend = backend.get();
  options.kv_bytes = Setting().kv_bytes;
  options.engine.shadow_audit_percent = 1;
  const auto model = opened_for_trial(ServedModel::open(options));
  const auto engine = model->open_engine();
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kUnsupported);
}

// Without a recorder between them the engine queues steps of the runner, and plans the next one
// meanwhile.
TEST_F(ServedBits, StepsThatAreQueuedGiveTheSameTokens) {
  write_model("llama3");
  const Outcome plain = run({.cache = "none"});
  const auto backend = make_cuda_backend(device(), {.deterministic = true});
  ServedModelOptions options = trial_options(directory(), Setting());
  options.backend = backend.get();
  options.kv_dtype = "bf16";
  const auto model = opened_for_trial(ServedModel::open(options));
  ASSERT_TRUE(model->runner().queues());
  EXPECT_EQ(tokens_of_queued_steps(*model, kRequests), plain.tokens);
}

// Queued behind each other and behind other requests' tokens, as many rows at once as there is room
// for.
TEST_F(ServedBits, LogprobsOfPromptsAreTheSameHoweverTheyAreComputed) {
  write_model("llama3");
  const auto backend = make_cuda_backend(device(), {.deterministic = true});
  std::vector<std::vector<float>> plain;
  for (const Setting& setting : {Setting{.cache = "none", .concurrency = 1}, Setting()}) {
    ServedModelOptions options = trial_options(directory(), setting);
    options.backend = backend.get();
    options.kv_dtype = "bf16";
    const bool is_plain = setting.cache == "none";
    options.engine.scheduler.scored_tokens_max = is_plain ? 0 : 19;
    const auto model = opened_for_trial(ServedModel::open(options));
    ASSERT_TRUE(model->runner().queues());
    const auto told = logprobs_of_prompts(*model, 2, is_plain ? 1 : 2);
    if (is_plain) plain = told;
    for (std::size_t i = 0; i < told.size(); ++i) {
      EXPECT_EQ(told[i].size(), shared_prompts()[i % 2].size() - 1);
      EXPECT_EQ(told[i], plain[i % 2]) << setting.cache << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, ServedFamilies, testing::Values("llama3", "gemma3"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace stemma
