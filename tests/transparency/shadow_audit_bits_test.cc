// I13 under a shadow audit, with real arithmetic: auditing every hit changes no bit and no hit and
// finds nothing, whatever tier the pages came from; a bit that is flipped in a cached page is
// found, and what is computed afterwards has the bits of an engine that never had the page.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/temp_directory.h"
#include "engine/logits_recorder.h"
#include "engine/served_model.h"
#include "model/random_model.h"
#include "model/tiny_config.h"
#include "sim/metric_of.h"
#include "stemma/log.h"
#include "transparency/engine_trial.h"
#include "transparency/families.h"
#include "transparency/flip_pages.h"

namespace stemma {
namespace {

constexpr std::chrono::seconds kLong(60);

std::vector<std::string_view> audited_families() {
  std::vector<std::string_view> names = tiered_families();
  const auto windowed = windowed_families();
  names.insert(names.end(), windowed.begin(), windowed.end());
  return names;
}

// A model and an engine on it, pages and all.
struct Serving {
  std::unique_ptr<ServedModel> model;
  std::optional<LogitsRecorder> recorder;
  std::unique_ptr<Engine> engine;

  Outcome run(const std::vector<std::vector<TokenId>>& prompts, std::int64_t max_tokens = 5) {
    return run_trial(
        *engine, *recorder,
        {.prompts = prompts, .max_tokens = max_tokens, .digest = model->namespace_digest()});
  }
};

class ShadowAuditBits : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    set_log_sink({});
    ASSERT_TRUE(write_random_model(model_.path(), {.config = tiny_model_config(GetParam()),
                                                   .type = WeightType::kBf16})
                    .ok());
    const ModelConfig config = tiny_model_config(GetParam());
    token_bytes_ = 2 * config.layers * config.pool_shape().token_elements();
    options_.directory = model_.path();
    options_.engine.kv.requests_max = 3;
    options_.engine.kv.context_tokens_max = 256;
    options_.engine.kv.tiers.write_policy = WritePolicy::kWriteThrough;
    options_.engine.kv.tiers.load_wait_us = 60'000'000;
    options_.engine.kv.tiers.store_deadline_us = 60'000'000;
  }

  std::unique_ptr<Serving> open(std::int64_t page_size, std::int64_t kv_tokens, double percent) {
    auto serving = std::make_unique<Serving>();
    options_.engine.kv.page_size = page_size;
    options_.engine.shadow_audit_percent = percent;
    options_.kv_bytes = kv_tokens * token_bytes_;
    auto model = ServedModel::open(options_);
    EXPECT_TRUE(model.ok()) << to_string(model.error());
    serving->model = std::move(model).value();
    serving->recorder.emplace(serving->model->runner());
    auto engine = serving->model->open_engine(&*serving->recorder);
    EXPECT_TRUE(engine.ok()) << to_string(engine.error());
    serving->engine = std::move(engine).value();
    return serving;
  }

  TempDirectory model_;
  ServedModelOptions options_;
  std::int64_t token_bytes_ = 0;
};

TEST_P(ShadowAuditBits, EveryHitAuditedAndNoBitIsAnother) {
  for (const std::int64_t page_size : {1, 16, 64}) {
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(testing::Message() << "page size " << page_size << ", threads " << threads);
      options_.threads = threads;
      const Outcome plain = open(page_size, 4096, 0)->run(shared_prompts());
      const auto audited = open(page_size, 4096, 100);
      const Outcome outcome = audited->run(shared_prompts());
      expect_same_bits(plain, outcome);
      EXPECT_EQ(outcome.cached_tokens, plain.cached_tokens);
      EXPECT_GT(outcome.totals.shadow_audits, 0);
      EXPECT_EQ(outcome.totals.shadow_audit_mismatches, 0);
    }
  }
}

TEST_P(ShadowAuditBits, PagesFromLowerTiersAreAuditedToo) {
  const TempDirectory directory;
  const Outcome plain = open(16, 4096, 0)->run(shared_prompts());
  options_.tiers.host_bytes = std::int64_t{1} << 20;
  options_.tiers.disk_directory = directory.path();
  for (int life = 0; life < 2; ++life) {
    SCOPED_TRACE(life);
    const auto serving = open(16, 448, 100);
    for (int round = 0; round < 2; ++round) {
      const Outcome outcome = serving->run(shared_prompts());
      expect_same_bits(plain, outcome);
      serving->engine->settle(kLong);
      EXPECT_GT(outcome.totals.shadow_audits, 0);
      EXPECT_EQ(outcome.totals.shadow_audit_mismatches, 0);
    }
  }
}

// One bit of every page, behind the cache's back.
TEST_P(ShadowAuditBits, AFlippedBitIsFoundAndWhatFollowsIsRight) {
  const TempDirectory directory;
  const std::vector<std::vector<TokenId>> prompt = {shared_prompts().front()};
  const Outcome plain = open(16, 4096, 0)->run(prompt);
  options_.tiers.host_bytes = std::int64_t{1} << 20;
  options_.tiers.disk_directory = directory.path();
  auto serving = open(16, 4096, 100);
  expect_same_bits(plain, serving->run(prompt));
  const std::int64_t found = serving->run(prompt).cached_tokens;
  EXPECT_EQ(serving->engine->totals().shadow_audits, 1);
  serving->engine->settle(kLong);
  KvPool& full = serving->model->pool();
  KvPool* const windowed = serving->model->windowed_pool_or_null();
  Prng prng(3);
  std::int64_t mismatches = 0;
  for (int i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    const bool of_windows = windowed != nullptr && (i % 2 == 1 || full.shape().layers == 0);
    flip_every_page(of_windows ? *windowed : full, prng);
    serving->run(prompt, 1);
    EXPECT_EQ(serving->engine->totals().shadow_audit_mismatches, ++mismatches);
    const Outcome after = serving->run(prompt);
    expect_same_bits(plain, after);
    EXPECT_EQ(after.cached_tokens, 0) << "every page was wrong, and is gone in every tier";
    EXPECT_EQ(serving->run(prompt).cached_tokens, found);
    EXPECT_EQ(serving->engine->totals().shadow_audit_mismatches, mismatches);
    serving->engine->settle(kLong);
  }
  // One by one, or with what lies behind them.
  EXPECT_GT(metric_of(*serving->engine, "stemma_disk_removed_pages_total") +
                metric_of(*serving->engine, "stemma_disk_purged_pages_total"),
            0);
  EXPECT_EQ(metric_of(*serving->engine, "stemma_wrong_stored_pages"), 0);
  EXPECT_EQ(serving->engine->kv().available_pages(), serving->engine->kv().total_pages());
  serving.reset();
  const auto next_life = open(16, 4096, 100);
  expect_same_bits(plain, next_life->run(prompt));
  EXPECT_EQ(next_life->engine->totals().shadow_audit_mismatches, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, ShadowAuditBits, testing::ValuesIn(audited_families()),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace stemma
