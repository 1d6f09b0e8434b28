// A whole model served by ranks on GPUs: tokens and logits are those of one rank, bit for bit
// (I13), with prefixes that requests share and prompts in chunks, step by step and queued ahead.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/temp_directory.h"
#include "cuda/cuda_backend.h"
#include "device/cuda_fixture.h"
#include "device/thread_ranks_fixture.h"
#include "model/random_model.h"
#include "transparency/served_trial.h"

namespace stemma {
namespace {

constexpr std::size_t kRequests = 4;  // an emulated GPU takes its time

// How a run differs from the plainest one.
struct Setting {
  std::string cache = "radix";
  std::int64_t page_size = 4;
  std::int64_t chunk_tokens = 40;
  std::int64_t concurrency = 3;
  int threads = 1;
};

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
             const std::function<void(const ServedModelOptions& options)>& lead) {
    const auto device = opened_for_trial(CudaDevice::open(0));
    const auto backend = make_cuda_backend(*device, {.deterministic = true, .staged_ranks = true});
    ServedModelOptions options = trial_options(directory_.path(), Setting());
    options.backend = backend.get();
    options.ranks = group_or_null;
    options.kv_dtype = "bf16";
    options.kv_bytes = std::int64_t{1} << 20;
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
