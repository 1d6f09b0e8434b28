// A whole model served by ranks on GPUs: tokens and logits are those of one rank, bit for bit
// (I13), with prefixes that requests share and prompts in chunks, step by step and queued ahead,
// and with what comes back from every rank's own host memory and disk.
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
#include "model/random_model.h"
#include "sim/metric_of.h"
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
};

// Of the keys and values of one rank of two: a head in each of two layers.
constexpr std::int64_t kTokenBytes = 2 * 2 * 32 * 2;

std::vector<TokenId> random_prompt(std::int64_t tokens) {
  Prng prng(77);
  return random_tokens(prng, tokens);
}

class ServedRanksOnGpus : public CudaFixture {
 protected:
  ServedRanksOnGpus() {
    const RandomModelOptions model = {.config = tiny_model_config("llama2"),
                                      .type = WeightType::kBf16};
    STEMMA_CHECK(write_random_model(directory_.path(), model).ok(), "the model can be written");
  }

  // Opens the model on a device of its own, and does `lead` with it; a rank that others lead
  // follows.
  void serve(RankGroup* group_or_null,
             const std::function<void(const ServedModelOptions& options)>& lead,
             const Setting& setting = {}) {
    const auto device = opened_for_trial(CudaDevice::open(0));
    const auto backend = make_cuda_backend(*device, {.deterministic = true, .staged_ranks = true});
    ServedModelOptions options = trial_options(directory_.path(), setting);
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
    EXPECT_TRUE(model->follow().ok());
  }

 private:
  TempDirectory directory_;
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
