// A whole model served by ranks on GPUs: tokens and logits are those of one rank, bit for bit
// (I13), with prefixes that requests share and prompts in chunks, step by step and queued ahead,
// with adapters, and with what comes back from every rank's own host memory and disk. Shadow audits
// compare the pages of all.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/temp_directory.h"
#include "cuda/cuda_backend.h"
#include "device/cuda_fixture.h"
#include "device/thread_ranks_fixture.h"
#include "sim/metric_of.h"
#include "transparency/adapted_model.h"
#include "transparency/served_trial.h"

namespace stemma {
namespace {

constexpr std::size_t kRequests = 4;  // an emulated GPU takes its time

constexpr std::chrono::seconds kLong(600);

// How a run differs from the plainest one.
struct Setting {
  std::string cache = "radix";
  std::int64_t page_size = 4;
  std::int64_t chunk_tokens = 40;
  std::int64_t concurrency = 3;
  int threads = 1;
  std::int64_t kv_bytes = std::int64_t{1} << 20;
  ServedTierOptions tiers = {};
  std::vector<std::string> adapters = {};  // of AdaptedModel
  double audit_percent = 0;
};

// Of the keys and values of one rank of two: a head in each of two layers.
constexpr std::int64_t kTokenBytes = 2 * 2 * 32 * 2;

std::vector<TokenId> random_prompt(std::int64_t tokens) {
  Prng prng(77);
  return random_tokens(prng, tokens);
}

class ServedRanksOnGpus : public CudaFixture {
 protected:
  // Opens the model on a device of its own, and does `lead` with it; a rank that others lead
  // follows.
  void serve(RankGroup* group_or_null,
             const std::function<void(const ServedModelOptions& options)>& lead,
             const Setting& setting = {}) {
    const auto device = opened_for_trial(CudaDevice::open(0));
    const auto backend = make_cuda_backend(*device, {.deterministic = true, .staged_ranks = true});
    ServedModelOptions options = trial_options(model_.path(), setting);
    options.adapters = model_.sources(setting.adapters);
    options.engine.shadow_audit_percent = setting.audit_percent;
    options.backend = backend.get();
    options.ranks = group_or_null;
    options.kv_dtype = "bf16";
    options.kv_bytes = setting.kv_bytes;
    options.tiers = setting.tiers;
    options.engine.kv.tiers.write_policy = WritePolicy::kWriteThrough;
    options.engine.kv.tiers.load_wait_us = std::chrono::microseconds(kLong).count();
    options.engine.kv.tiers.store_deadline_us = std::chrono::microseconds(kLong).count();
    if (group_or_null == nullptr || group_or_null->rank() == 0) return lead(options);
    const auto model = opened_for_trial(ServedModel::open(options));
    followers_pool_or_null_ = &model->pool();
    EXPECT_TRUE(model->follow().ok());
    followers_pool_or_null_ = nullptr;
  }

  // Rank 1's, while rank 0 leads.
  KvPool* followers_pool_or_null_ = nullptr;

 private:
  AdaptedModel model_{tiny_model_config("llama2")};
};

TEST_F(ServedRanksOnGpus, TwoServeTheBitsOfOne) {
  const auto served = [&](RankGroup* group_or_null, Outcome& outcome) {
    serve(group_or_null, [&](const ServedModelOptions& options) {
      ServedTrial trial = open_trial(options);
      TrialRequests requests;
      requests.prompts.resize(kRequests);
      outcome = run_trial(*trial.engine, *trial.recorder, requests);
    });
  };
  Outcome alone;
  served(nullptr, alone);
  ASSERT_EQ(alone.tokens.size(), kRequests);
  Outcome two;
  ThreadRanks(2).run([&](RankGroup& group) { served(&group, two); });
  EXPECT_GT(two.cached_tokens, 0);
  expect_same_bits(alone, two);
}

// The pools keep two of the texts; a third one pushes them out.
TEST_F(ServedRanksOnGpus, WhatBothDroppedComesBackFromHostMemoryAndAfterARestartFromDisk) {
  TrialRequests requests;
  requests.prompts.resize(2);
  TrialRequests others;
  others.prompts = {random_prompt(150)};
  Outcome alone;
  serve(nullptr, [&](const ServedModelOptions& options) {
    ServedTrial trial = open_trial(options);
    alone = trial.run(requests);
  });
  const TempDirectory directory;
  Setting setting;
  setting.kv_bytes = 200 * kTokenBytes;
  setting.tiers.host_bytes = std::int64_t{1} << 20;
  setting.tiers.disk_directory = directory.file("disk");
  for (const bool restarted : {false, true}) {
    const auto lead = [&](const ServedModelOptions& options) {
      ServedTrial trial = open_trial(options);
      if (!restarted) {
        expect_same_bits(alone, trial.run(requests));
        trial.engine->settle(kLong);
        trial.run(others);
        trial.engine->settle(kLong);
      }
      const Outcome back = trial.run(requests);
      EXPECT_GT(restarted ? back.brought.disk : back.brought.host, 0);
      if (!restarted) {
        EXPECT_GT(metric_of(*trial.engine, "stemma_lent_pages_total"), 0)
            << "layer by layer, on every rank's own stream";
      }
      expect_same_bits(alone, back);
    };
    ThreadRanks(2).run([&](RankGroup& group) { serve(&group, lead, setting); });
  }
}

// By turns with different adapters and with none, cold and then from what both have, host memory
// too.
TEST_F(ServedRanksOnGpus, RequestsWithAdaptersGetTheBitsOfOneHoweverTheirPagesCameBack) {
  TrialRequests requests;
  requests.prompts.resize(kRequests);
  requests.adapters = {"a", "", "b"};
  Setting setting;
  setting.adapters = {"a", "b"};
  Outcome alone;
  const auto cold = [&](const ServedModelOptions& options) {
    alone = open_trial(options).run(requests);
  };
  serve(nullptr, cold, setting);
  setting.kv_bytes = 330 * kTokenBytes;
  setting.tiers.host_bytes = std::int64_t{1} << 20;
  const auto lead = [&](const ServedModelOptions& options) {
    ServedTrial trial = open_trial(options);
    expect_same_bits(alone, trial.run(requests));
    trial.engine->settle(kLong);
    const Outcome back = trial.run(requests);
    EXPECT_GT(back.cached_tokens, 0);
    EXPECT_GT(back.brought.host, 0);
    expect_same_bits(alone, back);
  };
  ThreadRanks(2).run([&](RankGroup& group) { serve(&group, lead, setting); });
}

// All pages of one rank become as its last one is, behind the cache's back.
TEST_F(ServedRanksOnGpus, APageThatChangedOnOneRankIsFoundAndNobodySeesItAgain) {
  TrialRequests requests;
  requests.prompts.resize(2);
  Outcome alone;
  serve(nullptr,
        [&](const ServedModelOptions& options) { alone = open_trial(options).run(requests); });
  const auto lead = [&](const ServedModelOptions& options) {
    ServedTrial trial = open_trial(options);
    expect_same_bits(alone, trial.run(requests));
    EXPECT_GT(trial.engine->totals().shadow_audits, 0);
    EXPECT_EQ(trial.engine->totals().shadow_audit_mismatches, 0);
    std::int64_t found = 0;
    for (KvPool* const pool : {followers_pool_or_null_, &trial.model->pool()}) {
      const PageId last(static_cast<std::int32_t>(pool->shape().pages - 1));
      for (const PageId page : id_range(PageId(0), pool->shape().pages - 1)) {
        ASSERT_TRUE(pool->copy_page(last, page).ok());
      }
      trial.run({.prompts = {requests.prompts[0]}, .max_tokens = 1});
      EXPECT_EQ(trial.engine->totals().shadow_audit_mismatches, ++found);
      expect_same_bits(alone, trial.run(requests));
      EXPECT_EQ(trial.engine->totals().shadow_audit_mismatches, found);
    }
  };
  Setting setting;
  setting.kv_bytes = 600 * kTokenBytes;
  setting.audit_percent = 100;
  ThreadRanks(2).run([&](RankGroup& group) { serve(&group, lead, setting); });
}

TEST_F(ServedRanksOnGpus, TiersAreReadAndWrittenBetweenStepsThatAreQueuedAhead) {
  std::vector<std::vector<TokenId>> alone;
  serve(nullptr, [&](const ServedModelOptions& options) {
    const auto model = opened_for_trial(ServedModel::open(options));
    alone = tokens_of_queued_steps(*model, kRequests);
  });
  const TempDirectory directory;
  Setting setting;
  setting.kv_bytes = 330 * kTokenBytes;
  setting.tiers.disk_directory = directory.file("disk");
  for (int life = 0; life < 2; ++life) {
    const auto lead = [&](const ServedModelOptions& options) {
      const auto model = opened_for_trial(ServedModel::open(options));
      BroughtTokens brought;
      EXPECT_EQ(tokens_of_queued_steps(*model, kRequests, 0, &brought), alone);
      EXPECT_EQ(brought.disk > 0, life == 1);
    };
    ThreadRanks(2).run([&](RankGroup& group) { serve(&group, lead, setting); });
  }
}

TEST_F(ServedRanksOnGpus, StepsThatAllQueueAheadGiveAndDrawTheTokensOfOne) {
  using Tokens = std::vector<std::vector<TokenId>>;
  for (const float temperature : {0.0f, 0.8f}) {
    const auto served = [&](RankGroup* group_or_null, Tokens& tokens) {
      serve(group_or_null, [&](const ServedModelOptions& options) {
        const auto model = opened_for_trial(ServedModel::open(options));
        EXPECT_TRUE(model->batch_runner().queues() && model->batch_runner().draws());
        tokens = tokens_of_queued_steps(*model, kRequests, temperature);
      });
    };
    Tokens alone;
    served(nullptr, alone);
    Tokens two;
    ThreadRanks(2).run([&](RankGroup& group) { served(&group, two); });
    EXPECT_EQ(two, alone);
  }
}

}  // namespace
}  // namespace stemma
