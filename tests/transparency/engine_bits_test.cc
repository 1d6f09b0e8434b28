// I13 over the whole engine: the tokens and the logits of a request are equal bit for bit whatever
// was cached, however its prompt was chunked, whoever shared its batch, whatever was evicted and
// computed again, and on any number of threads. Random models of every family, prompts that share
// prefixes; every case counts that the path it is about ran.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/temp_directory.h"
#include "engine/logits_recorder.h"
#include "engine/served_model.h"
#include "model/random_model.h"
#include "model/tiny_config.h"
#include "transparency/families.h"
#include "transparency/served_trial.h"

namespace stemma {
namespace {

// How a run differs from the plainest one.
struct Setting {
  std::string cache = "radix";
  std::int64_t page_size = 16;
  std::int64_t chunk_tokens = 512;
  std::int64_t concurrency = 4;
  int threads = 1;
  std::string kv_layout = "layer_first";
  std::int64_t kv_bytes = std::int64_t{8} << 20;
  SchedulePolicy policy = SchedulePolicy::kFcfs;
  double windowed_share = 0.5;
  std::string weights = "auto";
};

class EngineBits : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_random_model(directory_.path(), {.config = tiny_model_config(GetParam()),
                                                       .type = WeightType::kBf16})
                    .ok());
  }

  Outcome run(const Setting& setting) {
    ServedModelOptions options = trial_options(directory_.path(), setting);
    options.kv_bytes = setting.kv_bytes;
    options.kv_layout = setting.kv_layout;
    options.weights = setting.weights;
    options.windowed_share = setting.windowed_share;
    options.engine.scheduler.policy = setting.policy;
    ServedTrial trial = open_trial(options);
    return run_trial(*trial.engine, *trial.recorder);
  }

 private:
  TempDirectory directory_;
};

// Nothing cached, one request at a time, one thread, whole prompts.
const Setting kPlain = {.cache = "none", .concurrency = 1};

TEST_P(EngineBits, CacheOnAndOff) {
  const Outcome plain = run(kPlain);
  ASSERT_EQ(plain.tokens.size(), 16u);
  for (const auto& tokens : plain.tokens) EXPECT_EQ(tokens.size(), 5u);
  EXPECT_EQ(plain.cached_tokens, 0);
  for (const std::int64_t page_size : {1, 16, 64}) {
    SCOPED_TRACE(testing::Message() << "page size " << page_size);
    const Outcome cached = run({.page_size = page_size, .concurrency = 1});
    EXPECT_GE(cached.cached_tokens, 15 * 64);  // the cached path ran: at least the shared 64
    expect_same_bits(plain, cached);
  }
}

TEST_P(EngineBits, AnyChunkSize) {
  const Outcome plain = run(kPlain);
  for (const std::int64_t chunk_tokens : {1, 2, 3, 7, 16, 33, 100}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk_tokens);
    const Outcome chunked = run({.chunk_tokens = chunk_tokens, .concurrency = 1});
    if (chunk_tokens <= 7) {
      EXPECT_GT(chunked.steps, plain.steps);  // prompts were really cut
    }
    EXPECT_GT(chunked.cached_tokens, 0);
    expect_same_bits(plain, chunked);
  }
}

TEST_P(EngineBits, AnyBatch) {
  const Outcome plain = run(kPlain);
  for (const std::int64_t concurrency : {2, 3, 5, 8, 16}) {
    SCOPED_TRACE(testing::Message() << concurrency << " at a time");
    const Outcome batched = run({.page_size = 1, .concurrency = concurrency});
    EXPECT_LT(batched.steps, plain.steps);  // several requests shared a step
    expect_same_bits(plain, batched);
    expect_same_bits(plain, run({.cache = "none", .concurrency = concurrency}));
  }
}

TEST_P(EngineBits, MixedStepsOfPromptsAndOutputs) {
  const Outcome plain = run(kPlain);
  for (const SchedulePolicy policy : {SchedulePolicy::kLpm, SchedulePolicy::kShortestUncachedFirst,
                                      SchedulePolicy::kDfsWeight, SchedulePolicy::kRandom}) {
    expect_same_bits(plain, run({.chunk_tokens = 24, .concurrency = 6, .policy = policy}));
  }
}

TEST_P(EngineBits, AnyNumberOfThreadsAndEitherLayout) {
  const Outcome plain = run(kPlain);
  expect_same_bits(plain, run({.threads = 2}));
  expect_same_bits(plain, run({.page_size = 1, .threads = 3, .kv_layout = "page_first"}));
}

TEST_P(EngineBits, AfterEvictionAndPreemption) {
  const Outcome plain = run(kPlain);
  const ModelConfig config = tiny_model_config(GetParam());
  const std::int64_t token_bytes = 2 * config.layers * config.pool_shape().token_elements();
  const Outcome tight = run({.page_size = 4, .concurrency = 8, .kv_bytes = 220 * token_bytes});
  // Where every layer has a window, there are as many names of pages as anybody wants.
  if (config.pool_shape().layers > 0) {
    EXPECT_GT(tight.totals.evicted_pages, 0);
  }
  expect_same_bits(plain, tight);
}

// Whole numbers are multiplied row by row: they are as transparent as the weights they stand for.
TEST_P(EngineBits, RoundedWeights) {
  const Outcome stored = run(kPlain);
  for (const std::string weights : {"int8", "int4"}) {
    SCOPED_TRACE(weights);
    const Outcome plain = run({.cache = "none", .concurrency = 1, .weights = weights});
    EXPECT_NE(plain.logits, stored.logits);  // they were really rounded
    expect_same_bits(plain, run({.page_size = 1,
                                 .chunk_tokens = 7,
                                 .threads = 3,
                                 .kv_layout = "page_first",
                                 .weights = weights}));
    expect_same_bits(plain, run({.chunk_tokens = 24,
                                 .concurrency = 6,
                                 .threads = 2,
                                 .policy = SchedulePolicy::kLpm,
                                 .weights = weights}));
    expect_same_bits(plain, run({.page_size = 64, .concurrency = 16, .weights = weights}));
  }
}

class WindowedEngineBits : public EngineBits {};

// Few windowed pages: those of most texts go before others could begin with them.
TEST_P(WindowedEngineBits, WhereWindowsHaveGone) {
  const ModelConfig config = tiny_model_config(GetParam());
  const Outcome plain = run(kPlain);
  const std::int64_t token_bytes = 2 * config.layers * config.pool_shape().token_elements();
  const std::int64_t window_bytes = config.windows.tokens * token_bytes;
  for (const std::int64_t concurrency : {1, 3, 8}) {
    const Outcome short_of_windows = run({.page_size = 4,
                                          .chunk_tokens = 24,
                                          .concurrency = concurrency,
                                          .kv_bytes = 300 * token_bytes + 2 * window_bytes,
                                          .windowed_share = 0.05});
    expect_same_bits(plain, short_of_windows);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineBits, testing::ValuesIn(every_family()),
                         [](const auto& param_info) { return std::string(param_info.param); });

INSTANTIATE_TEST_SUITE_P(Families, WindowedEngineBits, testing::ValuesIn(windowed_families()),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace stemma
