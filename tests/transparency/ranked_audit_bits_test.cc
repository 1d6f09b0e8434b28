// I13 under a shadow audit over two ranks, with real arithmetic and adapters: auditing every hit
// changes no bit and finds nothing, whatever tier the pages came from; a bit that is flipped in a
// page of one rank alone is found, and what is computed afterwards has the bits of an engine that
// never had the page.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/prng.h"
#include "base/temp_directory.h"
#include "model/tiny_config.h"
#include "stemma/log.h"
#include "transparency/adapted_model.h"
#include "transparency/flip_pages.h"
#include "transparency/ranked_trial.h"
#include "transparency/tier_settings.h"

namespace stemma {
namespace {

struct Setting {
  std::int64_t page_size = 16;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 3;
  int threads = 1;
  std::string cache = "radix";
  std::int64_t kv_tokens = 8192;  // of all heads: a rank has room for as many of its own
  double audit_percent = 100;
  ServedTierOptions tiers = {};
};

// Nothing cached, one request at a time.
Setting plainest() {
  Setting setting;
  setting.concurrency = 1;
  setting.cache = "none";
  setting.audit_percent = 0;
  return setting;
}

class RankedAuditBits : public testing::TestWithParam<std::string_view> {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  void TearDown() override { set_log_sink({}); }

  ServedModelOptions options(const Setting& setting, int ranks) const {
    KvShape shape = config_.pool_shape();
    shape.dtype = DType::kBF16;
    if (shape.kind != KvKind::kMla) shape.heads /= ranks;
    ServedModelOptions options = trial_options(model_.path(), setting);
    options.kv_bytes = setting.kv_tokens * config_.layers * shape.token_bytes();
    options.adapters = model_.sources({"a", "b"});
    options.tiers = setting.tiers;
    options.engine.shadow_audit_percent = setting.audit_percent;
    options.engine.kv.tiers = {.write_policy = WritePolicy::kWriteThrough,
                               .load_wait_us = kLongUs,
                               .store_deadline_us = kLongUs};
    return options;
  }
  Outcome cold(const TrialRequests& requests) const {
    ServedTrial trial = open_trial(options(plainest(), 1));
    return trial.run(requests);
  }

  TrialRequests requests_ = {.adapters = {"a", "", "b"}};
  ModelConfig config_ = tiny_model_config(GetParam());
  AdaptedModel model_{config_};
  TempDirectory disk_;
};

TEST_P(RankedAuditBits, EveryHitAuditedWhateverTierItCameFromAndNoBitIsAnother) {
  const Outcome plain = cold(requests_);
  Setting setting;
  setting.kv_tokens = kSmallTokens;
  setting.tiers = host_only();
  setting.tiers.disk_directory = disk_.path();
  for (int life = 0; life < 2; ++life) {
    SCOPED_TRACE(life);
    serve_on_ranks(kRanks, options(setting, kRanks), [&](ServedTrial& trial) {
      for (int round = 0; round < 2; ++round) {
        const Outcome outcome = trial.run(requests_);
        expect_same_bits(plain, outcome);
        trial.engine->settle(kLong);
        EXPECT_GT(outcome.totals.shadow_audits, 0);
        EXPECT_EQ(outcome.totals.shadow_audit_mismatches, 0);
      }
    });
  }
}

// One bit of every page of one rank, behind the cache's back.
TEST_P(RankedAuditBits, ABitThatFlipsOnOneRankIsFoundAndWhatFollowsIsRight) {
  TrialRequests one = requests_;
  one.prompts.resize(1);
  const Outcome plain = cold(one);
  TrialRequests short_one = one;
  short_one.max_tokens = 1;
  Setting setting;
  setting.tiers = host_only();
  std::array<KvPool*, kRanks> pools = {};  // those with windows where there are such layers
  Prng prng(3);
  const auto work = [&](ServedTrial& trial) {
    expect_same_bits(plain, trial.run(one));
    const std::int64_t found = trial.run(one).cached_tokens;
    EXPECT_GT(found, 0);
    std::int64_t mismatches = 0;
    for (const std::size_t rank : {1u, 0u, 1u}) {
      SCOPED_TRACE(rank);
      trial.engine->settle(kLong);
      flip_every_page(*pools[rank], prng);
      trial.run(short_one);
      EXPECT_EQ(trial.engine->totals().shadow_audit_mismatches, ++mismatches);
      const Outcome after = trial.run(one);
      expect_same_bits(plain, after);
      EXPECT_EQ(after.cached_tokens, 0) << "gone in every tier of both";
      EXPECT_EQ(trial.run(one).cached_tokens, found);
      EXPECT_EQ(trial.engine->totals().shadow_audit_mismatches, mismatches);
    }
  };
  serve_on_ranks(kRanks, options(setting, kRanks), work, [&](ServedModel& model, int rank) {
    KvPool* const windowed = model.windowed_pool_or_null();
    pools[static_cast<std::size_t>(rank)] = windowed == nullptr ? &model.pool() : windowed;
  });
}

INSTANTIATE_TEST_SUITE_P(Families, RankedAuditBits,
                         testing::Values("llama3", "deepseek_v2", "gemma3"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace stemma
